package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// Refusal counts the calls of a key that were refused or delayed for one cause.
type Refusal struct {
	Org  string `json:"org" col:"org"`
	User string `json:"user" col:"user"`
	// Key is empty in counts of versions that did not tell keys apart.
	Key   string       `json:"key" col:"key"`
	Cause budget.Cause `json:"cause" col:"cause"`
	// Begin is the start of the hour with by=hour, or of the UTC day if Hour is false.
	Begin *time.Time `json:"begin_at,omitempty"`
	Hour  bool       `json:"hour,omitempty"`
	// Refused calls were answered with an error; Waited calls had to wait in the queue.
	Refused int64     `json:"refused" col:"refused"`
	Waited  int64     `json:"waited" col:"waited"`
	First   time.Time `json:"first_at" col:"first;minute"`
	Last    time.Time `json:"last_at" col:"last;minute"`
}

// RefusedCall is one call that was refused or delayed.
type RefusedCall struct {
	budget.RefusedCall
	Reason string `json:"reason"` // the cause in a sentence
}

// listRefusedCalls returns the calls of a period that were refused or delayed, newest first.
func (h *usageHandler) listRefusedCalls(c *call) (any, error) {
	n, err := c.most(50)
	if err != nil {
		return nil, err
	}
	f, orgs, err := h.refusalsIn(c)
	if err != nil {
		return nil, err
	}
	out := []RefusedCall{}
	for _, org := range orgs {
		list, err := h.opts.Budget.Refusals.Calls(c.r.Context(), org, f, n)
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			out = append(out, RefusedCall{one, one.Cause.Text()})
		}
	}
	slices.SortStableFunc(out, func(a, b RefusedCall) int { return b.At.Compare(a.At) })
	return listOf(out[:min(n, len(out))]), nil
}

// refusalsIn reads which refusals a request asks for, by default those of the last 25 hours, and in which orgs.
func (h *usageHandler) refusalsIn(c *call) (f budget.RefusalFilter, orgs []string, err error) {
	q := c.r.URL.Query()
	f = budget.RefusalFilter{User: q.Get("user"), Key: q.Get("key"), Cause: q.Get("cause")}
	kinds := budget.CauseKinds()
	known := append(kinds, "", string(budget.OtherCauses))
	if !slices.Contains(known, budget.Cause(f.Cause).Kind()) {
		return f, nil, invalid("cause", "cause must be one of these kinds, or begin with it as in limit:daily: %s",
			strings.Join(kinds, ", "))
	}
	f.From, f.To, err = c.period()
	if err != nil {
		return f, nil, err
	}
	if f.To.IsZero() {
		f.To = c.start.Add(time.Hour) // allows for clock differences
	}
	if f.From.IsZero() {
		f.From = f.To.Add(-25 * time.Hour)
	}
	if !f.From.Before(f.To) || f.To.Sub(f.From) > ledger.MostDays*24*time.Hour {
		return f, nil, invalid("from", "from and to must span at most %d days", ledger.MostDays)
	}
	f.Calls, err = h.filter(c)
	if err != nil {
		return f, nil, err
	}
	orgs, err = h.dir.wantedLedgers(c)
	return f, orgs, err
}

// refusalName is what refusals have in common that are added up.
type refusalName struct {
	org, user, key string
	cause          budget.Cause
	begin          time.Time
}

// byKey and byCause remove from a name what is not told apart.
func byKey(n *refusalName)   { n.begin = time.Time{} }
func byCause(n *refusalName) { *n = refusalName{cause: n.cause} }

// listRefusals adds up refusals in the UTC hours of a period, largest first.
func (h *usageHandler) listRefusals(c *call) (any, error) {
	by := byKey
	switch c.r.URL.Query().Get("by") {
	case "":
	case "hour":
		by = func(*refusalName) {}
	default:
		return nil, invalid("by", "by must be hour or omitted")
	}
	f, orgs, err := h.refusalsIn(c)
	if err != nil {
		return nil, err
	}
	list, err := h.refusals(c, orgs, f, by)
	return listOf(list), err
}

// refusals adds up the refusals of orgs, largest first.
func (h *usageHandler) refusals(
	c *call, orgs []string, f budget.RefusalFilter, by func(*refusalName),
) (out []Refusal, err error) {
	sums := map[refusalName]*Refusal{}
	for _, org := range orgs {
		list, err := h.opts.Budget.Refusals.List(c.r.Context(), org, f)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			at := refusalName{org, r.User, r.Key, r.Cause, r.Begin}
			by(&at)
			sum := sums[at]
			if sum == nil {
				sum = &Refusal{Org: at.org, User: at.user, Key: at.key, Cause: at.cause, First: r.First, Last: r.Last}
				sums[at] = sum
			}
			if !at.begin.IsZero() {
				sum.Begin, sum.Hour = &r.Begin, r.Hour
			}
			sum.Refused, sum.Waited = sum.Refused+r.Refused, sum.Waited+r.Waited
			sum.First = earlier(sum.First, r.First)
			if r.Last.After(sum.Last) {
				sum.Last = r.Last
			}
		}
	}
	for _, sum := range sums {
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(
			cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Org, b.Org),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Cause, b.Cause), b.First.Compare(a.First),
		)
	})
	return out, nil
}
