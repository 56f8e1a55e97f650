package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// gateways are keys with the scope holds: bob is alice's colleague, carl is in another org. plain is alice's key
// without scopes, calls one with the scope calls.
type gateways struct{ alice, bob, carl, plain, calls string }

// holdRig is a rig whose key r.key may hold.
func holdRig(t *testing.T, limits ...budget.Limit) (*rig, gateways) {
	t.Helper()
	r := newRig(t, queue.Pool{}, nil, limits...)
	g := gateways{keys.New(keys.Live), keys.New(keys.Live), keys.New(keys.Live), r.key, keys.New(keys.Live)}
	other := r.guard.Policy().Orgs["other"]
	holds := []string{"holds"}
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, g.alice): {Org: r.org, User: "alice", Key: "k1", Scopes: holds},
		keys.Hash(keys.Pepper{}, g.bob):   {Org: r.org, User: "bob", Key: "k2", Scopes: holds},
		keys.Hash(keys.Pepper{}, g.carl):  {Org: other, User: "carl", Key: "k3", Scopes: holds},
		keys.Hash(keys.Pepper{}, g.plain): {Org: r.org, User: "alice", Key: "k4"},
		keys.Hash(keys.Pepper{}, g.calls): {Org: r.org, User: "alice", Key: "k5", Scopes: []string{"calls", "usage"}},
	}})
	r.key = g.alice
	return r, g
}

// hold sends a request about holds and returns the hold.
func (r *rig) hold(path, body string, header ...string) holdView {
	r.t.Helper()
	a := r.call(http.MethodPost, "/v1/holds"+path, body, header...)
	var v holdView
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 200 || v.Object != "hold" {
		r.t.Fatalf("POST /v1/holds%s %s: got status %d, %s; want a hold", path, body, a.status, a.body)
	}
	return v
}

// refusedHold sends a request about holds that fails.
func (r *rig) refusedHold(path, body string, status int, code string) string {
	r.t.Helper()
	return r.call(http.MethodPost, "/v1/holds"+path, body).fails(r.t, status, code)
}

