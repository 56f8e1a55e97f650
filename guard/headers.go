package guard

import (
	"math/bits"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// The headers that report an answer's cost and limits. Amounts are decimal USD, times are
// Go durations as in OpenAI's x-ratelimit-reset-*.
const (
	HeaderCall     = "X-Llmguard-Call-Id"
	HeaderHeld     = "X-Llmguard-Held-Usd"      // what is held: the most it can cost, unless the hold grows
	HeaderCost     = "X-Llmguard-Cost-Usd"      // what it cost; a trailer on streams
	HeaderEstimate = "X-Llmguard-Estimated"     // "true" if the cost is an estimate
	HeaderWithout  = "X-Llmguard-Without-Store" // "local" or "allow": the limits are not known, and charged later
	HeaderLimits   = "X-Llmguard-Limits"        // every limit: name;metric;limit;remaining;reset
	HeaderInstead  = "X-Llmguard-Downgraded"    // the requested model, if a cheaper one served the call
	HeaderRemoved  = "X-Llmguard-Removed-Tools" // tools that the provider runs, left out of the request
	HeaderWaited   = "X-Llmguard-Waited-Ms"     // time in the queue
)

// tell adds our headers to an answer. Remaining amounts are those after this call's hold,
// corrected by its cost if that is already known.
func (c *Call) tell(h http.Header) {
	held := c.Hold.Max
	t := newHeaderWriter()
	t.text(HeaderCall, c.ID)
	t.usd(HeaderHeld, held.Cost)
	back := budget.Amounts{}
	if c.final() {
		t.usd(HeaderCost, c.Result.Cost)
		if c.Result.Estimated {
			t.text(HeaderEstimate, "true")
		}
		back = c.unused()
	}
	if c.Plan.instead != "" {
		t.text(HeaderInstead, c.Plan.instead)
	}
	if c.Plan.without != "" {
		t.text(HeaderRemoved, c.Plan.without)
	}
	if c.Cache != "" {
		t.text(HeaderCache, c.Cache)
	}
	if c.Waited > 0 {
		t.number(HeaderWaited, c.Waited.Milliseconds())
	}
	if c.Without != "" {
		t.text(HeaderWithout, c.Without)
	}
	r := c.limitReport(back)
	t.limits(&r)
	t.write(h)
	r.standard(h)
}

// limitReport returns the limits as of the hold.
func (c *Call) limitReport(back budget.Amounts) LimitReport {
	r := LimitReport{
		Statuses: c.Hold.Statuses, Price: c.Plan.Price, Held: c.Hold.Max.Cost, Back: back, At: c.Hold.At,
		Standard: c.Plan.standard, Endpoint: c.Plan.Request.Endpoint,
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	return r
}

// LimitStates returns the enforced limits of a call that ended without an answer, for
// wire.SetLimits. What is counted in requests may be returned a moment later.
func (c *Call) LimitStates() []wire.LimitState {
	r := c.limitReport(c.unused())
	return r.states(nil)
}

// unused is the part of the hold that the call has not cost so far.
func (c *Call) unused() budget.Amounts {
	held, used := c.Hold.Max, c.Result.Usage
	return budget.Amounts{Cost: held.Cost - c.Result.Cost, Tokens: held.Tokens - used.Input - used.Output}
}

// final reports whether the cost is known. For a stream that is only after its end.
func (c *Call) final() bool { return c.Result.Outcome != Unsent }

// trail sets the final cost as an HTTP trailer.
func (c *Call) trail(h http.Header) {
	h.Set(http.TrailerPrefix+HeaderCost, c.Result.Cost.Decimal())
	if c.Result.Estimated {
		h.Set(http.TrailerPrefix+HeaderEstimate, "true")
	}
}

// LimitReport is the state of the limits of a call.
type LimitReport struct {
	Statuses []budget.Status
	At       time.Time      // of the statuses
	Back     budget.Amounts // what settling has returned since
	Price    *pricing.Price
	Held     pricing.Nano // by a call like this one
	Standard wire.Standard
	Endpoint wire.Endpoint // of the call
}

// TellLimits writes the limits' state as our own header, as OpenAI's x-ratelimit-*, and in the
// standard form. If no limit counts requests or tokens, OpenAI's headers are derived from the
// tightest cost limit: how many calls like this one, and how many output tokens at the model's
// highest rate, it still covers.
func TellLimits(h http.Header, r *LimitReport) {
	t := newHeaderWriter()
	t.limits(r)
	t.write(h)
	r.standard(h)
}

// standard writes the headers of wire.SetLimits.
func (r *LimitReport) standard(h http.Header) {
	var space [8]wire.LimitState
	wire.SetLimits(h, r.Endpoint, r.Standard, r.states(space[:0]), time.Now())
}

// states appends the enforced limits to out, money in millionths of a dollar.
func (r *LimitReport) states(out []wire.LimitState) []wire.LimitState {
	for i := range r.Statuses {
		s := &r.Statuses[i]
		if s.Mode != budget.Enforce {
			continue
		}
		left := standingOf(s, r.Back)
		state := wire.LimitState{Name: s.LimitID, Amount: left.amount, Remaining: left.remaining, Window: s.Window}
		switch s.Metric {
		case budget.Cost:
			state.Unit = wire.UnitMicroUSD
			state.Amount /= nanoPerMicro
			state.Remaining /= nanoPerMicro
		case budget.Tokens:
			state.Unit = wire.UnitTokens
		case budget.Requests:
			state.Unit = wire.UnitRequests
		case budget.Concurrency:
			state.Unit = wire.UnitParallel
		}
		if s.Reset < budget.Endless {
			state.Reset = r.At.Add(s.Reset)
		}
		out = append(out, state)
	}
	return out
}

const nanoPerMicro = 1000

// perMillionOutput returns the highest price of a million output tokens.
func perMillionOutput(p *pricing.Price) pricing.Nano {
	n, err := p.Ceiling(pricing.Usage{Output: 1_000_000}, pricing.Terms{})
	if err != nil {
		return 0
	}
	return n
}

// scale returns n*mul/div without overflow. Arguments must not be negative, and div must be
// > 0.
func scale(n, mul, div int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(mul))
	if hi >= uint64(div) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(div))
	return int64(min(q, 1<<63-1))
}

