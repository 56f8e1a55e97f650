package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// CallQuery says which ledger entries to find.
type CallQuery struct {
	Org      string
	Filter   Filter
	From, To time.Time // zero: no bound
	// ByCost sorts by cost, highest first, instead of newest first.
	ByCost bool
	Limit  int    // of entries, at least 1
	Before string // LedgerID to continue before; only newest first
}

// CallPage is a part of the entries that were found.
type CallPage struct {
	Entries []Entry
	// Next is where to continue, as CallQuery.Before; empty if nothing is left.
	Next string
	// Since is set if entries before it were not searched, because there are too many.
	Since time.Time
}

// Search returns entries that fit the filter. It reads at most MaxScan entries, and then returns
// what it has found, with a position to continue from.
func Search(ctx context.Context, books *Ledger, q CallQuery) (*CallPage, error) {
	if made, ok := wire.CallTime(q.Filter.ID()); ok { // only these entries can have the id
		first, last := EntriesAround(made)
		if first.After(q.From) {
			q.From = first
		}
		if q.To.IsZero() || q.To.After(last) {
			q.To = last
		}
	}
	var page CallPage
	var last *Entry
	read := 0
	recent := func(fn func(Entry) error) error {
		if q.Before == "" {
			return books.Recent(ctx, q.Org, q.From, q.To, fn)
		}
		return books.RecentBefore(ctx, q.Org, q.Before, q.From, fn)
	}
	err := recent(func(e Entry) error {
		if !q.ByCost && len(page.Entries) == q.Limit {
			page.Next = page.Entries[q.Limit-1].LedgerID
			return ErrEnough
		}
		if read == MaxScan {
			page.Next, page.Since = last.LedgerID, last.At
			return ErrEnough
		}
		read++
		last = &e
		if q.Filter.Fits(&e) {
			page.Entries = append(page.Entries, e)
			if q.ByCost && len(page.Entries) >= 2*q.Limit {
				page.cutByCost(q.Limit)
			}
		}
		return nil
	})
	if q.ByCost {
		page.cutByCost(q.Limit)
		page.Next = ""
	}
	return &page, err
}

func (p *CallPage) cutByCost(n int) {
	slices.SortStableFunc(p.Entries, func(a, b Entry) int { return cmp.Compare(b.Cost, a.Cost) })
	p.Entries = p.Entries[:min(n, len(p.Entries))]
}

// ReadEntries calls fn with an org's ledger entries in [from, to), oldest first, until fn returns ErrEnough
// or another error; a zero time means no bound.
type ReadEntries func(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error

// clockSkew is the assumed maximum skew between the clocks of proxies and Redis.
const clockSkew = 10 * time.Minute

const callEntries = 20_000

// CallAfter is how long after its id was made a call is expected to be settled: a job waits up to a day and then runs.
const CallAfter = 26 * time.Hour

// EntriesAround returns the period in which the entries of a call can be whose id was made then.
func EntriesAround(made time.Time) (from, to time.Time) {
	return made.Add(-clockSkew), made.Add(CallAfter)
}

// EntriesOf returns the ledger entries of a call or a job: the first one and those that correct it. made is when the
// id was made. until is zero, or the time up to which entries were searched if there are too many.
func EntriesOf(
	ctx context.Context, read ReadEntries, org, id string, made time.Time,
) (out []Entry, until time.Time, err error) {
	n := 0
	err = read(ctx, org, made.Add(-time.Minute), made.Add(CallAfter), func(e Entry) error {
		n++
		if n > callEntries {
			until = e.At
			return ErrEnough
		}
		if e.ID == id || e.JobID == id {
			out = append(out, e)
		}
		return nil
	})
	return out, until, err
}

// FindCall returns the call that a correction refers to; found is false if it is not in the ledger.
// made is when the call's id was made.
func FindCall(ctx context.Context, read ReadEntries, org, id string, made time.Time) (one Call, found bool, err error) {
	err = read(ctx, org, made.Add(-clockSkew), time.Time{}, func(e Entry) error {
		if e.ID != id {
			return nil
		}
		one, found = e.Call, true
		return ErrEnough
	})
	return one, found, err
}
