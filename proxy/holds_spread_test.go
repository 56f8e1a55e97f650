package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
)

// TestHoldsOfASpreadOrg: a hold is found in its part by any process, after the org's spread has
// changed, until and after its end. A part that is not that of the id is refused.
func TestHoldsOfASpreadOrg(t *testing.T) {
	t.Parallel()
	limit := window(roomy, time.Hour)
	limit.Subject = budget.User
	r, _ := holdRig(t, limit)
	spread := func(parts int) {
		r.anotherGuard(budget.Options{Spread: func(string) budget.Spread {
			return budget.Spread{Parts: parts, By: budget.User}
		}})
	}
	spread(64)
	part := r.store.Place(ledger.Call{Org: "acme", User: "alice"}).Part
	if part == 1 {
		t.Fatal("alice is in the first part, so this test shows nothing")
	}
	settled, voided, open := r.hold("", `{"cost_usd":"0.5"}`), r.hold("", `{"cost_usd":"0.5"}`), r.hold("", `{"cost_usd":"0.5"}`)
	made := r.guard.Holds.Made(guard.Caller{Org: r.org, User: "alice"}, open.ID)
	if made.IsZero() {
		t.Errorf("the id %s is not alice's", open.ID)
	}
	for _, parts := range []int{64, 3, 1} {
		spread(parts)
		if a := r.call(http.MethodGet, "/v1/holds/"+open.ID, ""); !strings.Contains(a.body, `"status":"held"`) {
			t.Errorf("with %d parts: got %s, want held", parts, a.body)
		}
	}
	r.hold("/"+open.ID+"/extend", `{"cost_usd":"0.7","expires_in":3600}`)
	r.hold("/"+settled.ID+"/settle", `{"cost_usd":"0.2"}`)
	r.hold("/"+voided.ID+"/void", "")
	for id, want := range map[string]string{settled.ID: "settled", voided.ID: "voided"} {
		if a := r.call(http.MethodGet, "/v1/holds/"+id, ""); !strings.Contains(a.body, `"status":"`+want+`"`) {
			t.Errorf("got %s, want %s", a.body, want)
		}
	}
	held, all, err := r.store.OpenHolds(t.Context(), "acme", 10)
	if err != nil || !all || len(held) != 1 || held[0].Held.Cost != 700_000_000 || held[0].Call.Part != part {
		t.Errorf("open holds: %+v, %v; want one of $0.70 in part %d", held, err, part)
	}
	r.hold("/"+open.ID+"/settle", `{"cost_usd":"0.6"}`)
	at := len(open.ID) - 28 // before the nonce
	forged := open.ID[:at] + "01" + open.ID[at+2:]
	if forged == open.ID {
		t.Fatalf("%s has no part where this test looks for it", open.ID)
	}
	r.refusedHold("/"+forged+"/settle", `{"cost_usd":"0.6"}`, 404, "hold_not_found")
	spread(64)
	r.spent(800_000_000)
}
