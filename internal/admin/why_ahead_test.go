package admin

import (
	"net/url"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// TestAheadCountsPerLimit: of the jobs ahead, a limit counts those of its own user, models and group only, and the
// command names whole cents.
func TestAheadCountsPerLimit(t *testing.T) {
	const usd = int64(pricing.NanoPerUSD)
	limit := func(id string, s budget.Subject, models ...string) budget.Limit {
		return budget.Limit{
			ID: id, Subject: s, Metric: budget.Cost, Mode: budget.Enforce, Models: models,
			Shape: budget.Shape{Kind: budget.Window, Amount: usd * 3 / 10, Window: time.Hour},
		}
	}
	list, err := providers.NewSet([]*providers.Provider{{
		ID: "openai", BaseURL: &url.URL{Scheme: "http", Host: "127.0.0.1:9"}, Pools: []providers.Pool{{ID: "openai"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	limits := []budget.Limit{limit("all", budget.Org), limit("mine", budget.User), limit("mini", budget.Org, "gpt-4o-mini")}
	p := &guard.Policy{Orgs: map[string]*guard.Org{"acme": {Org: settings.Org{ID: "acme"}, Limits: limits}}, Providers: list}
	h := &whyHandler{base: base{opts: &Options{Policy: func() *guard.Policy { return p }}}}
	job := func(user, model, batch string, n int64) *queue.Job {
		return &queue.Job{ID: "job_" + user, Org: "acme", User: user, Model: model, Batch: batch, Cost: pricing.Nano(n)}
	}
	own := job("alice", "gpt-4o", "", usd/50)
	w := &Why{Org: "acme", who: own.Call(), limits: limits[:2], want: &budget.Amounts{Cost: own.Cost}}
	w.Ahead = h.sumAhead(w, []*queue.Job{
		job("alice", "gpt-4o", "", 100), job("bob", "gpt-4o-mini", "batch_1", usd*3),
		job("bob", "gpt-4o-mini", "batch_1", usd),
	})
	for i, want := range []int64{usd*4 + 100, 100} {
		if got := w.before[nameOf(&limits[i])]; got != want {
			t.Errorf("ahead in %s: got %d, want %d", limits[i].ID, got, want)
		}
	}
	if a := w.Ahead[0]; a.Batch != "batch_1" || a.Jobs != 2 || a.Command != "llmguard batches cancel batch_1" {
		t.Errorf("most ahead is %+v", a)
	}
	l := WhyLimit{
		Name: "mine", Refuses: true, Amount: limits[1].Shape.Amount, Used: limits[1].Shape.Amount, limit: limits[1],
		Wanted: new(int64),
	}
	*l.Wanted = int64(own.Cost)
	const want = "llmguard limits override --org acme --user alice --limit mine --add '$0.03' --until 1h --reason 'let alice continue'"
	if got := l.command(w); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
