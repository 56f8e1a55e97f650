package front_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

const small = `{"model":"gpt-4o-mini","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`

// spend makes alice's call and requires a status.
func (r *running) spend(t *testing.T, want int) reply {
	t.Helper()
	got, err := r.chat(r.key, small)
	if err != nil || got.status != want {
		t.Fatalf("a call: got status %d, %s, %v; want %d", got.status, got.body, err, want)
	}
	return got
}

// read decodes the answer to a caller's GET.
func (r *running) read(t *testing.T, path string, out any) {
	t.Helper()
	got := get(t, r.URL()+path, r.key)
	err := json.Unmarshal([]byte(got.body), out)
	if err != nil || got.status != 200 {
		t.Fatalf("%s: got status %d, %s, %v; want 200", path, got.status, got.body, err)
	}
}

// ownLimit is a limit as its caller sees it.
type ownLimit struct {
	Limit           string
	Amount, Used    int64
	Base            int64   `json:"base_amount"`
	Until           *string `json:"override_until"`
	Held, Remaining int64
	Reset           float64 `json:"reset_seconds"`
}

// daily returns alice's daily limit, once her calls are settled.
func (r *running) daily(t *testing.T) (out ownLimit) {
	t.Helper()
	await(t, "alice's calls are settled", func() bool {
		var list struct{ Data []ownLimit }
		r.read(t, "/v1/limits", &list)
		held := int64(0)
		for _, l := range list.Data {
			held += l.Held
			if l.Limit == "daily" {
				out = l
			}
		}
		return held == 0
	})
	return out
}

// tight returns an App whose user alice has a daily limit that no call fits.
func tight(t *testing.T) (*running, *operator) {
	t.Helper()
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	o.ask(200, "PATCH", "/orgs/acme", `{"over_limit":"refuse"}`, nil)
	o.ask(200, "PATCH", "/orgs/acme/limits/daily", `{"subject":"user","amount":"$0.000000001","window":"24h"}`, nil)
	r.spend(t, 402)
	return r, o
}

// TestOverrideInForce checks that an override immediately raises a limit for its user, that
// callers see it in answers and at /v1/limits, and that deleting it restores the limit.
func TestOverrideInForce(t *testing.T) {
	r, o := tight(t)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	var over struct{ ID string }
	o.ask(201, "POST", "/orgs/acme/overrides",
		fmt.Sprintf(`{"limit":"daily","user":"alice","add":"$200","until":"%s","reason":"launch"}`, until), &over)
	limits := r.spend(t, 200).header.Get("X-Llmguard-Limits")
	for _, want := range []string{"daily;metric=cost;limit=200.000000001;", "override_until=" + until} {
		if !strings.Contains(limits, want) {
			t.Errorf("the answer's limits are %q, want %q among them", limits, want)
		}
	}
	l := r.daily(t)
	if l.Amount != 200_000_000_001 || l.Base != 1 || l.Until == nil {
		t.Errorf("/v1/limits: got %+v, want $200.000000001 instead of $0.000000001 for a time", l)
	}
	if l.Used <= 0 || l.Remaining != l.Amount-l.Used || l.Reset <= 0 {
		t.Errorf("/v1/limits: got %+v, want what the call used and what is left", l)
	}
	o.ask(204, "DELETE", "/orgs/acme/overrides/"+over.ID, "", nil)
	r.spend(t, 402)
}

// TestNewAmountKeepsUsage checks that a limit with a new amount still counts what was used.
func TestNewAmountKeepsUsage(t *testing.T) {
	r := start(t, app.Proxy, "")
	o := r.operator(t)
	o.ask(200, "PATCH", "/orgs/acme/limits/daily", `{"subject":"user","amount":"$50","window":"24h"}`, nil)
	r.spend(t, 200)
	used := r.daily(t).Used
	o.ask(200, "PATCH", "/orgs/acme/limits/daily", `{"amount":"$100"}`, nil)
	if l := r.daily(t); l.Amount != 100_000_000_000 || l.Used != used || used == 0 {
		t.Errorf("after a new amount: got %+v, want $100 and %d used", l, used)
	}
}

// TestUsageIsTheCallersOwn checks that a caller does not see what others of the org spend.
func TestUsageIsTheCallersOwn(t *testing.T) {
	r := start(t, app.Proxy, "")
	r.spend(t, 200)
	other := budget.Call{ID: wire.NewCallID(), Org: "acme", User: "bob", Key: "k9", Model: "gpt-4o"}
	seven := budget.Amounts{Cost: 7}
	hold, err := r.store.Hold(t.Context(), budget.Terms{Call: other, Max: seven, Expected: seven})
	if err != nil {
		t.Fatal(err)
	}
	end := budget.Settlement{Actual: seven, Outcome: "completed", Status: 200}
	if _, err := r.store.Settle(t.Context(), hold, end); err != nil {
		t.Fatal(err)
	}
	await(t, "both calls are settled", func() bool { return len(r.entries(t)) == 2 })
	var usage struct {
		Data  []struct{ Model string }
		Total struct{ Calls int64 }
	}
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) // midnight may pass
	r.read(t, "/v1/usage?from="+yesterday, &usage)
	if usage.Total.Calls != 1 || len(usage.Data) != 1 || usage.Data[0].Model != "gpt-4o-mini" {
		t.Errorf("alice's usage: got %+v, want her one call of gpt-4o-mini", usage)
	}
}
