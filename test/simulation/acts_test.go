package simulation

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/queue"
)

// some returns a living process.
func (w *world) some() *process {
	var living []*process
	for _, p := range w.procs {
		if !p.isDead() {
			living = append(living, p)
		}
	}
	return living[w.dice.IntN(len(living))]
}

func (w *world) actCall() {
	w.liveCall(w.some(), w.orgs[w.dice.IntN(len(w.orgs))], w.fam.took)
}

// actBurst makes about as many calls of an org as its limits allow.
func (w *world) actBurst() { w.burst(w.someOrg()) }

// actRefill changes an org's limits, and immediately uses up what they allow.
func (w *world) actRefill() {
	o := w.someOrg()
	w.change(o)
	w.burst(o)
}

func (w *world) burst(o *org) {
	for range 15 {
		w.liveCall(w.some(), o, time.Second)
		w.until(time.Now().Add(w.dice.around(100 * time.Millisecond)))
	}
}

// actLimits changes the limits of an org, like a reload or an override.
func (w *world) actLimits() { w.change(w.someOrg()) }

func (w *world) change(o *org) {
	o.limits = slices.Clone(o.limits)
	for i := range o.limits {
		s := &o.limits[i].Shape
		s.Amount = max(1, s.Amount*int64(70+w.dice.IntN(60))/100)
		if w.dice.chance(200) { // a temporary override
			o.limits[i].Raises = []budget.Raise{{Add: s.Amount / 2, Until: w.store.now().Add(w.dice.around(5 * time.Minute))}}
		}
		if s.Kind == budget.Bucket {
			s.Refill = min(max(1, s.Refill*[]int64{1, 10, 100}[w.dice.IntN(3)]/[]int64{1, 10, 100}[w.dice.IntN(3)]), budget.MaxAmount)
			w.rates = append(w.rates, rate{o.limits[i].ID, w.store.now(), s.Refill, s.Per})
		}
	}
	w.note("limits of %s change", o.id)
}

// actOdds makes the network more or less reliable.
func (w *world) actOdds() {
	d := w.dice
	o := odds{}
	if d.chance(700) {
		o = odds{
			loseCommand: d.IntN(50), loseReply: d.IntN(50), late: d.IntN(30), twice: d.IntN(50), slow: d.IntN(500),
			delay: d.around(500 * time.Millisecond),
		}
	}
	w.link.worsen(o)
	w.note("the network: %+v", o)
}

// actSlow makes every command slow.
func (w *world) actSlow() {
	w.link.worsen(odds{slow: 1000, delay: time.Duration(400+w.dice.IntN(500)) * time.Millisecond})
	w.note("the network is slow: %s", w.link.odds.delay)
}

// actBlip disconnects one process briefly.
func (w *world) actBlip() { w.cutOff(w.some(), w.dice.around(3*time.Second)) }

// actPartition disconnects one process for a long time.
func (w *world) actPartition() {
	w.cutOff(w.some(), []time.Duration{lease / 2, 3 * lease, 100 * time.Minute}[w.dice.IntN(3)])
}

// actOutage makes the store unavailable to all processes.
func (w *world) actOutage() {
	d := []time.Duration{20 * time.Second, 70 * time.Second, 5 * time.Minute}[w.dice.IntN(3)]
	silent := w.dice.chance(500)
	w.note("the store is away for %s", d)
	w.away, w.silent = time.Now().Add(d), silent
}

func (w *world) cutOff(p *process, d time.Duration) {
	silent := w.dice.chance(500)
	if till := time.Now().Add(d); till.After(p.cut) {
		p.cut, p.silent = till, silent
	}
	w.note("%s is cut off for %s", p.name, d)
	if d < lease/4 {
		return
	}
	w.excuse(p)
}

// excuse records that leases of a process may expire although it is alive.
func (w *world) excuse(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.p == p && !c.ended {
			c.apart = true
		}
	}
	for _, j := range w.jobs {
		if j.p == p {
			j.apart = true
		}
		for _, r := range j.runs {
			if r.p == p {
				r.apart = true
			}
		}
	}
	for _, s := range w.sends {
		if s.p == p {
			s.apart = true
		}
	}
}

// actDeath kills a process and starts another in its place.
func (w *world) actDeath() {
	p := w.some()
	n := slices.Index(w.procs, p)
	p.kill()
	w.note("%s dies", p.name)
	w.buried = append(w.buried, p)
	w.procs[n] = w.start(n, len(w.buried))
}

