package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// capped puts a spend cap of this amount on the rig.
func (r *rig) capped(amount int64) budget.Cap {
	c := budget.Cap{Limits: []budget.Limit{{
		ID: "everybody", Subject: budget.Org, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour},
	}}}
	r.guard.Policy().Caps = []budget.Cap{c}
	return c
}

// wantCap waits until these amounts are charged to the cap and held by it.
func (r *rig) wantCap(c budget.Cap, used, held int64) {
	r.t.Helper()
	r.until(fmt.Sprintf("the cap has used %d and holds %d", used, held), func() bool {
		list, err := r.store.PeekCap(r.t.Context(), c)
		return err == nil && len(list) == 1 && list[0].Used == used+held && list[0].Held == held
	})
}

// underACap takes a hold under a limit of the org and a cap, extends it and settles it.
func (r *rig) underACap() {
	r.t.Helper()
	c := r.capped(3_000_000_000)
	v := r.hold("", `{"cost_usd":"1"}`)
	r.wantCap(c, 0, 1_000_000_000)
	for range 2 { // a repetition adds nothing
		r.hold("/"+v.ID+"/extend", `{"cost_usd":"2"}`)
	}
	r.wantCap(c, 0, 2_000_000_000)
	if a := r.call(http.MethodPost, "/v1/holds/"+v.ID+"/extend", `{"cost_usd":"3.5"}`); a.status != 402 {
		r.t.Errorf("got status %d, %s; want a refusal by the cap", a.status, a.body)
	}
	r.wantCap(c, 0, 2_000_000_000)
	for range 2 {
		v = r.hold("/"+v.ID+"/settle", `{"cost_usd":"1.5"}`)
		if v.Status != "settled" || text(v.Charged) != "1.500000000" {
			r.t.Errorf("got %+v, charged %s; want $1.50", v, text(v.Charged))
		}
	}
	r.wantCap(c, 1_500_000_000, 0)
	r.spent(1_500_000_000)
	void := r.hold("", `{"cost_usd":"1.5"}`)
	r.wantCap(c, 1_500_000_000, 1_500_000_000)
	r.hold("/"+void.ID+"/void", ``)
	r.wantCap(c, 1_500_000_000, 0)
}

// TestHoldUnderACap: a hold takes from a spend cap too, grows within it, and leaves its exact cost.
func TestHoldUnderACap(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(10_000_000_000, time.Hour))
	r.underACap()
}

// TestHoldsOnACluster: the same on a Redis Cluster of three nodes, where org and cap have their own slots.
func TestHoldsOnACluster(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(10_000_000_000, time.Hour))
	group := redistest.StartCluster(t, 3, 0)
	r.rdb = group.Client()
	r.anotherGuard(budget.Options{Scripts: redisconn.Pipelined(redistest.DB(r.rdb))})
	r.underACap()
}
