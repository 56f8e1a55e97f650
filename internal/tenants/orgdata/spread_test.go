package orgdata_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestPurgeOfASpreadOrg: an org with an open call in any part is not purged. A purge deletes all
// parts, and keeps the ledger of all of them unless it is told to delete it.
func TestPurgeOfASpreadOrg(t *testing.T) {
	h := newFixture(t)
	h.populate("acme2")
	kept := h.dump()
	h.populate("acme")
	store := budget.New(redistest.DB(h.rdb), budget.Options{
		Spread: func(string) budget.Spread { return budget.Spread{Parts: 8, By: budget.User} },
	})
	var last *budget.Hold
	for user := range 20 {
		hold, err := store.Hold(t.Context(), budget.Terms{
			Call: ledger.Call{ID: wire.NewCallID(), Org: "acme", User: fmt.Sprint("user", user)}, Max: budget.Amounts{Cost: 9},
		})
		h.must(err)
		if hold.Call.Part > 1 && last == nil {
			last = hold
			continue
		}
		_, err = store.Settle(t.Context(), hold, budget.Settlement{Actual: budget.Amounts{Cost: 7}})
		h.must(err)
	}
	if _, err := h.purge("acme", false).Look(t.Context()); !errors.Is(err, orgdata.ErrOpen) {
		t.Errorf("with an open call in part %d: got %v, want ErrOpen", last.Call.Part, err)
	}
	h.must(store.Void(t.Context(), last))
	before := spent(t, store)
	h.must(h.run("acme", false))
	if after := spent(t, store); after != before || before < 19*7 {
		t.Errorf("the sums are %d, were %d, want at least %d", after, before, 19*7)
	}
	others := slices.DeleteFunc(differ(h.dump(), kept), func(key string) bool {
		return strings.HasSuffix(key, ":ledger") || strings.Contains(key, ":sums:") || key == "lg:{acme}:parts" ||
			key == ledger.OrgsKey+" acme"
	})
	if len(others) > 0 {
		t.Errorf("got left or changed %v, want ledgers and sums alone", others)
	}
	h.populate("acme") // it is purged once
	h.must(h.run("acme", true))
	if left := differ(h.dump(), kept); len(left) > 0 {
		t.Errorf("got left or changed %v, want nothing", left)
	}
}

// spent returns the sums of the org's days.
func spent(t *testing.T, store *budget.Store) int64 {
	t.Helper()
	list, err := store.Ledger.Rollups(t.Context(), "acme", time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for i := range list {
		total += int64(list[i].Cost)
	}
	return total
}