// actMemory fills the store's memory, or frees it.
func (w *world) actMemory() {
	w.note("memory full: %v", !w.store.full)
	if err := w.store.fill(w.ctx, !w.store.full); err != nil {
		w.fail("harness", "%v", err)
	}
}

func (w *world) actReplicate() {
	if err := w.store.replicate(w.ctx); err != nil {
		w.fail("harness", "%v", err)
	}
}

// actFailover promotes the replica.
func (w *world) actFailover() {
	if w.store.lag.IsZero() || w.store.full {
		return
	}
	w.note("failover to a replica that is %s behind", w.store.now().Sub(w.store.lag))
	w.forget(w.store.failover(w.ctx), w.store.lag)
}

// actFlush empties the store.
func (w *world) actFlush() {
	w.note("the store is empty")
	w.forget(w.store.flush(w.ctx), time.Time{})
}

// forget records that the store has lost what came after a time.
func (w *world) forget(err error, since time.Time) {
	if err != nil {
		w.fail("harness", "%v", err)
	}
	_ = since
	w.lost = time.Now()
	w.read = map[string]string{}
	for _, c := range w.calls {
		c.booked, c.lines = 0, nil
	}
	w.store.lag = time.Time{}
}

// heal ends all faults.
func (w *world) heal() {
	for _, p := range w.procs {
		p.cut = time.Time{}
	}
	w.away = time.Time{}
	w.calm = time.Now()
	if err := w.store.fill(w.ctx, false); err != nil {
		w.fail("harness", "%v", err)
	}
}

// sweepable reports whether expired holds must have been swept by now.
func (w *world) sweepable() bool {
	now := time.Now()
	for _, p := range w.procs {
		if !p.isDead() && p.way(now) != open || w.store.full {
			w.calm = now
		}
	}
	return now.Sub(w.calm) > 2*lease
}

func (w *world) someOrg() *org { return w.orgs[w.dice.IntN(len(w.orgs))] }

func (w *world) actWait()  { w.waitingCall(w.some(), w.someOrg()) }
func (w *world) actAsync() { w.asyncJob(w.some(), w.someOrg(), queue.Async) }
func (w *world) actBatch() { w.asyncJob(w.some(), w.someOrg(), queue.Batch) }

// actStorm makes the provider refuse everything for a while.
func (w *world) actStorm() {
	d := w.dice.around(20 * time.Second)
	w.storm = time.Now().Add(d)
	w.note("the provider refuses for %s", d)
}

// actReload changes the pools of all processes, within the provider's limits.
func (w *world) actReload() {
	p := w.pool
	p.RPM /= int64(1 + w.dice.IntN(3))
	p.TPM /= int64(1 + w.dice.IntN(3))
	p.Concurrency = max(1, p.Concurrency-w.dice.IntN(3))
	w.note("reload: %d requests, %d tokens, %d at once", p.RPM, p.TPM, p.Concurrency)
	for _, process := range w.procs {
		if err := process.queue.Configure([]queue.Pool{p}, poolOptions()); err != nil {
			w.fail("harness", "%v", err)
		}
	}
}

// actNight kills all processes, and starts others hours later.
func (w *world) actNight() {
	for range w.procs {
		p := w.procs[0]
		p.kill()
		w.procs = w.procs[1:]
		w.buried = append(w.buried, p)
	}
	w.note("the night")
	w.until(time.Now().Add(w.dice.around(20 * time.Minute)))
	for n := range 3 {
		w.procs = append(w.procs, w.start(n, len(w.buried)+n))
	}
	w.calm = time.Now()
}

// actDrain makes a live call at first, and then only jobs.
func (w *world) actDrain() {
	if w.step < 3 {
		w.actCall()
		return
	}
	w.actBatch()
}

// actHandOver makes a call that the provider completes days later.
func (w *world) actHandOver() { w.handedOver(w.some(), w.someOrg(), w.fam.took) }

// actClock moves the store's clock. Leases that expire because of it are excused.
func (w *world) actClock() {
	for _, p := range w.procs {
		w.excuse(p)
	}
	w.calm = time.Now()
	w.store.ahead = []time.Duration{0, 5 * time.Minute, -5 * time.Minute, time.Hour}[w.dice.IntN(4)]
	w.note("the store's clock is %s ahead", w.store.ahead)
}
