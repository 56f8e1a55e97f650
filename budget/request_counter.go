package budget

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// RequestCounter counts requests in limits, for all processes together and whatever the requests cost.
// Nothing is held and nothing is given back. While the store is unreachable, each process counts
// for itself. It is safe for concurrent use.
type RequestCounter struct {
	binder  binder
	runner  *runner
	log     *slog.Logger
	metrics *requestMetrics
	ids     string // of this process
	// patience is how long the store may take.
	patience time.Duration
	seq      atomic.Uint64

	// own counts the requests that the store does not count. It knows of no earlier ones.
	own  *localShares
	down atomic.Int64 // until when the store is not asked, in Unix nanoseconds

	mu   sync.Mutex
	full map[string]refusal // by org and state
}

// refusal is the answer of the store to a subject that is over a limit. It is repeated for a moment,
// so that a flood does not reach the store.
type refusal struct {
	shape Shape
	last  Status
	at    time.Time // of the answer
}

const (
	// downFor is how long the store is not asked after it failed.
	downFor = time.Second
	// fullFor is the longest time that a refusal is repeated without the store.
	fullFor = time.Second
	// mostFull bounds the refusals that are remembered.
	mostFull = 10_000
)

// Counted is the state of the limits after a request.
type Counted struct {
	Statuses []Status // of the limits that apply
	// Refused means that a limit in mode Enforce is used up, so that the request counts nowhere.
	Refused bool
	// Local means that the store did not answer, and only this process has counted.
	Local bool
}

// Exceeded returns the refusal, naming the limit with the longest wait; nil if there is none.
func (c Counted) Exceeded() *ExceededError {
	if !c.Refused {
		return nil
	}
	e := &ExceededError{Requested: 1, Statuses: c.Statuses}
	for _, st := range c.Statuses {
		if st.refuses() && (e.Binding.LimitID == "" || st.Never || st.Wait > e.Binding.Wait) {
			e.Binding = st
		}
	}
	return e
}

func newRequestCounter(b binder, r *runner, own *localShares, o Options) *RequestCounter {
	return &RequestCounter{
		binder: b, runner: r, log: o.Log, metrics: newRequestMetrics(o.Metrics), ids: rand.Text()[:12] + "-",
		own: own, full: map[string]refusal{}, patience: o.CountTimeout,
	}
}

// Count counts a request in every limit that applies to the call, or in none if one refuses it. The
// call's org is the hash tag of the keys. All limits have metric Requests and a shape Window or
// Bucket. It never fails because of the store. An error means that the limits cannot be used.
func (c *RequestCounter) Count(ctx context.Context, limits []Limit, call ledger.Call) (Counted, error) {
	call.Part = 1 // the requests of an org are counted together, however its money is spread
	h, err := c.binder.unheld(limits, call)
	if err != nil || len(h.states) == 0 {
		return Counted{}, err
	}
	for i := range h.limits {
		if kind := h.states[i].Kind; h.limits[i].Metric != Requests || kind != "w" && kind != "b" {
			return Counted{}, fmt.Errorf("budget: limit %q does not count requests in a window or a bucket", h.limits[i].ID)
		}
	}
	now := time.Now()
	out, known := c.refused(h, now)
	if !known {
		out, known = c.shared(ctx, h, now)
	}
	if !known {
		out = c.alone(h)
	}
	c.metrics.counted(out)
	return out, nil
}

// shared counts a request in the store, if it answers.
func (c *RequestCounter) shared(ctx context.Context, h *Hold, now time.Time) (Counted, bool) {
	if now.UnixNano() < c.down.Load() {
		return Counted{}, false
	}
	out, err := c.ask(ctx, h)
	if err == nil {
		c.remember(h, out, now)
		return out, true
	}
	if ctx.Err() == nil { // otherwise the caller left
		failed := time.Now()
		before := c.down.Swap(failed.Add(downFor).UnixNano())
		if before < failed.UnixNano() {
			c.log.Warn("requests not counted in Redis, this process counts alone", "err", err)
		}
	}
	return Counted{}, false
}

// ask counts a request in the store.
func (c *RequestCounter) ask(ctx context.Context, h *Hold) (Counted, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	id := c.ids + strconv.FormatUint(c.seq.Add(1), 36)
	a, err := c.runner.askEach(ctx, c.runner.scripts.count, h, func(i int, _ time.Time) []any {
		return []any{h.limits[i].Shape.Amount, string(h.limits[i].mode())}
	}, id)
	if err != nil {
		return Counted{}, err
	}
	statuses, err := c.binder.statuses(h, a, func(*Limit) int64 { return 1 })
	return Counted{Statuses: statuses, Refused: a.verdict == "refused"}, err
}

// remember keeps the refusals of an answer for a moment.
func (c *RequestCounter) remember(h *Hold, out Counted, now time.Time) {
	if !out.Refused {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.full) >= mostFull {
		maps.DeleteFunc(c.full, func(_ string, r refusal) bool { return !r.lasts(now) })
	}
	if len(c.full) >= mostFull {
		clear(c.full)
	}
	for i, st := range out.Statuses {
		if st.refuses() {
			c.full[h.Call.Org+" "+h.states[i].Key] = refusal{h.limits[i].Shape, st, now}
		}
	}
}

// lasts reports whether the store would certainly refuse again.
func (r refusal) lasts(now time.Time) bool {
	age := now.Sub(r.at)
	return age < fullFor && (r.last.Never || age < r.last.Wait)
}

// refused returns a refusal of a moment ago that still applies.
func (c *RequestCounter) refused(h *Hold, now time.Time) (Counted, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range h.limits {
		r, ok := c.full[h.Call.Org+" "+h.states[i].Key]
		if !ok || r.shape != l.Shape || l.mode() == Shadow || !r.lasts(now) {
			continue
		}
		st := r.last
		st.Wait, st.Reset = max(st.Wait-now.Sub(r.at), 0), max(st.Reset-now.Sub(r.at), 0)
		return Counted{Statuses: []Status{st}, Refused: true}, true
	}
	return Counted{}, false
}

// alone counts a request in this process only, with the whole amounts.
func (c *RequestCounter) alone(h *Hold) Counted {
	out := Counted{Local: true, Statuses: make([]Status, len(h.limits))}
	err := c.own.take(h, 100)
	e, over := err.(*ExceededError) //nolint:errorlint // take returns nothing else
	out.Refused = over
	for i, l := range h.limits {
		used := c.own.Used(shareKey(h.Call, &h.states[i]), l.Shape.Span())
		st := Status{
			LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.mode(), Used: used, Amount: l.Shape.Amount,
			Remaining: max(l.Shape.Amount-used, 0), Reset: l.Shape.Span(), Refused: l.Mode == Shadow && used > l.Shape.Amount,
		}
		if over && e.Binding.LimitID == l.ID {
			st = e.Binding
			st.Reset = l.Shape.Span()
		}
		out.Statuses[i] = st
	}
	return out
}
