package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/queue"
)

// family is a kind of run: the number of steps, their distance, and what happens in them.
type family struct {
	name   string
	steps  int
	pause  time.Duration // between steps, on average
	rest   time.Duration // duration after the faults
	took   time.Duration // of a call, on average
	capped int           // calls under the deployment's cap, per mille
	tight  bool          // limits are small
	free   bool          // no limits
	only   budget.ShapeKind
	orgs   int
	procs  int           // number of processes; 0: three
	lease  time.Duration // of holds; 0: a minute
	keep   time.Duration // interval of a keeper; 0: short
	acts   []act

	pool     queue.Pool    // no pool if it has no ID
	look     time.Duration // between a worker's polls for jobs, on average
	stay     time.Duration // how long callers wait, on average
	leave    bool          // callers leave after waiting, and come back
	patience time.Duration // maximum wait of a job that nothing blocks; 0: unknown
	large    int           // calls that need most of a minute's quota, per mille
	lanes    int           // keys, and models, per user
}

// act is something that can happen in a step.
type act struct {
	weight int
	do     func(*world)
}

// families returns all kinds of runs; each seed belongs to one of them.
func families() []*family {
	calls := act{60, (*world).actCall}
	return append(moneyFamilies(calls), poolFamilies()...)
}

// moneyFamilies test holds, limits and ledgers.
func moneyFamilies(calls act) []*family {
	return []*family{
		{
			name: "plain", steps: 300, pause: 5 * time.Second,
			rest: 10 * time.Minute, took: 20 * time.Second, capped: 300, orgs: 3,
			acts: []act{calls, {3, (*world).actLimits}},
		},
		{
			name: "link", steps: 300, pause: 5 * time.Second,
			rest: 15 * time.Minute, took: 20 * time.Second, capped: 300, orgs: 3,
			acts: []act{calls, {10, (*world).actOdds}, {4, (*world).actBlip}, {2, (*world).actLimits}},
		},
		{
			name: "crash", steps: 300, pause: 4 * time.Second,
			rest: 15 * time.Minute, took: time.Minute, capped: 500, tight: true, orgs: 2,
			acts: []act{calls, {3, (*world).actOdds}, {6, (*world).actDeath}},
		},
		{
			name: "outage", steps: 250, pause: 10 * time.Second, rest: 20 * time.Minute, took: 2 * time.Minute, orgs: 2,
			acts: []act{calls, {3, (*world).actOutage}, {2, (*world).actDeath}},
		},
		{
			name: "partition", steps: 200, pause: time.Minute, rest: 3 * time.Hour, took: 2 * time.Minute, orgs: 2,
			acts: []act{calls, {4, (*world).actOdds}, {5, (*world).actPartition}},
		},
		{
			name: "memory", steps: 250, pause: 8 * time.Second, rest: 15 * time.Minute, took: 2 * time.Minute, orgs: 2,
			acts: []act{calls, {5, (*world).actMemory}},
		},
		{
			name: "many orgs", steps: 300, pause: 500 * time.Millisecond,
			rest: 15 * time.Minute, took: 5 * time.Minute, orgs: 80, free: true, procs: 2,
			lease: 15 * time.Second, keep: 1500 * time.Millisecond,
			acts: []act{calls, {5, (*world).actSlow}},
		},
		{
			name: "restart", steps: 250, pause: 6 * time.Second, rest: 30 * time.Minute, took: 20 * time.Second, orgs: 2,
			acts: []act{calls, {20, (*world).actReplicate}, {3, (*world).actFailover}, {1, (*world).actFlush}},
		},
		{
			name: "seldom", steps: 100, pause: time.Hour,
			rest: 3 * time.Hour, took: time.Second, orgs: 2, keep: 10 * time.Minute,
			only: budget.Bucket, tight: true,
			acts: []act{{10, (*world).actCall}, {20, (*world).actRefill}, {30, (*world).actBurst}},
		},
		{
			name: "months", steps: 150, pause: 12 * time.Hour,
			rest: 240 * time.Hour, took: 96 * time.Hour, orgs: 1, free: true,
			keep: 3 * time.Hour, acts: []act{{1, (*world).actHandOver}},
		},
	}
}

