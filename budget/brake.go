package budget

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// Action is what a brake does with the calls of a subject that it fired for.
type Action string

// The actions of brakes.
const (
	BrakeStop   Action = "stop"   // refuse them
	BrakeAsk    Action = "ask"    // refuse them until somebody approves
	BrakeSlow   Action = "slow"   // give them low priority
	BrakeShadow Action = "shadow" // only report them
)

// Refuses reports whether the action keeps calls from running.
func (a Action) Refuses() bool { return a == BrakeStop || a == BrakeAsk }

// BrakeRule is what a brake fires at: exactly one of Factor, Repeats and Calls is set.
type BrakeRule struct {
	// Window is the sliding window in which spend, equal requests or calls are counted.
	Window time.Duration
	// Factor is how many thousandths of its usual spend a subject may spend in a window. It may
	// spend Floor in any case.
	Factor int64
	Floor  pricing.Nano
	// Repeats is how many equal requests a subject may send in a window, and Calls how many calls
	// it may make.
	Repeats, Calls int64
}

// Brake stops, slows or reports the calls of one subject, such as one agent run, whose calls do what
// its rule describes. NewBrake makes it. It is immutable.
type Brake struct {
	ID      string
	Subject Subject // not Org
	// By is the Subject without the user by whom calls are told apart as well; empty: Subject. What is
	// recorded for it applies to all users.
	By Subject
	// Peers is whose subjects the usual spend is that of: User, or Org, also if it is empty.
	Peers             Subject
	Models, Endpoints []string
	Action            Action
	For               time.Duration // how long the action lasts; 0: until it is released
	Rule              BrakeRule

	counters []Limit
}

// pastWindows is the number of earlier windows whose mean is a subject's own usual spend.
const pastWindows = 24

// counterPrefix precedes the ids of counters, so that they differ from those of limits: names in the
// configuration have no dot.
const counterPrefix = "brake."

// counterOf marks a limit as a counter of a brake.
type counterOf struct {
	only    bool    // it refuses nothing and is not shown
	repeats bool    // it counts each request of its subject on its own
	of      Subject // metric active: whose different ids it counts
}

