package budget

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
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

// Search returns entries that fit the filter. It reads at most MaxSpendScan entries, and then returns
// what it has found, with a position to continue from.
func (l *Ledger) Search(ctx context.Context, q CallQuery) (*CallPage, error) {
	if made, ok := idTime(q.Filter.ID()); ok { // only these entries can have the id
		q.From = later(q.From, made.Add(-clockSkew))
		if q.To.IsZero() || q.To.After(made.Add(callAfter)) {
			q.To = made.Add(callAfter)
		}
	}
	var page CallPage
	var last *Entry
	read := 0
	end, begun := streamTo(q.To), q.Before == ""
	if !begun {
		end = streamID(q.Before)
	}
	in := streamRange{"ledger", streamFrom(q.From), end, true}
	err := l.stream(ctx, q.Org, in, eachEntry(func(e Entry) error {
		if !begun { // other parts of the org may have entries with the same id
			begun = streamID(e.LedgerID) != end
			if e.LedgerID == q.Before {
				begun = true
				return nil
			}
			if !begun {
				return nil
			}
		}
		if !q.ByCost && len(page.Entries) == q.Limit {
			page.Next = page.Entries[q.Limit-1].LedgerID
			return errEnough
		}
		if read == MaxSpendScan {
			page.Next, page.Since = last.LedgerID, last.At
			return errEnough
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
	}))
	if errors.Is(err, errEnough) {
		err = nil
	}
	if q.ByCost {
		page.cutByCost(q.Limit)
		page.Next = ""
	}
	return &page, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cutByCost keeps the n entries with the highest cost.
func (p *CallPage) cutByCost(n int) {
	slices.SortStableFunc(p.Entries, func(a, b Entry) int { return cmp.Compare(b.Cost, a.Cost) })
	p.Entries = p.Entries[:min(n, len(p.Entries))]
}

// ValidLedgerID reports whether a text has the form of a LedgerID.
func ValidLedgerID(text string) bool {
	ms, n, ok := strings.Cut(streamID(text), "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(n, 10, 64)
	return ok && err == nil && err2 == nil
}
