package guard

import (
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/wire"
)

// teller gathers the headers of one answer. All their values share one string:
// a dozen small ones would cost more than what they say.
type teller struct {
	names []string // in canonical form
	ends  []int    // of their values in buf
	buf   []byte
}

func newTeller() *teller {
	return &teller{names: make([]string, 0, 12), ends: make([]int, 0, 12), buf: make([]byte, 0, 512)}
}

// end closes the value that was appended to buf since the last one.
func (t *teller) end(name string) {
	t.names, t.ends = append(t.names, name), append(t.ends, len(t.buf))
}

func (t *teller) text(name, value string) {
	t.buf = append(t.buf, value...)
	t.end(name)
}

func (t *teller) number(name string, n int64) {
	t.buf = strconv.AppendInt(t.buf, n, 10)
	t.end(name)
}

func (t *teller) usd(name string, n pricing.Nano) {
	t.buf = n.AppendUSD(t.buf)
	t.end(name)
}

// write sets the headers.
func (t *teller) write(h http.Header) {
	all, values, start := string(t.buf), make([]string, len(t.names)), 0
	for i, name := range t.names {
		values[i] = all[start:t.ends[i]]
		h[name] = values[i : i+1 : i+1]
		start = t.ends[i]
	}
}

// limits tells the state of the enforced ones; see TellLimits.
func (t *teller) limits(statuses []budget.Status, price *pricing.Price, held pricing.Nano, back budget.Amounts) {
	var cost, tokens, requests *budget.Status
	start := len(t.buf)
	for i := range statuses {
		if statuses[i].Mode != budget.Enforce {
			continue
		}
		s := correct(statuses[i], back)
		if len(t.buf) > start {
			t.buf = append(t.buf, ", "...)
		}
		t.limit(s)
		switch s.Metric {
		case budget.Cost:
			cost = tighter(cost, s)
		case budget.Tokens:
			tokens = tighter(tokens, s)
		case budget.Requests:
			requests = tighter(requests, s)
		}
	}
	if len(t.buf) > start {
		t.end(HeaderLimits)
	}
	if tokens == nil && cost != nil {
		tokens = buys(cost, perMillionOutput(price), 1_000_000)
	}
	if requests == nil && cost != nil {
		requests = buys(cost, held, 1)
	}
	t.rateLimit(tokens, "X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens")
	t.rateLimit(requests, "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests")
}

// limit appends one limit of HeaderLimits.
func (t *teller) limit(s *budget.Status) {
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
	quantity(";remaining=", s.Remaining)
	t.buf = wire.AppendReset(append(t.buf, ";reset="...), s.Reset)
	if !s.RaisedUntil.IsZero() {
		t.buf = s.RaisedUntil.UTC().AppendFormat(append(t.buf, ";override_until="...), time.RFC3339)
	}
}

// rateLimit tells a limit as OpenAI does; nil tells nothing.
func (t *teller) rateLimit(s *budget.Status, limit, remaining, reset string) {
	if s == nil {
		return
	}
	t.number(limit, s.Amount)
	t.number(remaining, s.Remaining)
	t.buf = wire.AppendReset(t.buf, s.Reset)
	t.end(reset)
}
