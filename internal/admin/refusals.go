package admin

import (
	"cmp"
	"slices"
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
	At time.Time `json:"at" col:"at;second"`
	// ID is the id that the caller got, Job the id of the call's job or batch, if it has one.
	ID    string       `json:"id" col:"call"`
	Job   string       `json:"job,omitempty"`
	Org   string       `json:"org" col:"org"`
	User  string       `json:"user" col:"user"`
	Key   string       `json:"key" col:"key"`
	Cause budget.Cause `json:"cause" col:"cause"`
	// Reason says the cause in a sentence.
	Reason string `json:"reason"`
	// Waited means that the call had to wait and was not refused. Status is the answer's, 0 if it waited.
	Waited   bool   `json:"waited"`
	Status   int    `json:"status,omitempty" col:"status"`
	Model    string `json:"model,omitempty" col:"model"`
	Endpoint string `json:"endpoint,omitempty"`
	Run      string `json:"run,omitempty"`
	// Needed and Left are what the call needed and what the limit had left, in nano-USD, tokens or calls by Metric.
	Metric budget.Metric `json:"metric,omitempty"`
	Needed int64         `json:"needed,omitempty"`
	Left   int64         `json:"left,omitempty"`
	// RunsIn is in how many seconds, counted from At, it could run; null if that is not known.
	RunsIn *int64 `json:"runs_in_seconds"`
}

// listRefusedCalls returns the calls of a period that were refused or delayed, newest first.
func (h *usageHandler) listRefusedCalls(c *call) (any, error) {
	n, err := c.most(50)
	if err != nil {
		return nil, err
	}
	from, to, err := c.refusalPeriod()
	if err != nil {
		return nil, err
	}
	orgs, err := h.dir.wantedLedgers(c)
	if err != nil {
		return nil, err
	}
	out := []RefusedCall{}
	for _, org := range orgs {
		list, err := h.opts.Budget.Refusals.Calls(c.r.Context(), org, refusalsIn(c), from, to, n)
		if err != nil {
			return nil, err
		}
		for i := range list {
			out = append(out, refusedCallOf(org, &list[i]))
		}
	}
	slices.SortStableFunc(out, func(a, b RefusedCall) int { return b.At.Compare(a.At) })
	return listOf(out[:min(n, len(out))]), nil
}

func refusedCallOf(org string, r *budget.RefusedCall) RefusedCall {
	out := RefusedCall{
		At: r.At, ID: r.ID, Job: r.Job, Org: org, User: r.User, Key: r.Key, Cause: r.Cause, Reason: r.Cause.Text(),
		Waited: r.Waited, Status: r.Status, Model: r.Model, Endpoint: r.Endpoint, Run: r.Run, Metric: r.Metric,
		Needed: r.Needed, Left: r.Left,
	}
	if r.Wait > 0 {
		wait := int64((r.Wait + time.Second - 1) / time.Second)
		out.RunsIn = &wait
	}
	return out
}

// refusalsIn reads which refusals a request asks for.
func refusalsIn(c *call) budget.RefusalFilter {
	q := c.r.URL.Query()
	return budget.RefusalFilter{User: q.Get("user"), Key: q.Get("key"), Cause: q.Get("cause")}
}

// refusalPeriod reads the period of a request, which is the last 25 hours by default.
func (c *call) refusalPeriod() (from, to time.Time, err error) {
	from, to, err = c.period()
	if err != nil {
		return from, to, err
	}
	if to.IsZero() {
		to = c.start.Add(time.Hour) // allows for clock differences
	}
	if from.IsZero() {
		from = to.Add(-25 * time.Hour)
	}
	if !from.Before(to) || to.Sub(from) > ledger.MostDays*24*time.Hour {
		return from, to, invalid("from", "from and to must span at most %d days", ledger.MostDays)
	}
	return from, to, nil
}

// listRefusals adds up refusals in the UTC hours of a period, largest first.
func (h *usageHandler) listRefusals(c *call) (any, error) {
	q := c.r.URL.Query()
	if by := q.Get("by"); by != "" && by != "hour" {
		return nil, invalid("by", "by must be hour or omitted")
	}
	from, to, err := c.refusalPeriod()
	if err != nil {
		return nil, err
	}
	orgs, err := h.dir.wantedLedgers(c)
	if err != nil {
		return nil, err
	}
	out := []Refusal{}
	for _, org := range orgs {
		list, err := h.refusalsOf(c, org, refusalQuery{refusalsIn(c), q.Get("by") == "hour", from, to})
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

// refusalQuery selects which refusals to add up.
type refusalQuery struct {
	budget.RefusalFilter
	byHour   bool
	from, to time.Time
}

// refusalsOf returns the refusals of one org.
func (h *usageHandler) refusalsOf(c *call, org string, f refusalQuery) ([]Refusal, error) {
	list, err := h.opts.Budget.Refusals.List(c.r.Context(), org, f.from, f.to)
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
		if f.byHour {
			at.begin = r.Begin
		}
		sum := sums[at]
		if sum == nil {
			sum = &Refusal{Org: org, User: r.User, Key: r.Key, Cause: r.Cause, First: r.First, Last: r.Last}
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
