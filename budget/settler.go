package budget

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// settler ends holds with the settle, void and expire scripts.
type settler struct {
	rdb     redisconn.DB
	runner  *runner
	clock   *clock
	leases  *leases
	metrics *metrics
	log     *slog.Logger
	flights func() Flight

	options endingOptions
	chunks  *chunkNames
	days    atomic.Pointer[threeDays]
	labels  *ledger.SummedLabels
}

// settle settles the hold itself, without the caps.
func (s *settler) settle(ctx context.Context, e Settle) (Receipt, error) {
	a, err := s.end(ctx, s.runner.scripts.settle, e.ending())
	if err != nil {
		return Receipt{}, err
	}
	return s.receipt(a, e.Hold, e.Settlement.Estimated)
}

func settling(h *Hold, st *Settlement) settleArgs {
	return settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: (*int64)(&st.Actual.Cost), most: int64(h.Max.Cost),
		since: h.At, details: st.details(h),
		want: func(of *state) any { return of.settled(st, h.Call.JobID != "") },
	}
}

func (st Settlement) details(h *Hold) ledger.Details {
	split := st.Split
	if split.Total() != st.Actual.Cost {
		split = pricing.Split{}
	}
	quota := st.Quota
	if quota == h.Max.Tokens {
		quota = 0
	}
	at := int64(0)
	if !h.At.IsZero() {
		at = h.At.UnixMicro()
	}
	return ledger.Details{
		HeldNano: int64(h.Max.Cost), HeldTokens: h.Max.Tokens, HeldUS: at, QuotaTokens: quota,
		Class: st.Class, Stream: st.Stream, Shadow: h.allShadow(),
		Estimated: st.Estimated, Outcome: st.Outcome, Status: st.Status, UpstreamID: st.UpstreamID,
		AnswerID:    st.AnswerID,
		ServiceTier: st.ServiceTier, WaitedMS: st.Waited.Milliseconds(), TookMS: st.Took.Milliseconds(),
		Usage: ledger.Usage(st.Usage), Costs: ledger.Costs(split),
	}
}

// settled returns what stays charged after a settlement of a call, which is a job's or not.
func (st *state) settled(s *Settlement, job bool) int64 {
	if s.Failed && (st.counter() || job && st.Metric == Requests) {
		return 0
	}
	return st.Metric.settled(s.Actual)
}

// receipt decodes the answer of the settle script.
func (s *settler) receipt(a answer, h *Hold, estimated bool) (Receipt, error) {
	if a.verdict == "old" {
		if !unlisted(h.Call.Org) { // caps have no list
			s.metrics.reconciled.Inc()
		}
		return Receipt{}, fmt.Errorf("settle %s: %w", h.ID, ErrTooOld)
	}
	r := Receipt{
		Charged: pricing.Nano(a.head[1]), Overrun: pricing.Nano(a.head[2]),
		Replayed: a.verdict == "replayed", Late: a.head[3] == 1, At: time.UnixMicro(a.head[4]),
	}
	if !unlisted(h.Call.Org) { // the money is the org's
		s.metrics.settled(r, estimated)
	}
	return r, nil
}

// settled returns what stays charged of a metric after a call with these amounts.
func (m Metric) settled(a Amounts) int64 {
	if m == Concurrency || m == active { // the latter are not taken back
		return 0
	}
	return m.amountOf(a)
}

func voiding(h *Hold) settleArgs {
	return settleArgs{
		call: h.Call, id: h.ID, states: h.states, cost: 0, details: ledger.Details{Outcome: "void"},
		want: func(*state) any { return 0 },
	}
}

// settleArgs are the arguments for settle, void and expire.
type settleArgs struct {
	call    ledger.Call
	id      string // of the hold
	states  []state
	cost    any // nano-USD or a pointer to them, or an ExpiredCharge
	most    int64
	since   time.Time // of the admission; zero: taken from the call id
	details ledger.Details
	want    func(*state) any
}

// end runs an ending script. If the hold has other limits than the caller knows, it reads them from
// the store and tries again.
func (s *settler) end(ctx context.Context, sc script, e settleArgs) (answer, error) {
	for try := 0; ; try++ {
		a, err := s.runner.askFor(ctx, sc, func(now time.Time) (*request, error) { return s.request(ctx, sc, e, now) })
		if err != nil || a.verdict != "keys" {
			return a, err
		}
		if try == 2 {
			return a, fmt.Errorf("budget: %s %s: its limits keep changing", sc.name, e.id)
		}
		e.states, err = s.statesOf(ctx, e.call)
		if err != nil {
			return a, err
		}
	}
}

