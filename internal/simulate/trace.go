// Package simulate replays recorded calls under other limits and quotas, in virtual time. It
// reports which calls would have waited, for how long, which would have been refused, and what
// would have been spent. The decisions come from budget.Virtual and queue.Virtual, which are
// tested against the Redis scripts; the course of a call between them is in engine.go. The
// package does not use Redis. It keeps one trace in memory, at about 130 bytes per call.
package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// Call is one recorded call.
type Call struct {
	Org, User, Key, IP        string
	Model, Provider, Endpoint string
	Labels                    ledger.Labels
	// Request identifies equal requests, and Run the run with a budget, for brakes.
	Request string
	Run     ledger.RunPath

	At   time.Time     // arrival
	Took time.Duration // from admission to end

	Held, Cost         pricing.Nano
	HeldTokens, Tokens int64
	// QuotaTokens is what it uses of the provider's quota.
	QuotaTokens int64
	// Class is empty for a call with a waiting caller, otherwise async or batch.
	Class  string
	Stream bool

	// Failed means that the provider failed, so that brakes do not count the call.
	Failed bool
	// Refused means that the call was refused when recorded. Its cost and duration are unknown
	// and estimated by [Trace.Sort].
	Refused bool
}

// maxCalls limits a Trace, at about 1.3 GB of memory.
const maxCalls = 10_000_000

// ErrTooManyCalls is returned for a trace beyond 10 million calls.
var ErrTooManyCalls = errors.New("simulate: more than 10 million calls; choose a shorter period")

// Trace is a compact list of calls. Fill it, call Sort, and then Run as often as needed; a
// sorted Trace is safe for concurrent use.
type Trace struct {
	names  []string
	ids    map[string]uint32
	calls  []record
	sorted bool
	// Skipped counts input that is not a call, by reason.
	Skipped map[string]int
}

// record is a Call in compact form.
type record struct {
	who                        who
	at, took                   int64 // us
	held, cost                 int64
	heldTokens, tokens, quota  int64
	class                      uint8
	stream, refused, estimated bool
	failed                     bool
}

// who identifies everything that decides which limits apply to a call.
type who struct{ org, user, key, ip, labels, model, provider, endpoint, request, run uint32 }

// caller returns who makes a call, as an org of a policy sees it.
func (t *Trace) caller(w who, org *guard.Org) guard.Caller {
	return guard.Caller{
		Org: org, User: t.names[w.user], Key: t.names[w.key], IP: t.names[w.ip], Labels: ledger.Labels(t.names[w.labels]),
		Run: ledger.RunPath(t.names[w.run]),
	}
}

// NewTrace returns an empty Trace.
func NewTrace() *Trace {
	return &Trace{ids: map[string]uint32{"": 0}, names: []string{""}, Skipped: map[string]int{}}
}

func (t *Trace) id(name string) uint32 {
	if id, ok := t.ids[name]; ok {
		return id
	}
	id := uint32(len(t.names))
	name = string([]byte(name)) // do not retain the long line
	t.names, t.ids[name] = append(t.names, name), id
	return id
}

var classes = map[string]uint8{"": 0, "interactive": 0, "async": 2, "batch": 3}

// Add appends a call.
func (t *Trace) Add(c Call) error {
	if len(t.calls) >= maxCalls {
		return ErrTooManyCalls
	}
	class, ok := classes[c.Class]
	if !ok {
		return fmt.Errorf("simulate: unknown class %q", c.Class)
	}
	if c.Held < 0 || c.Cost < 0 || c.HeldTokens < 0 || c.Tokens < 0 || c.QuotaTokens < 0 || c.At.UnixMicro() <= 0 {
		return fmt.Errorf("simulate: a call of %s at %s has negative amounts or no time", c.Org, c.At)
	}
	t.sorted = false
	t.calls = append(t.calls, record{
		who: who{
			t.id(c.Org), t.id(c.User), t.id(c.Key), t.id(c.IP), t.id(string(c.Labels)), t.id(c.Model), t.id(c.Provider),
			t.id(c.Endpoint), t.id(c.Request), t.id(string(c.Run)),
		},
		at: c.At.UnixMicro(), took: max(c.Took.Microseconds(), 0), held: int64(c.Held), cost: int64(c.Cost),
		heldTokens: c.HeldTokens, tokens: c.Tokens, quota: c.QuotaTokens, class: class, stream: c.Stream, refused: c.Refused,
		failed: c.Failed,
	})
	return nil
}

// Len returns the number of calls.
func (t *Trace) Len() int { return len(t.calls) }

// Span returns the time from the first call to the end of the last one; call Sort first.
func (t *Trace) Span() (from, to time.Time) {
	if len(t.calls) == 0 {
		return from, to
	}
	last := int64(0)
	for i := range t.calls {
		last = max(last, t.calls[i].at+t.calls[i].took)
	}
	return time.UnixMicro(t.calls[0].at), time.UnixMicro(last)
}

// Sort sorts the calls by arrival, and gives calls that were refused when recorded the typical
// cost and duration: of the same user and model, else of the model, else the whole hold and no
// duration.
func (t *Trace) Sort() {
	slices.SortStableFunc(t.calls, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.at+a.took, b.at+b.took))
	})
	t.estimate()
	t.sorted = true
}

// typical holds sums over similar calls.
type typical struct{ n, held, cost, heldTokens, tokens, took int64 }

func (t *Trace) estimate() {
	byUser, byModel := map[who]*typical{}, map[uint32]*typical{}
	for i := range t.calls {
		r := &t.calls[i]
		if r.refused {
			continue
		}
		user, model := who{org: r.who.org, user: r.who.user, model: r.who.model}, r.who.model
		if byUser[user] == nil {
			byUser[user] = &typical{}
		}
		if byModel[model] == nil {
			byModel[model] = &typical{}
		}
		byUser[user].add(r)
		byModel[model].add(r)
	}
	for i := range t.calls {
		if r := &t.calls[i]; r.refused {
			known := byUser[who{org: r.who.org, user: r.who.user, model: r.who.model}]
			if known == nil {
				known = byModel[r.who.model]
			}
			known.lend(r)
		}
	}
}

func (y *typical) add(r *record) {
	y.n++
	y.held, y.cost = y.held+r.held, y.cost+r.cost
	y.heldTokens = y.heldTokens + r.heldTokens
	y.tokens = y.tokens + r.tokens
	y.took = y.took + r.took
}

// lend gives a call the average charged share of its hold, and the average duration.
func (y *typical) lend(r *record) {
	share := func(part, of, n int64) int64 {
		if of == 0 {
			return n
		}
		return int64(float64(n) * (float64(part) / float64(of)))
	}
	r.cost = r.held
	r.tokens = r.heldTokens
	r.took = 0
	r.estimated = true
	if y != nil {
		r.cost, r.tokens = share(y.cost, y.held, r.held), share(y.tokens, y.heldTokens, r.heldTokens)
		r.took = y.took / y.n
	}
}

// Policy is what decides about calls.
type Policy struct {
	Name  string // in reports
	Guard *guard.Policy
	Pools []queue.Pool
	// Workers is how many jobs of a pool run concurrently, over all workers; 0 means 64.
	Workers map[string]int
	Queue   queue.Options // burst, shares, weights and bounds
	// HoldFor is how long a non-streaming caller waits; 0 means 280 s. Streams wait 10 minutes.
	HoldFor time.Duration
}

const (
	defaultWorkers = 64
	defaultHold    = 280 * time.Second
	streamWait     = 10 * time.Minute
	deadlineSlack  = 5 * time.Second // as for the job of a connected caller
)
