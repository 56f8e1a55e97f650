package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// ranking keeps the newest or the most expensive entries. With a limit it holds at most twice as
// many in memory, however long the period is.
type ranking struct {
	sort  string // "time" or "cost"
	limit int    // 0: all

	list []ledger.Entry
	cut  bool // some entries were left out
}

func (r *ranking) check() error {
	if r.sort != "time" && r.sort != "cost" {
		return misused("--sort %s: expected time or cost", r.sort)
	}
	if r.limit < 0 {
		return misused("--limit %d: expected 0 or more", r.limit)
	}
	return nil
}

// read adds the entries of an org. Ledgers are read newest first, so sorted
// by time a few of them are enough.
func (r *ranking) read(ctx context.Context, l *ledgers, org string, from, to time.Time) error {
	n := 0
	return l.Recent(ctx, org, from, to, func(e ledger.Entry) error {
		r.list = append(r.list, e)
		n++
		if r.limit > 0 && r.sort == "time" && n > r.limit {
			return ledger.ErrEnough
		}
		if r.limit > 0 && len(r.list) > 2*r.limit {
			r.trim()
		}
		return nil
	})
}

// trim sorts the entries and drops those above the limit.
func (r *ranking) trim() {
	slices.SortStableFunc(r.list, func(a, b ledger.Entry) int {
		if r.sort == "cost" {
			return cmp.Compare(b.Cost, a.Cost)
		}
		return b.At.Compare(a.At)
	})
	if r.limit > 0 && len(r.list) > r.limit {
		r.list, r.cut = r.list[:r.limit], true
	}
}

// entries returns the entries in the order to print, and a note about them or "".
func (r *ranking) entries() (list []ledger.Entry, note string) {
	r.trim()
	list = append([]ledger.Entry{}, r.list...)
	kind := "most expensive"
	if r.sort == "time" {
		kind = "newest"
		slices.Reverse(list)
	}
	switch {
	case len(list) == 0:
		note = "no entries; choose a longer period with --from or --days"
	case r.cut:
		note = fmt.Sprintf("showing the %s %d; list all with --limit 0", kind, r.limit)
	}
	return list, note
}