// request returns the request of an ending at the given time.
func (s *settler) request(ctx context.Context, sc script, e settleArgs, now time.Time) (*request, error) {
	limits, err := limitUses(e.states, now)
	if err != nil {
		return nil, err
	}
	for i := range limits {
		limits[i].want = e.want(&e.states[i])
	}
	since := e.since
	if since.IsZero() {
		since, _ = ledger.IDTime(e.call.ID)
	}
	u, c := e.details.Usage, e.details.Costs
	end := &endingRequest{
		cost: e.cost, estimated: notEstimated, field: ledger.RollupField(e.call), labels: s.labels.Fields(e.call),
	}
	end.numbers = [12]int64{
		e.most, since.UnixMicro(), u.Input, u.CachedInput, u.CacheWrite + u.CacheWrite1h, u.Output,
		int64(c.Input), int64(c.CachedInput), int64(c.CacheWrite), int64(c.Output), int64(c.Fees),
	}
	if e.details.Estimated {
		end.estimated = estimated
	}
	if own, ok := e.cost.(*int64); ok { // copied: an abandoned batch would still read it
		end.numbers[11] = *own
		end.cost = &end.numbers[11]
	}
	if !unlisted(e.call.Org) { // caps have no ledger
		end.entry = ledger.OpenEntry(e.call, e.details)
		end.sums = e.call.CostSums(s.options.jobLife, recordLifeArg)
	}
	r := newRequest(ctx, s.runner.money, common{
		script: sc, now: s.clock.given(), place: e.call.Place(), chunk: s.chunks.of(e.call),
		days: s.daysAround(now), ending: &s.options,
	}, e.id, limits)
	r.ending = end
	return r, nil
}

var estimated, notEstimated any = 1, 0

// endingOptions are the Options that every ending passes on as arguments.
type endingOptions struct{ horizon, doneLife, fields, ledgerLength, ledgerLife, rollupLife, jobLife any }

func (o Options) ending() endingOptions {
	return endingOptions{
		horizon: o.Horizon.Microseconds(), fields: ledger.RollupFields,
		doneLife:     (o.Horizon + chunkSpan + reachBack).Milliseconds(),
		ledgerLength: o.LedgerLength, ledgerLife: o.LedgerLife.Milliseconds(), rollupLife: o.RollupLife.Milliseconds(),
		jobLife: o.JobLife.Milliseconds(),
	}
}

// threeDays are the roll-ups that an ending may have to add to.
type threeDays struct {
	day   int64 // of the first, since 1970
	first any   // day, as an argument
	keys  [3]string
	hours [3]string // of their hours
	label [3]string // by label
}

// daysAround returns yesterday, today and tomorrow, computed once a day.
func (s *settler) daysAround(now time.Time) *threeDays {
	day := now.UnixMicro()/dayMicros - 1
	days := s.days.Load()
	if days == nil || days.day != day {
		days = &threeDays{day: day, first: day}
		days.keys, days.hours, days.label = ledger.SumNames(day)
		s.days.Store(days)
	}
	return days
}

// chunkName is the name of a chunk of tombstones and its number.
type chunkName struct {
	number int64
	name   string
}

// chunkNames returns the names of tombstone chunks.
type chunkNames struct {
	last atomic.Pointer[chunkName]
}

// of returns the call's chunk. The name is reused for consecutive calls with the same chunk.
func (n *chunkNames) of(c ledger.Call) string {
	number := chunkNumber(c)
	last := n.last.Load()
	if last == nil || last.number != number {
		last = &chunkName{number, chunkOf(c)}
		n.last.Store(last)
	}
	return last.name
}

// statesOf reads the limits of a hold from its record or its tombstone; none if the store has
// neither.
func (s *settler) statesOf(ctx context.Context, c ledger.Call) ([]state, error) {
	for _, name := range []string{"holds", chunkOf(c)} {
		text, err := s.rdb.HGet(ctx, ledger.Key(c.Place(), name), c.HoldID()).Result()
		if redisconn.IsNil(err) {
			continue
		}
		if err != nil {
			return nil, storeError("read hold", err)
		}
		if h, ok := decodeRecord(c.Place(), c.HoldID(), text); ok {
			return h.states, nil
		}
	}
	return nil, nil
}
