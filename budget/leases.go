package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

const (
	renewBatch   = 200 // holds in one script
	renewFlight  = 64  // scripts sent in one batch
	renewFlights = 8   // concurrent batches
)

// openHolds is what this process knows about the holds in one place.
type openHolds struct {
	holds     map[string]*Hold
	due       int64         // us: end of the earliest lease, 0: not known
	announced time.Time     // when the place was last entered in the registry
	entering  chan struct{} // closed when the entry in progress is answered; nil if there is none
	renewed   time.Time     // when the store last renewed all of them
	blind     time.Time     // no lease is judged until then, because the store was unreachable
}

// leases renews the holds of this process, and knows when those of each place are due for checking.
// A place is an org, a part of one, or a spend cap.
type leases struct {
	rdb     redisconn.DB
	runner  *runner
	clock   *clock
	metrics *metrics
	log     *slog.Logger
	life    time.Duration // of a lease
	lifeArg any           // in us, as an argument of scripts

	mu     sync.Mutex
	places map[string]*openHolds // those in which this process has or had holds
	judge  bool                  // whether an expired lease means that its holder is dead
}

func newLeases(rdb redisconn.DB, r *runner, o Options) *leases {
	return &leases{
		rdb: rdb, runner: r, clock: r.clock, metrics: r.metrics, log: o.Log, life: o.Lease,
		lifeArg: o.Lease.Microseconds(), places: map[string]*openHolds{},
	}
}

// in returns the record of a place; l.mu is held.
func (l *leases) in(place string) *openHolds {
	o := l.places[place]
	if o == nil {
		o = &openHolds{holds: map[string]*Hold{}}
		l.places[place] = o
	}
	return o
}

// of returns the lease for Terms.Life.
func (l *leases) of(life time.Duration) time.Duration {
	return min(max(life, l.life), recordLife-48*time.Hour)
}

// begin has a new hold renewed, or notes when its longer lease ends.
func (l *leases) begin(h *Hold, life time.Duration) {
	if life == 0 {
		l.track(h)
		return
	}
	h.Ends = h.At.Add(life)
}

// track has the hold renewed until it ends.
func (l *leases) track(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.in(h.Call.Place())
	o.holds[h.ID] = h
	if o.due == 0 {
		o.due = h.At.Add(l.life).UnixMicro()
	}
}

func (l *leases) untrack(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.places[h.Call.Place()]; o != nil {
		delete(o.holds, h.ID)
	}
}

// renewal is one run of the renew script: some holds of one place.
type renewal struct {
	place string
	holds []*Hold
}

// renewDue renews the holds of all places that are due. The number of round trips depends on the
// number of batches, not of places. One for which the store did not answer stays due.
func (l *leases) renewDue(ctx context.Context) error {
	began := time.Now()
	list := l.dueRenewals(began)
	if len(list) == 0 {
		return nil
	}
	errs := make([]error, len(list))
	free := make(chan struct{}, renewFlights)
	var work sync.WaitGroup
	for from := 0; from < len(list); from += renewFlight {
		till := min(from+renewFlight, len(list))
		free <- struct{}{}
		work.Go(func() {
			l.renewTogether(ctx, list[from:till], errs[from:till])
			<-free
		})
	}
	work.Wait()
	renewed := l.renewalsDone(list, errs, began)
	if len(renewed) > 0 {
		err := l.register(ctx, registerSet, l.clock.now().Add(l.life), renewed...)
		errs = append(errs, err)
		if err == nil {
			l.entered(began, renewed...)
		}
	}
	return errors.Join(errs...)
}

// entered records that the places were entered in the registry.
func (l *leases) entered(at time.Time, places ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, place := range places {
		l.in(place).announced = at
	}
}

// dueRenewals lists the holds that have not been renewed for a third of a lease.
func (l *leases) dueRenewals(now time.Time) []renewal {
	var list []renewal
	l.mu.Lock()
	defer l.mu.Unlock()
	for place, o := range l.places {
		if len(o.holds) == 0 || now.Sub(o.renewed) < l.life/3 {
			continue
		}
		for holds := range slices.Chunk(slices.Collect(maps.Values(o.holds)), renewBatch) {
			list = append(list, renewal{place, holds})
		}
	}
	slices.SortStableFunc(list, func(a, b renewal) int { return strings.Compare(a.place, b.place) })
	return list
}

// renewalsDone records the places for which the store has answered all renewals, and returns them.
func (l *leases) renewalsDone(list []renewal, errs []error, began time.Time) []string {
	failed := map[string]bool{}
	for i, r := range list {
		failed[r.place] = failed[r.place] || errs[i] != nil
	}
	var done []string
	l.mu.Lock()
	defer l.mu.Unlock()
	for place, f := range failed {
		if !f {
			l.in(place).renewed = began
			done = append(done, place)
		}
	}
	slices.Sort(done)
	return done
}

// renewTogether sends renewals in one round trip, and those whose server does not have the script
// again in a second one.
func (l *leases) renewTogether(ctx context.Context, list []renewal, errs []error) {
	for i := range errs {
		errs[i] = errNotSent
	}
	for _, send := range []func(context.Context, redisconn.Scripter, []string, ...any) redisconn.Reply{
		l.runner.scripts.renew.EvalSha, l.runner.scripts.renew.Eval,
	} {
		pipe, sent := l.rdb.Pipeline(), make([]redisconn.Reply, len(list))
		for i, r := range list {
			if errors.Is(errs[i], errNotSent) {
				keys, args := l.renewArgs(r, l.life)
				sent[i] = send(ctx, pipe, keys, args...)
			}
		}
		if pipe.Len() == 0 {
			return
		}
		began := time.Now()
		_ = pipe.Exec(ctx) // each command has its own error
		l.metrics.took(l.runner.scripts.renew.name, time.Since(began).Seconds())
		for i, cmd := range sent {
			if cmd != nil && !redisconn.NoScript(cmd.Err()) {
				errs[i] = l.renewAnswered(list[i], cmd)
			}
		}
	}
}

