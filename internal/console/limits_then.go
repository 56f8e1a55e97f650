package console

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// What is read to compute the past state of a call's limits: at most this many ledger entries
// within tailSpan, and daily sums of this many days before that.
const (
	wholeDay = 24 * time.Hour
	tailSpan = wholeDay
	thenRead = 20_000
	thenDays = 31
)

// limitsThen adds up what the windows of the call's limits contained when it was held. A window begins and ends at any
// microsecond and leaves out the call itself, but a ledger.Query answers for whole hours or steps. So only whole days
// are a query; the ends of a window are added up from entries, each with the sums that the query adds for it.
func (c *callPage) limitsThen(ctx context.Context, view *callView) error {
	policy := c.o.Policy().Orgs[view.Org]
	if policy == nil {
		return nil
	}
	for _, l := range policy.LimitsFor(view.User, view.Key) {
		if !l.Counts(view.Call) {
			continue
		}
		one := callLimit{Limit: l, Held: slices.ContainsFunc(view.Shadow, func(s ledger.Shadowed) bool {
			return s.Cap == "" && s.Limit == l.ID
		})}
		one.begin(view.Began)
		view.Limits = append(view.Limits, one)
	}
	if err := c.countTails(ctx, view); err != nil {
		return err
	}
	for i := range view.Limits {
		if l := &view.Limits[i]; l.Known && l.start.Before(l.tail) {
			if err := c.countOlder(ctx, view, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin sets the start of the limit's window for a call held at a time, and whether the ledger
// and the daily sums are enough to compute its contents.
func (l *callLimit) begin(held time.Time) {
	if held.IsZero() || l.Metric == budget.Concurrency || len(l.Models)+len(l.Endpoints) > 0 {
		return
	}
	l.start, l.Known = l.Shape.Start(held)
	if !l.Known {
		return
	}
	l.tail = l.start
	if held.Sub(l.start) > tailSpan {
		l.tail = held.UTC().Truncate(wholeDay)
		l.Known = l.Subject != budget.IP && held.Sub(l.start) <= thenDays*wholeDay
	}
}

// countTails adds up the entries before the call, newest first. A limit whose window is not
// read completely stays unknown.
func (c *callPage) countTails(ctx context.Context, view *callView) error {
	var from time.Time
	for _, l := range view.Limits {
		if l.Known && (from.IsZero() || l.tail.Before(from)) {
			from = l.tail
		}
	}
	if from.IsZero() {
		return nil
	}
	books := c.o.Budget.Ledger
	since, err := ledger.Newest{
		Books: books, Org: view.Org, Span: ledger.Span{From: from, To: view.Began}, Most: thenRead,
	}.Each(ctx, func(e ledger.Entry) error {
		for i := range view.Limits {
			if l := &view.Limits[i]; !e.At.Before(l.tail) {
				l.count(&e, view)
			}
		}
		return nil
	})
	for i := range view.Limits {
		l := &view.Limits[i]
		l.Known = l.Known && (since.IsZero() || !l.tail.Before(since))
	}
	return err
}

// countOlder adds the whole days of the window before its tail, and the entries of the partial
// day at its start.
func (c *callPage) countOlder(ctx context.Context, view *callView, l *callLimit) error {
	first := l.start.UTC().Truncate(wholeDay)
	if first.Before(l.start) {
		first = first.Add(wholeDay)
	}
	report, err := ledger.Read(ctx, c.o.Budget.Ledger, ledger.Query{
		Orgs: []string{view.Org}, From: first, To: l.tail.UTC().Truncate(wholeDay), By: byDay,
	})
	if err != nil {
		return err
	}
	for _, row := range report.Rows {
		who := ledger.Call{User: row.Values[0], Key: row.Values[1]}
		if subjectOf(l.Subject, who) == subjectOf(l.Subject, view.Call) {
			l.Before += l.Metric.Spent(row.Sums)
		}
	}
	books := c.o.Budget.Ledger
	since, err := ledger.Newest{
		Books: books, Org: view.Org, Span: ledger.Span{From: l.start, To: first}, Most: thenRead,
	}.Each(ctx, func(e ledger.Entry) error {
		l.count(&e, view)
		return nil
	})
	l.Known = l.Known && since.IsZero()
	return err
}

func (l *callLimit) count(e *ledger.Entry, view *callView) {
	if !l.Known || e.ID == view.ID || e.At.After(view.Began) ||
		subjectOf(l.Subject, e.Call) != subjectOf(l.Subject, view.Call) {
		return
	}
	l.Before += l.Metric.Spent(e.Sums())
}

// subjectOf returns the call's id for a limit's subject.
func subjectOf(s budget.Subject, c ledger.Call) string {
	switch s {
	case budget.User:
		return c.User
	case budget.Key:
		return c.Key
	case budget.IP:
		return c.IP
	case budget.UserGroup:
		return c.Labels.Get(ledger.GroupLabel)
	}
	return ""
}
