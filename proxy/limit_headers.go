package proxy

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// stateOf returns the rate of free requests of the reader with the least left.
func stateOf(name string, readers [2]*reader, now time.Time) wire.LimitState {
	who, left := readers[0], math.Inf(1)
	for _, r := range readers {
		if share := r.rate.TokensAt(now) / float64(r.burst); share < left {
			who, left = r, share
		}
	}
	units, perSecond := who.rate.TokensAt(now), float64(who.rate.Limit())
	seconds := func(units float64) time.Duration { return time.Duration(units / perSecond * float64(time.Second)) }
	return wire.LimitState{
		Name: name, Unit: wire.UnitRequests, Amount: int64(who.burst), Remaining: int64(math.Floor(units)),
		Window: seconds(float64(who.burst)), Reset: now.Add(seconds(float64(who.burst) - units)),
	}
}

// queueFull returns the state of a bound of the queue that refused a job; nil for shares of memory,
// which are no numbers of jobs or bytes.
func queueFull(e *queue.FullError, now time.Time) *wire.LimitState {
	unit := ""
	switch e.Scope {
	case "jobs", "org_jobs", "flow_jobs":
		unit = wire.UnitRequests
	case "bytes", "org_bytes", "flow_bytes":
		unit = wire.UnitBytes
	default:
		return nil
	}
	return &wire.LimitState{
		Name: "queue-" + strings.ReplaceAll(e.Scope, "_", "-"), Unit: unit, Amount: e.Limit, Reset: now.Add(e.RetryAfter),
	}
}

// noteLimits remembers the limits of a call that failed with err, for an answer that has nothing
// newer to report.
func (x *request) noteLimits(err error) {
	var states []wire.LimitState
	if exceeded, ok := errors.AsType[*guard.Refusal](err); ok {
		states = exceeded.LimitStates()
	} else if x.call != nil && x.call.Hold != nil {
		states = x.call.LimitStates()
	}
	if len(states) > 0 {
		x.limits = states
	}
}

// tellLimits reports limits in the standard headers. The headers of a call take precedence, because
// they have its hold and cost, except that those of a stored answer are replaced: the request that
// reads it is a free one. If nothing is known of the limits of a call, the key's free requests are
// reported (docs/wire.md, Rate limit headers).
func (x *request) tellLimits() {
	if x.caller.Org == nil && len(x.limits) == 0 {
		return // without a valid key
	}
	h, now := x.Header(), time.Now()
	if wire.HasLimits(h) && (x.priced || x.call != nil) {
		return
	}
	if len(x.limits) == 0 {
		x.limits = append(x.limits, x.server.reads.state(x.caller.Org.ID, x.caller.Key, now))
	}
	wire.SetLimits(h, x.wire, x.rules().Standard, x.limits, now)
}

func (x *request) rules() wire.HeaderRules { return x.server.guard.Policy().Headers }

// adviseRetry makes every 429 and 503 say when to retry, or that retrying is useless, including
// those that a provider sent without such advice.
func (x *request) adviseRetry(status int) {
	refusal, h := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable, x.Header()
	if refusal && h.Get("Retry-After") == "" && h.Get("X-Should-Retry") == "" {
		x.rules().RetryAfter(h, time.Second)
	}
}