// errNotSent marks a renewal that no server has executed yet.
var errNotSent = errors.New("budget: renew: the script is not loaded")

// renewArgs builds the KEYS and ARGV that lua/renew.lua lists.
func (l *leases) renewArgs(r renewal, life time.Duration) (keys []string, args []any) {
	keys = []string{ledger.Key(r.place, "holds"), ledger.Key(r.place, "leases")}
	args = []any{l.clock.given(), life.Microseconds(), recordLifeArg}
	for _, h := range r.holds {
		n := 0
		for _, st := range h.states {
			if st.Metric == Concurrency {
				keys = append(keys, ledger.Key(r.place, st.Key))
				n++
			}
		}
		args = append(args, h.ID, n)
	}
	return keys, args
}

// renewAnswered decodes the answer of renew: Redis's time, the end of the earliest lease, and for
// each hold whether it is still open.
func (l *leases) renewAnswered(r renewal, cmd redisconn.Reply) error {
	reply, err := cmd.Text()
	if err != nil {
		return storeError(l.runner.scripts.renew.name, err)
	}
	n, err := integers(reply)
	if err != nil || len(n) != len(r.holds)+2 {
		return fmt.Errorf("budget: renew: reply %.80q is not understood", reply)
	}
	l.clock.seen(time.UnixMicro(n[0]))
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.in(r.place)
	o.due = n[1]
	for i, h := range r.holds {
		if n[i+2] == 1 {
			continue
		}
		if _, open := o.holds[h.ID]; open { // otherwise it ended meanwhile
			delete(o.holds, h.ID)
			l.metrics.lost.Inc()
			l.log.Warn("hold expired before its renewal", "org", h.Call.Org, "call", h.Call.ID)
		}
	}
	return nil
}

// announce enters a place in the registry once per third of a lease, in parallel with the hold, so
// that its holds expire even if every process dies. It never postpones the place's next check,
// because callers may keep announcing and being refused forever. The returned function waits for
// the entry, also for one that another hold began; if it failed, the next hold tries again.
func (l *leases) announce(ctx context.Context, place string) (wait func()) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.in(place)
	if now.Sub(o.announced) < l.life/3 {
		return func() {}
	}
	done := o.entering
	if done == nil {
		done = make(chan struct{})
		o.entering = done
		go l.enter(ctx, place, now, done)
	}
	return func() {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// enter makes the entry of announce.
func (l *leases) enter(ctx context.Context, place string, now time.Time, done chan struct{}) {
	err := l.register(ctx, registerSoonest, l.clock.now().Add(l.life), place)
	if err != nil {
		l.log.Warn("org not registered for expiry", "org", place, "err", err)
	} else {
		l.entered(now, place)
	}
	l.mu.Lock()
	l.in(place).entering = nil
	l.mu.Unlock()
	close(done)
}

// What lua/register.lua does with a place that is already in the registry.
const (
	registerSet     = "set"     // this process tracks the org until then
	registerSoonest = "soonest" // an earlier instant is kept
)

func (l *leases) register(ctx context.Context, how string, until time.Time, places ...string) error {
	args := []any{registryLife.Milliseconds(), how, until.UnixMilli()}
	for _, place := range places {
		args = append(args, place)
	}
	_, err := l.runner.run(ctx, l.runner.scripts.register, []string{Registry}, args)
	if err != nil {
		return err
	}
	pipe := l.rdb.Pipeline()
	for _, place := range places {
		pipe.PExpire(ctx, ledger.Key(place, outage.MarkName), outage.MarkLife)
		ledger.NotePart(ctx, pipe, place)
		ledger.NoteOrg(ctx, pipe, place, l.clock.now())
	}
	if err := pipe.Exec(ctx); err != nil && !lua.Full(err) { // which refuses only NoteOrg, until the next renewal
		return storeError("register", err)
	}
	return nil
}

// blind reports whether the place's leases are not judged at the moment.
func (l *leases) blind(place string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.judge || time.Now().Before(l.in(place).blind)
}

// unseen records that the store did not answer for the place; on a cluster, only its server may be
// unreachable.
func (l *leases) unseen(place string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in(place).blind = time.Now().Add(l.life)
}

// duePlaces lists the places whose earliest lease has expired, and forgets idle ones.
func (l *leases) duePlaces(local, now time.Time) (due []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for place, o := range l.places {
		if o.due > 0 && o.due <= now.UnixMicro() {
			due = append(due, place)
		}
		idle := len(o.holds) == 0 && o.due == 0 && o.entering == nil
		if idle && local.Sub(o.announced) > l.life && local.After(o.blind) {
			delete(l.places, place)
		}
	}
	slices.Sort(due)
	return due
}

// due records when the place's earliest lease ends.
func (l *leases) due(place string, first []redisconn.Z) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.in(place)
	o.due = 0
	if len(first) > 0 {
		o.due = int64(first[0].Score)
	}
}
