package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// comesOrEnds is the arrival or the end of a call.
type comesOrEnds struct {
	at    int64
	order int32 // of simultaneous steps: ends come first
	call  int32
	ends  bool
}

// steps returns the arrivals and ends of the calls in order, if no call waits.
func (t *Trace) steps() []comesOrEnds {
	out := make([]comesOrEnds, 0, 2*len(t.calls))
	for i := range t.calls {
		r, n := &t.calls[i], int32(i)
		end := comesOrEnds{r.at + r.took, -1, n, true}
		if r.took == 0 {
			end.order = 2*n + 1 // after its own arrival
		}
		out = append(out, comesOrEnds{r.at, 2 * n, n, false}, end)
	}
	slices.SortFunc(out, func(a, b comesOrEnds) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order), cmp.Compare(a.call, b.call))
	})
	return out
}

// peaks counts all calls under a limit that never binds. It returns, sorted, the highest level
// reached in each period of length stretch that has calls. The last value is the smallest
// amount that would have delayed no call.
func (t *Trace) peaks(steps []comesOrEnds, metric budget.Metric, shape budget.Shape,
	stretch time.Duration,
) ([]int64, error) {
	shape.Amount = budget.MaxAmount
	v := budget.NewVirtual(budget.Options{Lease: lease})
	on, err := v.Bind([]budget.Limit{{ID: "peaks", Subject: budget.Org, Metric: metric, Shape: shape}},
		ledger.Call{Org: "peaks"})
	if err != nil {
		return nil, err
	}
	open := make(map[int32]*budget.VirtualHold)
	var out []int64
	current := int64(-1)
	for _, s := range steps {
		r := &t.calls[s.call]
		if s.ends {
			v.Settle(s.at, open[s.call], budget.Amounts{Cost: pricing.Nano(r.cost), Tokens: r.tokens})
			delete(open, s.call)
			continue
		}
		most := budget.Amounts{Cost: pricing.Nano(r.held), Tokens: r.heldTokens}
		if n := s.at / stretch.Microseconds(); n != current {
			current = n
			out = append(out, 0)
		}
		level := v.Peek(s.at, on)[0].Used + r.amount(metric)
		out[len(out)-1] = max(out[len(out)-1], level)
		hold, refusal := v.Hold(s.at, on, most, most)
		if refusal != nil {
			return nil, refusal
		}
		open[s.call] = hold
	}
	slices.Sort(out)
	return out, nil
}

// amount returns what a call holds, in the unit of a metric.
func (r *record) amount(m budget.Metric) int64 {
	switch m {
	case budget.Tokens:
		return r.heldTokens
	case budget.Requests:
		return 1
	default:
		return r.held
	}
}

// charged returns what a call is charged in the end.
func (r *record) charged(m budget.Metric) int64 {
	switch m {
	case budget.Tokens:
		return r.tokens
	case budget.Requests:
		return 1
	default:
		return r.cost
	}
}

// rank returns the percentile of sorted values: the smallest value that is not exceeded by this
// percentage of them.
func rank(sorted []int64, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*percent+99)/100-1, 0)]
}

// only returns the calls of an org, restricted to the users for which of returns true.
func (t *Trace) only(org uint32, of func(user uint32) bool) *Trace {
	out := &Trace{names: t.names, ids: t.ids, sorted: true, Skipped: map[string]int{}}
	for i := range t.calls {
		if w := t.calls[i].who; w.org == org && of(w.user) {
			out.calls = append(out.calls, t.calls[i])
		}
	}
	return out
}
