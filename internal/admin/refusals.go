package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Refusal counts the calls of a user that a limit refused or delayed.
type Refusal struct {
	Org  string `json:"org" col:"org"`
	User string `json:"user" col:"user"`
	// Limit is the name of the limit, or "cap:" and the name of a spend cap.
	Limit string `json:"limit" col:"limit"`
	// Begin is the start of the hour with by=hour, or of the UTC day if Hour is false.
	Begin *time.Time `json:"begin_at,omitempty"`
	Hour  bool       `json:"hour,omitempty"`
	// Refused calls were answered with an error; Waited calls had to wait in the queue.
	Refused int64     `json:"refused" col:"refused"`
	Waited  int64     `json:"waited" col:"waited"`
	First   time.Time `json:"first_at" col:"first;minute"`
	Last    time.Time `json:"last_at" col:"last;minute"`
}

// listRefusals adds up refusals in the UTC hours of a period, largest first.
func (h *usageHandler) listRefusals(c *call) (any, error) {
	q := c.r.URL.Query()
	if by := q.Get("by"); by != "" && by != "hour" {
		return nil, invalid("by", "by must be hour or omitted")
	}
	from, to, err := c.period()
	if err != nil {
		return nil, err
	}
	if to.IsZero() {
		to = c.start.Add(time.Hour) // allows for clock differences
	}
	if from.IsZero() {
		from = to.Add(-25 * time.Hour)
	}
	if !from.Before(to) || to.Sub(from) > ledger.MostDays*24*time.Hour {
		return nil, invalid("from", "from and to must span at most %d days", ledger.MostDays)
	}
	orgs, err := h.dir.wantedLedgers(c)
	if err != nil {
		return nil, err
	}
	out := []Refusal{}
	for _, org := range orgs {
		list, err := h.refusalsOf(c, org, refusalFilter{q.Get("user"), q.Get("by") == "hour", from, to})
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(
			cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Org, b.Org),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Limit, b.Limit), b.First.Compare(a.First),
		)
	})
	return listOf(out), nil
}

// refusalFilter selects which refusals to add up.
type refusalFilter struct {
	user     string // empty: all users'
	byHour   bool
	from, to time.Time
}

// refusalsOf returns the refusals of one org.
func (h *usageHandler) refusalsOf(c *call, org string, f refusalFilter) ([]Refusal, error) {
	list, err := h.opts.Budget.Refusals.List(c.r.Context(), org, f.from, f.to)
	if err != nil {
		return nil, err
	}
	type name struct {
		user, limit string
		begin       time.Time
	}
	sums := map[name]*Refusal{}
	for _, r := range list {
		if f.user != "" && r.User != f.user {
			continue
		}
		at := name{user: r.User, limit: r.Limit}
		if f.byHour {
			at.begin = r.Begin
		}
		sum := sums[at]
		if sum == nil {
			sum = &Refusal{Org: org, User: r.User, Limit: r.Limit, First: r.First, Last: r.Last}
			if f.byHour {
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
