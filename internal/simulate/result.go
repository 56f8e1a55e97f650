package simulate

import (
	"math"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// Outcome is what would have happened to a call.
type Outcome uint8

// The outcomes. A call that gave up waited first: as long as its caller would, or until waiting
// became pointless.
const (
	Skipped Outcome = iota // not decided: the policy does not know its org or model
	AtOnce                 // ran immediately
	Waited                 // ran later
	GaveUp                 // waited and did not run
	Refused                // refused on arrival
)

var outcomeNames = [...]string{"skipped", "immediate", "waited", "gave up", "refused"}

// String returns the name used in reports.
func (o Outcome) String() string { return outcomeNames[o] }

// number of slots of a timeline.
const timeSlots = 240

// Result is what happened to every call of a trace; use [Result.Report].
type Result struct {
	trace  *Trace
	policy string

	outcomes []Outcome
	waited   []int64 // us, for calls that waited or gave up
	reasons  []uint16
	why      []string // reasons by number; 0: none
	whyIDs   map[string]uint16

	shadow  map[shadowKey]*shadowed
	firings []Firing

	begins, width int64 // of the timeline, us
	slots         []slot
	depth         int
	deepSlot      int64                           // last slot whose depth is recorded
	fill          map[fillKey]*[timeSlots]float64 // nil: not requested
}

// slot is a period of the timeline.
type slot struct {
	came, refused, deepest int
	spend                  int64
}

type shadowKey struct {
	limit     string
	org, user uint32
}

// shadowed is what a limit in shadow mode would have done to a user.
type shadowed struct {
	waits []int64 // ms
	never int
}

func newResult(t *Trace, p Policy) *Result {
	n := len(t.calls)
	r := &Result{
		trace: t, policy: p.Name, outcomes: make([]Outcome, n), waited: make([]int64, n), reasons: make([]uint16, n),
		why: []string{""}, whyIDs: map[string]uint16{"": 0}, shadow: map[shadowKey]*shadowed{}, width: 1,
	}
	if n > 0 {
		from, to := t.Span()
		r.begins = from.UnixMicro()
		r.width = max((to.UnixMicro()-r.begins)/timeSlots+1, 1)
		r.slots = make([]slot, timeSlots)
		for i := range t.calls {
			r.slot(t.calls[i].at).came++
		}
	}
	return r
}

func (r *Result) slot(at int64) *slot {
	return &r.slots[min(max((at-r.begins)/r.width, 0), timeSlots-1)]
}

// reason returns the number of a reason; if there are too many, the rest are "others".
func (r *Result) reason(why string) uint16 {
	if id, ok := r.whyIDs[why]; ok {
		return id
	}
	if len(r.why) == math.MaxUint16 {
		return r.reason("others")
	}
	id := uint16(len(r.why))
	r.why, r.whyIDs[why] = append(r.why, why), id
	return id
}

func (r *Result) whyOf(i int32) string { return r.why[r.reasons[i]] }

func (r *Result) skip(i int32, why string) { r.reasons[i] = r.reason(why) }

func (r *Result) refuse(i int32, why string) {
	r.outcomes[i], r.reasons[i] = Refused, r.reason(why)
	r.slot(r.trace.calls[i].at).refused++
}

// waits records the first thing that made a call wait.
func (r *Result) waits(i int32, why string) {
	if r.reasons[i] == 0 {
		r.reasons[i] = r.reason(why)
	}
}

func (r *Result) queued(i int32, now int64) {
	r.outcomes[i] = Waited
	r.deepen(now, 1)
}

// deepen changes the number of waiting calls, and records the maximum in the slots since the
// last change.
func (r *Result) deepen(now int64, by int) {
	last := min(max((now-r.begins)/r.width, 0), timeSlots-1)
	for ; r.deepSlot < last; r.deepSlot++ {
		s := &r.slots[r.deepSlot+1]
		s.deepest = max(s.deepest, r.depth)
	}
	r.depth += by
	r.slots[last].deepest = max(r.slots[last].deepest, r.depth)
}

func (r *Result) dequeued(i int32, now int64) {
	r.deepen(now, -1)
	r.waited[i] = now - r.trace.calls[i].at
}

func (r *Result) giveUp(i int32, now int64, why string) {
	r.dequeued(i, now)
	r.outcomes[i], r.reasons[i] = GaveUp, r.reason(why)
	r.slot(now).refused++
}

func (r *Result) start(i int32, now int64, run *running) {
	if r.outcomes[i] == Waited {
		r.dequeued(i, now)
	} else {
		r.outcomes[i] = AtOnce
	}
	c := &r.trace.calls[i]
	r.slot(now + c.took).spend += c.cost
	scope := ""
	for k, part := range run.held {
		if k > 0 {
			scope = "cap of " + run.on.on.Of[k-1].String() + ": "
		}
		for _, st := range part.Statuses {
			r.inShadow(c, scope, st)
		}
	}
}

func (r *Result) inShadow(c *record, scope string, st budget.Status) {
	if !st.Refused || st.Mode != budget.Shadow {
		return
	}
	key := shadowKey{scope + st.LimitID, c.who.org, c.who.user}
	s := r.shadow[key]
	if s == nil {
		s = &shadowed{}
		r.shadow[key] = s
	}
	if st.Never {
		s.never++
	} else {
		s.waits = append(s.waits, st.Wait.Milliseconds())
	}
}

// Decision is what would have happened to one call.
type Decision struct {
	Call    Call
	Outcome Outcome
	Wait    time.Duration // before it ran or gave up
	Why     string        // what refused or delayed it, or why it was skipped
}

// Each calls fn for every call, in order of arrival, until it returns false.
func (r *Result) Each(fn func(Decision) bool) {
	for i := range r.trace.calls {
		if !fn(Decision{r.trace.call(i), r.outcomes[i], time.Duration(r.waited[i]) * time.Microsecond, r.why[r.reasons[i]]}) {
			return
		}
	}
}

func (t *Trace) call(i int) Call {
	r, name := &t.calls[i], func(id uint32) string { return t.names[id] }
	return Call{
		Org: name(r.who.org), User: name(r.who.user), Key: name(r.who.key), IP: name(r.who.ip),
		Labels: ledger.Labels(name(r.who.labels)), Request: name(r.who.request), Run: ledger.RunPath(name(r.who.run)),
		Model: name(r.who.model), Provider: name(r.who.provider), Endpoint: name(r.who.endpoint),
		At: time.UnixMicro(r.at), Took: time.Duration(r.took) * time.Microsecond, Held: pricing.Nano(r.held),
		Cost:       pricing.Nano(r.cost),
		HeldTokens: r.heldTokens, Tokens: r.tokens, QuotaTokens: r.quota, Stream: r.stream, Refused: r.refused,
		Class: [...]string{"", "", "async", "batch"}[r.class],
	}
}