// entries returns the cost of each ledger entry of alice's org.
func (r *rig) entries() (out []ledger.Entry) {
	r.t.Helper()
	err := r.store.Ledger.Recent(r.t.Context(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// TestHoldsAreExact: 200 parallel holds under a budget for ten: exactly ten succeed, and the others
// get a call's refusal.
func TestHoldsAreExact(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(10_000_000_000, time.Hour))
	var got, refused atomic.Int64
	var work sync.WaitGroup
	for range 200 {
		work.Go(func() {
			a := r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"1"}`)
			switch {
			case a.status == 200 && a.header.Get("X-Llmguard-Limits") != "":
				got.Add(1)
			case a.status == 429 && a.header.Get("Retry-After") != "" && a.header.Get("X-Llmguard-Limits") != "":
				refused.Add(1)
			default:
				t.Errorf("got status %d, %v, %s; want a hold or a refusal with limits", a.status, a.header, a.body)
			}
		})
	}
	redistest.Wait(t, work.Wait)
	if got.Load() != 10 || refused.Load() != 190 || r.held() != 10_000_000_000 {
		t.Errorf("got %d holds of %d nano-USD and %d refusals; want 10, 10e9 and 190", got.Load(), r.held(), refused.Load())
	}
	message := r.refusedHold("", `{"cost_usd":"10.5"}`, 402, "insufficient_quota")
	if !strings.Contains(message, "Waiting does not help") {
		t.Errorf("got %q; want that waiting does not help", message)
	}
}

// TestHoldSettles: a hold is priced by the catalogue, grows, and is replaced by the exact cost, once.
func TestHoldSettles(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(roomy, time.Hour))
	v := r.hold("", `{"model":"gpt-4o","input_tokens":1000,"max_output_tokens":500}`)
	if v.Status != "held" || text(v.Model) != "gpt-4o" || *v.Tokens != 1500 || v.Charged != nil || *v.Expires <= v.Created {
		t.Errorf("got %+v; want an open hold of 1,500 tokens", v)
	}
	first := r.held()
	for range 2 { // new totals, so a repetition adds nothing
		v = r.hold("/"+v.ID+"/extend", `{"input_tokens":1000,"max_output_tokens":900,"expires_in":3600}`)
	}
	if n := r.held(); n <= first || *v.Tokens != 1900 || *v.Expires < v.Created+3500 {
		t.Errorf("got %+v, %d held after %d; want 400 tokens more, and an hour", v, n, first)
	}
	if less := r.hold("/"+v.ID+"/extend", `{"cost_usd":"0.000001"}`); text(less.Held) != text(v.Held) {
		t.Errorf("got %s held, want %s: an extension never shrinks", text(less.Held), text(v.Held))
	}
	const cost = "0.008000000" // 1,200 at $2.50 and 500 at $10 a million
	for range 2 {
		v = r.hold("/"+v.ID+"/settle", `{"input_tokens":1200,"output_tokens":500}`)
		if v.Status != "settled" || text(v.Charged) != cost || text(v.Overrun) != "0.000000000" || v.Held != nil {
			t.Errorf("got %+v, charged %s; want %s", v, text(v.Charged), cost)
		}
	}
	list := r.entries()
	if len(list) != 1 || list[0].Cost != 8_000_000 || list[0].Endpoint != "holds" || list[0].Model != "gpt-4o" ||
		list[0].User != "alice" || list[0].Key != "k1" || list[0].Provider != "openai" || list[0].Estimated {
		t.Errorf("got %+v; want one exact entry", list)
	}
	r.spent(8_000_000)
	if a := r.call(http.MethodGet, "/v1/holds/"+v.ID, ""); !strings.Contains(a.body, `"charged_cost_usd":"`+cost) {
		t.Errorf("got %s; want the charge", a.body)
	}
	r.refusedHold("/"+v.ID+"/void", ``, 409, "hold_ended")
	r.refusedHold("/"+v.ID+"/extend", `{"cost_usd":"1"}`, 409, "hold_ended")
}

// TestHoldOverrunAndVoid: a cost above the hold is charged in full, and a void leaves nothing.
func TestHoldOverrunAndVoid(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(2_000_000_000, time.Hour))
	void := r.hold("", `{"cost_usd":"0.5","model":"someone-elses"}`)
	for range 2 {
		if v := r.hold("/"+void.ID+"/void", ``); v.Status != "voided" || text(v.Charged) != "0.000000000" {
			t.Errorf("got %+v; want voided", v)
		}
	}
	r.spent(0)
	r.refusedHold("/"+void.ID+"/settle", `{"cost_usd":"1"}`, 409, "hold_ended")
	v := r.hold("", `{"cost_usd":1}`)
	r.refusedHold("/"+v.ID+"/extend", `{"cost_usd":"2.1"}`, 402, "insufficient_quota")
	v = r.hold("/"+v.ID+"/settle", `{"cost_usd":"3.25"}`)
	if text(v.Charged) != "3.250000000" || text(v.Overrun) != "2.250000000" {
		t.Errorf("got %s charged, %s overrun; want 3.25 and 2.25", text(v.Charged), text(v.Overrun))
	}
	r.spent(3_250_000_000)
	if list := r.entries(); len(list) != 1 || list[0].Cost != 3_250_000_000 || list[0].Overrun != 2_250_000_000 {
		t.Errorf("got %+v; want one entry with the overrun", list)
	}
	r.refusedHold("", `{"cost_usd":"0.01"}`, 429, "rate_limit_exceeded")
}

// TestHoldsAreTheirOwners: only keys with the scope hold, and holds of others do not exist for them;
// nor does a live call's hold, which its caller must not settle.
func TestHoldsAreTheirOwners(t *testing.T) {
	t.Parallel()
	r, g := holdRig(t, window(roomy, time.Hour))
	v := r.hold("", `{"cost_usd":"1"}`)
	live := r.as(g.plain, http.MethodPost, "/chat/completions", prompt("hi", `"max_tokens":5`))
	ids := []string{
		v.ID, v.ID + "x", v.ID[:len(v.ID)-1], "hold_", "x", live.header.Get(guard.HeaderCall),
		"hold_" + live.header.Get(guard.HeaderCall) + strings.Repeat("a", 26),
	}
	for name, key := range map[string]string{"alice": g.alice, "bob": g.bob, "carl": g.carl} {
		for _, id := range ids {
			if name == "alice" && id == v.ID {
				continue
			}
			for _, what := range []string{"/settle", "/extend", "/void", ""} {
				method, body := http.MethodPost, `{"cost_usd":"2"}`
				if what == "" {
					method, body = http.MethodGet, ""
				}
				r.as(key, method, "/holds/"+id+what, body).fails(t, 404, "hold_not_found")
			}
		}
	}
	for name, key := range map[string]string{"without scopes": g.plain, "calls": g.calls} {
		for _, path := range []string{"/holds", "/holds/" + v.ID + "/settle"} {
			if m := r.as(key, http.MethodPost, path, `{"cost_usd":"1"}`).fails(t, 403, "missing_scope"); !strings.Contains(m, "holds") {
				t.Errorf("%s: got %q; want the scope", name, m)
			}
		}
	}
	r.call(http.MethodPost, "/v1/chat/completions", prompt("hi", `"max_tokens":5`)).fails(t, 403, "missing_scope")
	if again := r.hold("/"+v.ID+"/settle", `{"cost_usd":"1"}`); text(again.Charged) != "1.000000000" {
		t.Errorf("got %+v; want the charge of its owner alone", again)
	}
}

// TestHoldIsTakenOnce: requests with the same Idempotency-Key are one hold, also after a refusal and
// when they arrive together.
func TestHoldIsTakenOnce(t *testing.T) {
	t.Parallel()
	r, g := holdRig(t, window(1_000_000_000, time.Hour))
	v := r.hold("", `{"cost_usd":"0.6"}`, keyHeader, "job 17")
	again := r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"0.6"}`, keyHeader, "job 17")
	if again.id() != v.ID || again.header.Get(headerReplayed) != "true" || r.held() != 600_000_000 {
		t.Errorf("got %s, %v, %d held; want the same hold", again.body, again.header, r.held())
	}
	r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"0.5"}`, keyHeader, "job 17").fails(t, 422, "idempotency_key_reused")
	r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"0.6"}`, keyHeader, "job 18").fails(t, 429, "rate_limit_exceeded")
	r.key = g.bob // bob's key of this text is another one
	if bobs := r.hold("", `{"cost_usd":"0.6"}`, keyHeader, "job 17"); bobs.ID == v.ID {
		t.Errorf("got %+v; want another hold", bobs)
	}
	r.key = g.alice
	r.hold("/"+v.ID+"/void", ``)
	other := r.hold("", `{"cost_usd":"0.6"}`, keyHeader, "job 18")
	if other.ID == v.ID || r.held() != 600_000_000 {
		t.Errorf("got %+v; want a hold after the refusal", other)
	}
	ended := r.hold("", `{"cost_usd":"0.6"}`, keyHeader, "job 17")
	if ended.ID != v.ID || ended.Status != "voided" {
		t.Errorf("got %+v; want the first hold, voided", ended)
	}
	r.hold("/"+other.ID+"/void", ``)
	var ids sync.Map
	var work sync.WaitGroup
	for range 30 {
		work.Go(func() {
			for {
				a := r.call(http.MethodPost, "/v1/holds", `{"cost_usd":"0.6"}`, keyHeader, "together")
				if a.status != http.StatusConflict {
					ids.Store(fmt.Sprint(a.status, a.id()), true)
					return
				}
			}
		})
	}
	redistest.Wait(t, work.Wait)
	n := 0
	ids.Range(func(_, _ any) bool { n++; return true })
	if n != 1 || r.held() != 600_000_000 {
		t.Errorf("got %d different answers, %d held; want one hold", n, r.held())
	}
}

// TestAnotherProcessSettles: what a dead proxy held is extended, settled and charged by another one.
func TestAnotherProcessSettles(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(roomy, time.Hour))
	v := r.hold("", `{"model":"gpt-4o","input_tokens":1000,"max_output_tokens":500}`)
	r.anotherGuard(budget.Options{})
	v = r.hold("/"+v.ID+"/extend", `{"cost_usd":"1"}`)
	if text(v.Held) != "1.000000000" || r.held() != 1_000_000_000 {
		t.Errorf("got %s, %d held; want $1", text(v.Held), r.held())
	}
	v = r.hold("/"+v.ID+"/settle", `{"input_tokens":1200,"output_tokens":500}`)
	if text(v.Charged) != "0.008000000" || text(v.Model) != "gpt-4o" {
		t.Errorf("got %+v; want the charge", v)
	}
	r.spent(8_000_000)
}

// anotherGuard replaces the rig's guard and budget store, as another process has them.
func (r *rig) anotherGuard(o budget.Options) {
	r.t.Helper()
	r.store = budget.New(redistest.DB(r.rdb), o)
	r.guard = guard.New(guard.Options{
		Quota: r.queue.Quota(), Budget: r.store, StoreDeadline: 5 * time.Second, Policy: r.guard.Policy(),
	})
	r.proxy.guard, r.proxy.opts.Guard = r.guard, r.guard
}

// TestHoldExpires: what is neither settled nor voided is charged as held, and a late settle corrects
// it.
func TestHoldExpires(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(roomy, time.Hour))
	r.anotherGuard(budget.Options{Lease: 20 * time.Millisecond})
	c := guard.Caller{Org: r.org, User: "alice", Key: "k1"}
	cost := pricing.Nano(500_000_000)
	plan, err := r.guard.Holds.Plan(c, "", guard.Spend{Cost: &cost})
	if err != nil {
		t.Fatal(err)
	}
	id := r.guard.Holds.NewID(c, "")
	if _, err := r.guard.Holds.Take(t.Context(), plan, id, time.Millisecond, true); err != nil {
		t.Fatal(err)
	}
	r.until("the hold expires", func() bool {
		n, err := r.store.Expiry.Sweep(t.Context(), "acme")
		return err == nil && n == 1
	})
	a := r.call(http.MethodGet, "/v1/holds/"+id, "")
	if !strings.Contains(a.body, `"status":"expired"`) || !strings.Contains(a.body, `"charged_cost_usd":"0.500000000"`) {
		t.Errorf("got %s; want expired, charged as held", a.body)
	}
	r.refusedHold("/"+id+"/extend", `{"cost_usd":"1"}`, 409, "hold_ended")
	v := r.hold("/"+id+"/settle", `{"cost_usd":"0.2"}`)
	if text(v.Charged) != "0.200000000" {
		t.Errorf("got %+v; want the late charge", v)
	}
	r.spent(200_000_000)
}

// TestHoldsWithoutRedis: nothing is held; what this proxy held is settled from the journal once, when
// Redis is back.
func TestHoldsWithoutRedis(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(roomy, time.Hour))
	r.background(r.store.Run)
	v, other := r.hold("", `{"cost_usd":"1"}`), r.hold("", `{"cost_usd":"1"}`)
	r.redis.Kill()
	r.refusedHold("", `{"cost_usd":"1"}`, 503, "server_is_overloaded")
	for range 2 {
		if got := r.hold("/"+v.ID+"/settle", `{"cost_usd":"0.75"}`); !got.Kept || text(got.Charged) != "0.750000000" {
			t.Errorf("got %+v; want a pending charge", got)
		}
	}
	r.refusedHold("/"+v.ID+"/void", ``, 409, "hold_ended")
	if got := r.hold("/"+other.ID+"/void", ``); !got.Kept || got.Status != "voided" {
		t.Errorf("got %+v; want a pending void", got)
	}
	unknown := r.guard.Holds.NewID(guard.Caller{Org: r.org, User: "alice"}, "")
	r.refusedHold("/"+unknown+"/settle", `{"cost_usd":"1"}`, 503, "server_is_overloaded")
	r.redis.Restart()
	r.until("the charge is written", func() bool {
		var list []ledger.Entry
		err := r.store.Ledger.Recent(context.Background(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
			list = append(list, e)
			return nil
		})
		return err == nil && len(list) == 1 && list[0].Cost == 750_000_000
	})
}

// TestHoldsObeyStops: while spending is stopped nothing is held, and what is held can be ended.
func TestHoldsObeyStops(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t, window(roomy, time.Hour))
	v := r.hold("", `{"cost_usd":"1"}`)
	stopped := *r.guard.Policy()
	stopped.Stopped = true
	r.guard.SetPolicy(&stopped)
	r.refusedHold("", `{"cost_usd":"1"}`, 403, "spending_stopped")
	if got := r.hold("/"+v.ID+"/settle", `{"cost_usd":"0.5"}`); text(got.Charged) != "0.500000000" {
		t.Errorf("got %+v; want the charge", got)
	}
}

// TestHoldRequestsAreChecked: mistakes in a request about a hold are named.
func TestHoldRequestsAreChecked(t *testing.T) {
	t.Parallel()
	r, _ := holdRig(t)
	r.org.Models = []string{"gpt-*"}
	id := r.hold("", `{"cost_usd":"1"}`).ID
	for _, one := range [][4]string{
		{"", `{}`, "400", "missing_required_parameter"},
		{"", `nothing`, "400", "invalid_json"},
		{"", `{"cost_usd":"1"} {}`, "400", "invalid_json"},
		{"", `{"cost_usd":"1","cost":2}`, "400", "unknown_parameter"},
		{"", `{"cost_usd":"-1"}`, "400", "invalid_value"},
		{"", `{"cost_usd":true}`, "400", "invalid_value"},
		{"", `{"cost_usd":"99999999"}`, "400", "invalid_value"},
		{"", `{"cost_usd":"1","expires_in":59}`, "400", "invalid_value"},
		{"", `{"cost_usd":"1","expires_in":86401}`, "400", "invalid_value"},
		{"", `{"input_tokens":5}`, "400", "missing_required_parameter"},
		{"", `{"model":"gpt-4o","input_tokens":-5}`, "400", "invalid_value"},
		{"", `{"model":"gpt-unknown","input_tokens":5}`, "400", "model_not_priced"},
		{"", `{"model":"o3","input_tokens":5}`, "404", "model_not_found"},
		{"/" + id + "/settle", `{}`, "400", "missing_required_parameter"},
		{"/" + id + "/settle", `{"input_tokens":5}`, "400", "missing_required_parameter"},
		{"/" + id + "/settle", `{"cost_usd":"1","input_tokens":5,"cached_input_tokens":6}`, "400", "invalid_value"},
		{"/" + id + "/settle", `{"cost_usd":"1","model":"gpt-4o"}`, "400", "unknown_parameter"},
		{"/" + id + "/extend", `{"cost_usd":"1","model":"gpt-4o"}`, "400", "unknown_parameter"},
		{"/" + id + "/extend", `{}`, "400", "missing_required_parameter"},
		{"/" + id + "/extend", `{"expires_in":0}`, "400", "invalid_value"},
	} {
		a := r.call(http.MethodPost, "/v1/holds"+one[0], one[1])
		t.Run(one[0]+one[1], func(t *testing.T) {
			var status int
			_, _ = fmt.Sscan(one[2], &status)
			a.fails(t, status, one[3])
		})
	}
}