// headerWriter collects the headers of one answer. All values share one string, because a
// dozen small strings would be expensive.
type headerWriter struct {
	names []string // in canonical form
	ends  []int    // end offsets of their values in buf
	buf   []byte
}

var headerWriters = sync.Pool{New: func() any {
	return &headerWriter{names: make([]string, 0, 16), ends: make([]int, 0, 16), buf: make([]byte, 0, 1024)}
}}

// newHeaderWriter returns an empty headerWriter, to be used until its write.
func newHeaderWriter() *headerWriter { return headerWriters.Get().(*headerWriter) }

// end completes the value that was appended to buf since the last end.
func (t *headerWriter) end(name string) {
	t.names, t.ends = append(t.names, name), append(t.ends, len(t.buf))
}

func (t *headerWriter) text(name, value string) {
	t.buf = append(t.buf, value...)
	t.end(name)
}

func (t *headerWriter) number(name string, n int64) {
	t.buf = strconv.AppendInt(t.buf, n, 10)
	t.end(name)
}

func (t *headerWriter) usd(name string, n pricing.Nano) {
	t.buf = n.AppendUSD(t.buf)
	t.end(name)
}

// write sets the headers and returns t to the pool.
func (t *headerWriter) write(h http.Header) {
	all := string(t.buf)
	values := make([]string, len(t.names))
	start := 0
	for i, name := range t.names {
		values[i] = all[start:t.ends[i]]
		h[name] = values[i : i+1 : i+1]
		start = t.ends[i]
	}
	t.names = t.names[:0]
	t.ends = t.ends[:0]
	t.buf = t.buf[:0]
	headerWriters.Put(t)
}

// standing is what remains of a limit.
type standing struct {
	known             bool
	amount, remaining int64
	reset             time.Duration
}

// standingOf returns the state of a limit after `back` has been returned to it.
func standingOf(s *budget.Status, back budget.Amounts) standing {
	left := s.Remaining
	switch s.Metric {
	case budget.Cost:
		left += int64(back.Cost)
	case budget.Tokens:
		left += back.Tokens
	}
	return standing{true, s.Amount, min(max(left, 0), s.Amount), s.Reset}
}

// tighter returns the standing with less remaining, among the known ones.
func (r standing) tighter(other standing) standing {
	if !r.known || other.remaining < r.remaining {
		return other
	}
	return r
}

// buys converts a cost limit into units, `per` of which cost `unit`.
func (r standing) buys(unit pricing.Nano, per int64) standing {
	if unit <= 0 {
		return standing{}
	}
	r.amount, r.remaining = scale(r.amount, per, int64(unit)), scale(r.remaining, per, int64(unit))
	return r
}

// limits writes the state of the enforced limits; see TellLimits.
func (t *headerWriter) limits(report *LimitReport) {
	var cost, tokens, requests standing
	start := len(t.buf)
	for i := range report.Statuses {
		s := &report.Statuses[i]
		if s.Mode != budget.Enforce {
			continue
		}
		r := standingOf(s, report.Back)
		if len(t.buf) > start {
			t.buf = append(t.buf, ", "...)
		}
		t.limit(s, r.remaining)
		switch s.Metric {
		case budget.Cost:
			cost = cost.tighter(r)
		case budget.Tokens:
			tokens = tokens.tighter(r)
		case budget.Requests:
			requests = requests.tighter(r)
		}
	}
	if len(t.buf) > start {
		t.end(HeaderLimits)
	}
	if !tokens.known && cost.known {
		tokens = cost.buys(perMillionOutput(report.Price), 1_000_000)
	}
	if !requests.known && cost.known {
		requests = cost.buys(report.Held, 1)
	}
	t.rateLimit(tokens, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens")
	t.rateLimit(requests, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests")
}

// limit appends one limit of HeaderLimits, with what remains of it.
func (t *headerWriter) limit(s *budget.Status, remaining int64) {
	quantity := func(label string, n int64) {
		t.buf = append(t.buf, label...)
		if s.Metric == budget.Cost {
			t.buf = pricing.Nano(n).AppendUSD(t.buf)
		} else {
			t.buf = strconv.AppendInt(t.buf, n, 10)
		}
	}
	t.buf = append(append(append(t.buf, s.LimitID...), ";metric="...), s.Metric...)
	quantity(";limit=", s.Amount)
	quantity(";remaining=", remaining)
	if s.Reset < budget.Endless {
		t.buf = wire.AppendReset(append(t.buf, ";reset="...), s.Reset)
	}
	if !s.RaisedUntil.IsZero() {
		t.buf = s.RaisedUntil.UTC().AppendFormat(append(t.buf, ";override_until="...), time.RFC3339)
	}
	if !s.ClosedUntil.IsZero() {
		t.buf = s.ClosedUntil.UTC().AppendFormat(append(t.buf, ";closed_until="...), time.RFC3339)
	}
}

// rateLimit writes a limit in OpenAI's form, if it is known.
func (t *headerWriter) rateLimit(r standing, limit, remaining, reset string) {
	if !r.known {
		return
	}
	t.number(limit, r.amount)
	t.number(remaining, r.remaining)
	if r.reset < budget.Endless {
		t.buf = wire.AppendReset(t.buf, r.reset)
		t.end(reset)
	}
}