// poolFamilies test waiting jobs and the provider's quota.
func poolFamilies() []*family {
	small := queue.Pool{ID: poolID, RPM: 40, TPM: 4000, Concurrency: 4}
	mix := []act{{20, (*world).actCall}, {15, (*world).actWait}, {15, (*world).actAsync}, {5, (*world).actBatch}}
	with := func(more ...act) []act { return append(slices.Clone(mix), more...) }
	pool := func(name string, pause time.Duration, acts []act, change func(*family)) *family {
		f := &family{
			name: name, steps: 250, pause: pause, rest: 30 * time.Minute, took: 5 * time.Second, orgs: 2, free: true,
			acts: acts, pool: small, look: time.Second, stay: time.Minute,
		}
		change(f)
		return f
	}
	none := func(*family) {}
	long := func(f *family) { f.took, f.stay = 30*time.Second, 5*time.Minute }
	return []*family{
		pool("pool", 2*time.Second, mix, func(f *family) { f.free, f.pool.MaxAge = false, 20*time.Minute }),
		pool("provider", 2*time.Second, with(act{2, (*world).actStorm}, act{2, (*world).actReload}), none),
		pool("pool link", 3*time.Second, with(act{8, (*world).actOdds}, act{3, (*world).actBlip}), none),
		pool("pool crash", 3*time.Second, with(act{4, (*world).actOdds}, act{4, (*world).actDeath}), none),
		pool("pool outage", 5*time.Second, with(act{2, (*world).actOutage}), long),
		pool("pool memory", 5*time.Second, with(act{4, (*world).actMemory}), long),
		pool("pool restart", 4*time.Second,
			with(act{20, (*world).actReplicate}, act{3, (*world).actFailover}, act{1, (*world).actFlush}), none),
		pool("large", time.Second, []act{{97, (*world).actCall}, {3, (*world).actAsync}}, func(f *family) {
			f.large, f.patience, f.steps, f.pool = 60, 3*time.Minute, 1500, queue.Pool{ID: poolID, TPM: 10_000}
			f.took, f.keep = time.Second, 20*time.Second
		}),
		pool("drain", 20*time.Second, []act{{1, (*world).actDrain}}, func(f *family) {
			f.took, f.look, f.pool.Concurrency = 2*time.Minute, 5*time.Second, 3
		}),
		pool("night", 10*time.Second, with(act{2, (*world).actNight}), func(f *family) {
			f.pool.MaxAge, f.pool.ResultTTL, f.pool.MaxJobs = 5*time.Minute, time.Minute, 60
		}),
		pool("clock", 5*time.Second, with(act{4, (*world).actClock}), func(f *family) { f.patience = 5 * time.Minute }),
		pool("lanes", time.Second, []act{{60, (*world).actAsync}}, func(f *family) {
			f.lanes, f.orgs, f.pool, f.patience = 7, 1, queue.Pool{ID: poolID, RPM: 50}, 12*time.Minute
			f.steps, f.look, f.keep, f.took = 1500, 3*time.Second, 20*time.Second, time.Second
		}),
		pool("callers", time.Second, []act{{60, (*world).actWait}}, func(f *family) {
			f.stay, f.leave, f.pool.RPM, f.took = 20*time.Second, true, 20, time.Second
		}),
	}
}

// set sets up the start of a run.
func (w *world) set() {
	w.byID, w.read, w.jobBy = map[string]*call{}, map[string]string{}, map[string]*job{}
	w.pool = w.fam.pool
	for i := range w.fam.orgs {
		o := &org{id: fmt.Sprintf("org%d", i)}
		if !w.fam.free {
			o.limits = w.newLimits(o)
		}
		w.orgs = append(w.orgs, o)
	}
	w.caps = []budget.Cap{{Limits: []budget.Limit{{
		ID: "cap", Subject: budget.Org, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: 400, Window: time.Minute},
	}}}}
	for n := range cmp.Or(w.fam.procs, 3) {
		w.procs = append(w.procs, w.start(n, 0))
	}
}

// newLimits returns limits for an org, of all shapes.
func (w *world) newLimits(o *org) []budget.Limit {
	d := w.dice
	scale := int64(10)
	if w.fam.tight {
		scale = 2
	}
	amount := func(n int64) int64 { return n * scale * int64(50+d.IntN(100)) / 100 }
	all := []budget.Limit{
		{ID: "window", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{
			Kind: budget.Window, Amount: amount(100), Window: []time.Duration{time.Minute, time.Hour}[d.IntN(2)],
		}},
		{ID: "exact", Subject: budget.User, Metric: budget.Tokens, Shape: budget.Shape{
			Kind: budget.ExactWindow, Amount: amount(80), Window: time.Minute,
		}},
		{ID: o.id + "-bucket", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{
			Kind: budget.Bucket, Amount: amount(100), Refill: 10 + int64(d.IntN(100)),
			Per: []time.Duration{time.Minute, time.Hour}[d.IntN(2)],
		}},
		{ID: "hour", Subject: budget.Org, Metric: budget.Requests, Shape: budget.Shape{
			Kind: budget.Calendar, Amount: amount(20), Calendar: "hour",
		}},
		{ID: "open", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{
			Kind: budget.Concurrent, Amount: 1 + int64(d.IntN(3)),
		}},
	}
	var out []budget.Limit
	for _, l := range all {
		if w.fam.only == l.Shape.Kind || w.fam.only == "" && d.chance(400) {
			out = append(out, l)
			if l.Shape.Kind == budget.Bucket {
				w.rates = append(w.rates, rate{l.ID, w.store.now(), l.Shape.Refill, l.Shape.Per})
			}
		}
	}
	return out
}
