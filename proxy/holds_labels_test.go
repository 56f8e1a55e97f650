package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
)

// TestHoldsHaveLabels: holds count in limits by label under the labels of their request and key, when
// they are taken, extended and settled, and need the labels that calls need.
func TestHoldsHaveLabels(t *testing.T) {
	t.Parallel()
	l := window(1_000_000_000, time.Hour)
	l.Subject = "project"
	r, _ := holdRig(t, l)
	p := *r.guard.Policy()
	p.Labels = []guard.Label{
		{Name: "project", From: []guard.LabelSource{{Header: "X-Project"}}, Required: true, MaxValues: 10},
	}
	r.guard.SetPolicy(&p)
	r.refusedHold("", `{"cost_usd":"0.6"}`, 400, "missing_label")
	one := r.hold("", `{"cost_usd":"0.6"}`, "X-Project", "one")
	two := r.hold("", `{"cost_usd":"0.6"}`, "X-Project", "two")
	r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"0.6"}`, "X-Project", "one").fails(t, 429, "rate_limit_exceeded")
	r.refusedHold("/"+two.ID+"/extend", `{"cost_usd":"1.1"}`, 402, "insufficient_quota")
	r.hold("/"+two.ID+"/extend", `{"cost_usd":"0.9"}`)
	r.hold("/"+one.ID+"/settle", `{"cost_usd":"0.3"}`)
	r.hold("", `{"cost_usd":"0.7"}`, "X-Project", "one")
	if got := r.entries(); len(got) != 1 || got[0].Labels != "project=one" {
		t.Errorf("got entries %+v; want one with the label", got)
	}
}