// NewBrake returns the brake with its counters, or an error that names what is wrong.
func NewBrake(b Brake) (*Brake, error) {
	counter := func(subject Subject, metric Metric, window time.Duration) Limit {
		return Limit{
			ID: counterPrefix + b.ID, Subject: subject, Models: b.Models, Endpoints: b.Endpoints, Metric: metric, Mode: Shadow,
			Shape: Shape{Kind: Window, Amount: MaxAmount, Window: window}, counts: counterOf{only: true},
		}
	}
	r := &b.Rule
	switch {
	case r.Calls > 0:
		b.counters = []Limit{counter(b.Subject, Requests, r.Window)}
	case r.Repeats > 0:
		b.counters = []Limit{counter(b.Subject, Requests, r.Window)}
		b.counters[0].counts.repeats = true
	case r.Factor > 0:
		peers := cmp.Or(b.Peers, Org)
		seen := counter(peers, active, r.Window)
		seen.Shape.Kind, seen.counts.of = distinct, b.Subject
		b.counters = []Limit{
			counter(b.Subject, Cost, r.Window), counter(b.Subject, Cost, (pastWindows+1)*r.Window),
			counter(peers, Cost, r.Window), seen,
		}
	default:
		return nil, fmt.Errorf("budget: brake %q has no rule", b.ID)
	}
	if b.Subject == Org {
		return nil, fmt.Errorf("budget: brake %q is for the org; a brake is for runs, users, keys, addresses or labels", b.ID)
	}
	for _, l := range b.counters {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	return &b, nil
}

// Counters returns what a hold has to count for the brake. They must not be modified.
func (b *Brake) Counters() []Limit { return b.counters }

// Value returns the subject's id in a call. It is false if the brake does not count the call: a part
// of the subject is missing or is not known individually, so that unrelated calls would count together.
func (b *Brake) Value(c ledger.Call) (string, bool) {
	value := b.Subject.ID(c)
	known := b.Subject.named(&c) && !slices.Contains(strings.Split(value, subjectSep), ledger.OtherLabel)
	return value, known && (b.Rule.Repeats == 0 || c.Request != "")
}

// BrakeEvidence is what a brake saw when it fired. Money is in nano-USD.
type BrakeEvidence struct {
	WindowMS int64 `json:"window_ms"`
	// Spend is what the subject was charged in the window, Usual what it usually is, and Threshold what
	// it may be.
	Spend     pricing.Nano `json:"spend_nano_usd,omitempty"`
	Usual     pricing.Nano `json:"usual_nano_usd,omitempty"`
	Threshold pricing.Nano `json:"threshold_nano_usd,omitempty"`
	// Factor is in thousandths.
	Factor int64 `json:"factor_thousandths,omitempty"`
	// Repeats is the number of equal requests in the window, Calls that of all calls, both as charged;
	// MoreThan is how many are allowed.
	Repeats  int64 `json:"repeats,omitempty"`
	Calls    int64 `json:"calls,omitempty"`
	MoreThan int64 `json:"more_than,omitempty"`
	// FirstCall and LastCall are the ids of the first and the last call that were counted. If the ledger is too
	// long to find the last quickly, it is the call at which the brake fired.
	FirstCall string `json:"first_call,omitempty"`
	LastCall  string `json:"last_call,omitempty"`
}

// ParseBrakeEvidence reads evidence from its JSON form.
func ParseBrakeEvidence(text []byte) (e BrakeEvidence, err error) { return e, json.Unmarshal(text, &e) }

// Judge judges a call by the states of the brake's counters just after its hold. The brake fires if the
// calls that were charged leave no room for it. If only open calls do, which may still be voided, over is
// true and fires is false: the call is one too many now, and the subject stays as it is.
//
// Spend is what was charged, without what open calls hold. A subject's usual spend per window is the
// larger of two means: its own over the 24 windows before this one, and that of its other peers with a
// call in this window. Both round down.
func (b *Brake) Judge(counters []Status) (e BrakeEvidence, fires, over bool) {
	e.WindowMS = b.Rule.Window.Milliseconds()
	if len(counters) != len(b.counters) {
		return e, false, false
	}
	charged := func(i int) int64 { return counters[i].Used - counters[i].Held }
	switch r := &b.Rule; {
	case r.Calls > 0:
		e.Calls, e.MoreThan = charged(0), r.Calls
		return e, e.Calls >= r.Calls, counters[0].Used > r.Calls
	case r.Repeats > 0:
		e.Repeats, e.MoreThan = charged(0), r.Repeats
		return e, e.Repeats >= r.Repeats, counters[0].Used > r.Repeats
	default:
		spend, others := charged(0), counters[3].Used-1
		usual := max(charged(1)-spend, 0) / pastWindows
		if others > 0 {
			usual = max(usual, (charged(2)-spend)/others)
		}
		e.Spend, e.Usual, e.Factor = pricing.Nano(spend), pricing.Nano(usual), r.Factor
		e.Threshold = max(pricing.Nano(usual/1000*r.Factor+usual%1000*r.Factor/1000), r.Floor)
		over = e.Spend > e.Threshold
		return e, over, over
	}
}

// Text describes in a phrase what the brake saw, such as "20 equal requests in 5m, more than 20 with the
// next". The usual spend is left out for callers, who would learn what others spend.
func (e *BrakeEvidence) Text(operator bool) string {
	window := (time.Duration(e.WindowMS) * time.Millisecond).String()
	window = strings.Replace(strings.Replace(window, "m0s", "m", 1), "h0m", "h", 1)
	next := ""
	if e.Calls+e.Repeats <= e.MoreThan {
		next = " with the next"
	}
	switch {
	case e.Calls > 0:
		return fmt.Sprintf("%d calls in %s, more than %d%s", e.Calls, window, e.MoreThan, next)
	case e.Repeats > 0:
		return fmt.Sprintf("%d equal requests in %s, more than %d%s", e.Repeats, window, e.MoreThan, next)
	case operator:
		return fmt.Sprintf("%s spent in %s, more than %s; usual is %s", e.Spend, window, e.Threshold, e.Usual)
	default:
		return fmt.Sprintf("%s spent in %s, far more than usual", e.Spend, window)
	}
}

// counter reports whether the state is one of a brake.
func (st *state) counter() bool { return strings.HasPrefix(st.Key, "l:"+counterPrefix) }

// takes returns what a call with these amounts adds to the limit.
func (l *Limit) takes(c *ledger.Call, a Amounts) int64 {
	if l.Metric == active {
		h := fnv.New64a()
		_, _ = h.Write([]byte(l.counts.of.ID(*c)))
		return int64(h.Sum64()>>13) | 1 // 51 bits, never 0
	}
	return l.Metric.amountOf(a)
}

// told is how many limits are shown. Counters come last.
func told(limits []Limit) int {
	for i := range limits {
		if limits[i].counts.only {
			return i
		}
	}
	return len(limits)
}

// tell sets the statuses of the hold's limits.
func (h *Hold) tell(statuses []Status) {
	n := min(told(h.limits), len(statuses))
	h.Statuses, h.Counters = statuses[:n:n], statuses[n:]
}

// activeTwin is lua/shape_active.lua: subjects by their last call.
type activeTwin struct {
	width, now int64
	lead       int64 // over the clock
	last       map[int64]int64
}

// clock returns the twin's own time and its lead over the clock.
func (a *activeTwin) clock(now int64) (own, lead int64) {
	last := int64(0)
	for _, at := range a.last {
		last = max(last, at)
	}
	lead = a.lead
	if last-now-lead > backMicros {
		lead = last - now
	}
	return now + lead, lead
}

func (a *activeTwin) at(now int64) (used, held int64) {
	own, _ := a.clock(now)
	for _, at := range a.last {
		if at > own-a.width {
			used++
		}
	}
	return used, 0
}

func (a *activeTwin) late(now int64) bool {
	_, lead := a.clock(now)
	used, _ := a.at(now)
	return used > 0 && lead != a.lead
}

func (*activeTwin) look(_, _ int64) (resets, frees int64) { return 0, 0 }

func (a *activeTwin) open(now int64) { a.now, a.lead = a.clock(now) }

func (a *activeTwin) charge(_ *VirtualHold, n int64, _ bool) place {
	for member, at := range a.last {
		if at <= a.now-a.width {
			delete(a.last, member)
		}
	}
	a.last[n] = a.now
	return place{}
}

func (*activeTwin) merges(place) bool { return false }

func (*activeTwin) change(*VirtualHold, place, int64, int64, bool) int64 { return 0 }

func (*activeTwin) close() {}
