package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

// TestHoldsKeepTheirKey: a hold is extended within the limits and models of the key that took it, whichever key of
// the user asks, and not while spending is stopped.
func TestHoldsKeepTheirKey(t *testing.T) {
	t.Parallel()
	r, g := holdRig(t)
	rich := keys.New(keys.Live)
	holds := []string{"holds"}
	r.org.PlanLimits = map[string][]budget.Limit{"k1": {window(1_000_000_000, time.Hour)}, "rich": {window(roomy, time.Hour)}}
	r.org.KeyModels = map[string][]string{"k1": {"gpt-4o-*"}}
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, g.alice): {Org: r.org, User: "alice", Key: "k1", Scopes: holds},
		keys.Hash(keys.Pepper{}, rich):    {Org: r.org, User: "alice", Key: "rich", Scopes: holds},
	}})
	v := r.hold("", `{"cost_usd":"0.5"}`)
	r.as(rich, http.MethodPost, "/holds/"+v.ID+"/extend", `{"cost_usd":"5"}`).fails(t, 402, "insufficient_quota")
	if a := r.as(rich, http.MethodPost, "/holds/"+v.ID+"/extend", `{"cost_usd":"0.9"}`); a.status != 200 {
		t.Errorf("within the plan of its key: got %d %s, want 200", a.status, a.body)
	}
	r.key = rich
	other := r.hold("", `{"cost_usd":"50","model":"gpt-4o"}`)
	if a := r.as(g.alice, http.MethodPost, "/holds/"+other.ID+"/extend", `{"cost_usd":"60"}`); a.status != 200 {
		t.Errorf("another key of the user: got %d %s, want 200", a.status, a.body)
	}
	r.org.KeyModels["rich"] = []string{"gpt-4o-mini"}
	r.as(g.alice, http.MethodPost, "/holds/"+other.ID+"/extend", `{"cost_usd":"70"}`).fails(t, 404, "model_not_found")
}
