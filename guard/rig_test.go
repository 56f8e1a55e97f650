package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

func TestMain(m *testing.M) {
	logging.Disable() // as in the commands
	// After its server has died, a client sleeps up to a second between dials, even
	// while it is being closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// rig is a Guard with a real Redis and a fake provider.
type rig struct {
	t     testing.TB
	redis *redistest.Server
	fake  *fakeprovider.Server
	store *budget.Store
	guard *Guard
	org   *Org
}

// roomy returns one limit of every metric and shape, none of them close.
func roomy() []budget.Limit {
	const amount = 1 << 50
	return []budget.Limit{
		{ID: "window", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour}},
		{ID: "exact", Subject: budget.User, Metric: budget.Tokens, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: amount, Window: time.Hour}},
		{ID: "bucket", Subject: budget.Key, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Bucket, Amount: amount}},
		{ID: "requests", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour}},
		{ID: "open", Subject: budget.User, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 100}},
	}
}

// newRig starts a rig. Without limits it can only be used for Prepare.
func newRig(t testing.TB, limits ...budget.Limit) *rig {
	t.Helper()
	r := &rig{t: t, fake: fakeprovider.New(fakeprovider.Options{Key: "sk-own", KeepBodies: true}), org: &Org{Org: settings.Org{ID: "acme"}, Limits: limits}}
	if err := r.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	own, err := pricing.ParseEntries([]byte(`[{model: talker, provider: openai, max_output: 1000, prices: [{input: 1, output: 2, audio_in: 40, audio_out: 80}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	if catalogue, err = catalogue.With(own); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Policy:        &Policy{Orgs: map[string]*Org{"acme": r.org}, Catalogue: catalogue, Providers: r.providers(r.fake.BaseURL())},
		StoreDeadline: 5 * time.Second,
	}
	if len(limits) > 0 {
		r.redis = redistest.Start(t)
		rdb := driver.Open(driver.Single, driver.Options(r.redis.Addr)) // as in the program
		t.Cleanup(func() { _ = rdb.Close() })
		r.store = budget.New(redistest.DB(rdb), budget.Options{})
		o.Budget = r.store
	}
	r.guard = New(o)
	t.Cleanup(r.settle)
	return r
}

// providers returns the one provider, reached at this URL.
func (r *rig) providers(text string) *providers.Set {
	r.t.Helper()
	base, err := url.Parse(text)
	if err != nil {
		r.t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{
		ID: "openai", BaseURL: base, APIKey: "sk-own", Pools: []providers.Pool{{ID: "main"}},
		Aliases: map[string]string{"smart": "gpt-4o"}, Models: []string{"no-such-model"},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(set.Close)
	return set
}

// moveTo moves the provider to another server.
func (r *rig) moveTo(server string) {
	r.t.Helper()
	p := *r.guard.Policy()
	p.Providers = r.providers(server + "/v1")
	r.guard.SetPolicy(&p)
}

func (r *rig) caller() Caller {
	return Caller{Org: r.org, User: "alice", Key: "k1", IP: "10.0.0.1"}
}

// settle waits for all settlements, and writes those that had to be kept.
func (r *rig) settle() {
	if err := r.guard.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	if r.store == nil {
		return
	}
	if left, err := r.store.Deferred.Replay(context.Background()); left > 0 {
		r.t.Errorf("%d ends of calls are not written: %v", left, err)
	}
}

// prompt returns a chat request with one message and extra members.
func prompt(model, text, extra string) string {
	quoted, _ := json.Marshal(text)
	if extra != "" {
		extra = "," + extra
	}
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, quoted, extra)
}

func (r *rig) prepare(body string) (*Plan, error) {
	r.t.Helper()
	ep := wire.ChatCompletions
	if json.Valid([]byte(body)) {
		var e struct{ Input any }
		if _ = json.Unmarshal([]byte(body), &e); e.Input != nil {
			ep = wire.Embeddings
		}
	}
	req, err := wire.Scan(ep, []byte(body), wire.Limits{})
	if err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	return r.guard.Plans.Prepare(r.caller(), req)
}

func (r *rig) plan(body string) *Plan {
	r.t.Helper()
	p, err := r.prepare(body)
	if err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	return p
}

func (r *rig) begin(p *Plan) *Call {
	r.t.Helper()
	c, err := r.guard.admission.begin(r.t.Context(), p, &Attempt{ID: wire.NewCallID(), Number: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// run makes a whole call and settles it.
func (r *rig) run(ctx context.Context, body string) (*Call, *httptest.ResponseRecorder, error) {
	r.t.Helper()
	c, w := r.begin(r.plan(body)), httptest.NewRecorder()
	err := c.Forward(ctx, w, Forwarding{Header: http.Header{}})
	c.End(ctx)
	r.settle()
	return c, w, err
}

// used returns what the limits count now, by limit.
func (r *rig) used() map[string]int64 {
	r.t.Helper()
	list, err := r.guard.Status(r.t.Context(), r.caller())
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, s := range list {
		out[s.LimitID] = s.Used
		if s.Held != 0 {
			r.t.Errorf("limit %s still holds %d", s.LimitID, s.Held)
		}
	}
	return out
}

// entries returns the org's ledger.
func (r *rig) entries() []ledger.Entry {
	r.t.Helper()
	var out []ledger.Entry
	err := r.store.Ledger.Entries(r.t.Context(), "acme", time.Unix(0, 0), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// charged asserts that since the first reading the limits have counted this call and
// nothing else.
func (r *rig) charged(before map[string]int64, c *Call) {
	r.t.Helper()
	after := r.used()
	want := map[string]int64{}
	if !c.Result.void() {
		tokens := c.Result.Usage.Input + c.Result.Usage.Output
		want = map[string]int64{"window": int64(c.Result.Cost), "bucket": int64(c.Result.Cost), "exact": tokens, "requests": 1}
	}
	for id, n := range after {
		if got := n - before[id]; got != want[id] {
			r.t.Errorf("%s: limit %s counts %d, want %d", c.Result.Outcome, id, got, want[id])
		}
	}
}
