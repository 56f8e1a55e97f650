package guard

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

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
