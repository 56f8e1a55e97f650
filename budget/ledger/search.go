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

// cutByCost keeps the n entries with the highest cost.
func (p *CallPage) cutByCost(n int) {
	slices.SortStableFunc(p.Entries, func(a, b Entry) int { return cmp.Compare(b.Cost, a.Cost) })
	p.Entries = p.Entries[:min(n, len(p.Entries))]
}
