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
	Org string `json:"org"`
	budget.RefusedCall
	Reason string `json:"reason"` // the cause in a sentence
}

// listRefusedCalls returns the calls of a period that were refused or delayed, newest first.
func (h *usageHandler) listRefusedCalls(c *call) (any, error) {
	n, err := c.most(50)
	if err != nil {
		return nil, err
	}
	f, err := c.refusalsIn()
	if err != nil {
		return nil, err
	}
	orgs, err := h.dir.wantedLedgers(c)
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
			out = append(out, RefusedCall{org, one, one.Cause.Text()})
		}
	}
	slices.SortStableFunc(out, func(a, b RefusedCall) int { return b.At.Compare(a.At) })
	return listOf(out[:min(n, len(out))]), nil
}

// refusalsIn reads which refusals a request asks for, by default those of the last 25 hours.
func (c *call) refusalsIn() (f budget.RefusalFilter, err error) {
	q := c.r.URL.Query()
	f = budget.RefusalFilter{User: q.Get("user"), Key: q.Get("key"), Cause: q.Get("cause")}
	if f.Cause != "" && f.Cause != string(budget.OtherCauses) {
		kinds := budget.CauseKinds()
		if !slices.Contains(kinds, budget.Cause(f.Cause).Kind()) {
			return f, invalid("cause", "cause must be one of these kinds, or begin with it as in limit:daily: %s",
				strings.Join(kinds, ", "))
		}
	}
	f.From, f.To, err = c.period()
	if err != nil {
		return f, err
	}
	if f.To.IsZero() {
		f.To = c.start.Add(time.Hour) // allows for clock differences
	}
	if f.From.IsZero() {
		f.From = f.To.Add(-25 * time.Hour)
	}
	if !f.From.Before(f.To) || f.To.Sub(f.From) > ledger.MostDays*24*time.Hour {
		return f, invalid("from", "from and to must span at most %d days", ledger.MostDays)
	}
	return f, nil
}

// listRefusals adds up refusals in the UTC hours of a period, largest first.
func (h *usageHandler) listRefusals(c *call) (any, error) {
	q := c.r.URL.Query()
	if by := q.Get("by"); by != "" && by != "hour" {
		return nil, invalid("by", "by must be hour or omitted")
	}
	f, err := c.refusalsIn()
	if err != nil {
		return nil, err
	}
	orgs, err := h.dir.wantedLedgers(c)
	if err != nil {
		return nil, err
	}
	out := []Refusal{}
	for _, org := range orgs {
		list, err := h.refusalsOf(c, org, f, q.Get("by") == "hour")
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(
			cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Org, b.Org),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Cause, b.Cause), b.First.Compare(a.First),
		)
	})
	return listOf(out), nil
}

// refusalsOf adds up the refusals of one org, by the hour if byHour is set.
func (h *usageHandler) refusalsOf(c *call, org string, f budget.RefusalFilter, byHour bool) ([]Refusal, error) {
	list, err := h.opts.Budget.Refusals.List(c.r.Context(), org, f.From, f.To)
	if err != nil {
		return nil, err
	}
	type name struct {
		user, key string
		cause     budget.Cause
		begin     time.Time
	}
	sums := map[name]*Refusal{}
	for _, r := range list {
		if !f.Matches(r.User, r.Key, r.Cause) {
			continue
		}
		at := name{user: r.User, key: r.Key, cause: r.Cause}
		if byHour {
			at.begin = r.Begin
		}
		sum := sums[at]
		if sum == nil {
			sum = &Refusal{Org: org, User: r.User, Key: r.Key, Cause: r.Cause, First: r.First, Last: r.Last}
			if byHour {
				sum.Begin, sum.Hour = &r.Begin, r.Hour
			}
			sums[at] = sum
		}
		sum.Refused, sum.Waited = sum.Refused+r.Refused, sum.Waited+r.Waited
		if r.First.Before(sum.First) {
			sum.First = r.First
		}
		if r.Last.After(sum.Last) {
			sum.Last = r.Last
		}
	}
	var out []Refusal
	for _, sum := range sums {
		out = append(out, *sum)
	}
	return out, nil
}
