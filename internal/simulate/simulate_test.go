package simulate

import (
	"fmt"
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

// start is a full minute, so that slots of windows start with it.
var start = time.Date(2026, 11, 18, 10, 20, 0, 0, time.UTC)

// policyOf is a policy with one org, acme, and one pool for all models.
func policyOf(t *testing.T, pool queue.Pool, limits ...budget.Limit) Policy {
	t.Helper()
	base, err := url.Parse("http://127.0.0.1:1/v1")
	if err != nil {
		t.Fatal(err)
	}
	pool.ID = "all"
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "all"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return Policy{
		Name: "p", Pools: []queue.Pool{pool},
		Guard: &guard.Policy{Orgs: map[string]*guard.Org{"acme": {Org: settings.Org{ID: "acme"}, Limits: limits}}, Providers: set},
	}
}

func window(id string, amount int64, width time.Duration) budget.Limit {
	return budget.Limit{ID: id, Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: width}}
}

// call returns a user's call after some seconds that holds 100, costs 60 and takes 2 s.
func call(user string, at float64) Call {
	return Call{
		Org: "acme", User: user, Key: "k", Model: "m", Endpoint: "chat.completions", At: start.Add(time.Duration(at * float64(time.Second))),
		Took: 2 * time.Second, Held: 100, Cost: 60, HeldTokens: 10, Tokens: 6, QuotaTokens: 10,
	}
}

func traceOf(t *testing.T, calls ...Call) *Trace {
	t.Helper()
	trace := NewTrace()
	for _, c := range calls {
		if err := trace.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	trace.Sort()
	return trace
}

// decide replays a trace and returns "outcome wait why" for each call.
func decide(t *testing.T, trace *Trace, p Policy) []string {
	t.Helper()
	result, err := Run(t.Context(), trace, p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	result.Each(func(d Decision) bool {
		text := d.Outcome.String()
		if d.Wait > 0 {
			text += " " + d.Wait.String()
		}
		if d.Why != "" {
			text += " " + d.Why
		}
		out = append(out, text)
		return true
	})
	return out
}

func want(t *testing.T, got []string, list ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(list) {
		t.Errorf("got\n%q, want\n%q", got, list)
	}
}

// TestDecisions replays small traces whose outcome can be computed by hand.
func TestDecisions(t *testing.T) {
	minute := window("min", 200, time.Minute)
	t.Run("a window", func(t *testing.T) {
		// Two are held. The third waits first until the first has returned 40, which leaves
		// 160, and then until the one-second slots of both have left the window.
		got := decide(t, traceOf(t, call("ann", 0), call("ann", 1), call("ann", 1.5), call("bob", 1.5)), policyOf(t, queue.Pool{}, minute))
		want(t, got, "immediate", "immediate", "waited 59.5s min", "immediate")
	})
	t.Run("too large", func(t *testing.T) {
		got := decide(t, traceOf(t, call("ann", 0)), policyOf(t, queue.Pool{}, window("w", 99, time.Minute)))
		want(t, got, "refused w")
	})
	t.Run("an org that refuses", func(t *testing.T) {
		p := policyOf(t, queue.Pool{}, minute)
		p.Guard.Orgs["acme"].OverLimit = "refuse"
		want(t, decide(t, traceOf(t, call("ann", 0), call("ann", 1), call("ann", 1.5)), p), "immediate", "immediate", "refused min")
	})
	t.Run("no patience", func(t *testing.T) {
		p := policyOf(t, queue.Pool{}, window("hour", 200, time.Hour))
		want(t, decide(t, traceOf(t, call("ann", 0), call("ann", 1), call("ann", 4)), p), "immediate", "immediate", "refused hour")
	})
	t.Run("in the shadow", func(t *testing.T) {
		l := minute
		l.Mode = budget.Shadow
		p := policyOf(t, queue.Pool{}, l)
		trace := traceOf(t, call("ann", 0), call("ann", 1), call("ann", 1.5))
		want(t, decide(t, trace, p), "immediate", "immediate", "immediate")
		result, err := Run(t.Context(), trace, p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		report, err := result.Report([]string{"user"})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Shadow) != 1 || report.Shadow[0].Waited != 1 || report.Shadow[0].User != "ann" {
			t.Errorf("in the shadow: %+v", report.Shadow)
		}
	})
	t.Run("a place", func(t *testing.T) {
		// One call at a time: the second runs when the first has ended, and the third, of
		// another user, after that.
		got := decide(t, traceOf(t, call("ann", 0), call("ann", 1), call("bob", 1.5)), policyOf(t, queue.Pool{Concurrency: 1}))
		want(t, got, "immediate", "waited 1s quota of all (concurrency)", "waited 2.5s quota of all (concurrency)")
	})
	t.Run("a job without a caller", func(t *testing.T) {
		c := call("ann", 0)
		c.Class = "batch"
		want(t, decide(t, traceOf(t, c), policyOf(t, queue.Pool{}, minute)), "waited")
	})
	t.Run("nobody knows the org", func(t *testing.T) {
		c := call("ann", 0)
		c.Org = "globex"
		want(t, decide(t, traceOf(t, c), policyOf(t, queue.Pool{}, minute)), "skipped org globex is not in p")
	})
	t.Run("a spend cap", func(t *testing.T) {
		p := policyOf(t, queue.Pool{})
		p.Guard.Caps = []budget.Cap{{Limits: []budget.Limit{{ID: "all", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Bucket, Amount: 150}}}}}
		p.Guard.Orgs["acme"].OverLimit = "refuse"
		want(t, decide(t, traceOf(t, call("ann", 0), call("bob", 5), call("bob", 9)), p), "immediate", "refused cap of the deployment: all", "refused cap of the deployment: all")
	})
}

// TestReport: calls that ran are spent, others are not.
func TestReport(t *testing.T) {
	p := policyOf(t, queue.Pool{}, window("hour", 200, time.Hour))
	trace := traceOf(t, call("ann", 0), call("ann", 1), call("ann", 4), call("bob", 5))
	result, err := Run(t.Context(), trace, p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := result.Report([]string{"user"})
	if err != nil {
		t.Fatal(err)
	}
	total := report.Total
	if total.Calls != 4 || total.AtOnce != 3 || total.Refused != 1 || total.Spend != 180 || total.Unspent != 60 || total.Recorded != 240 {
		t.Errorf("total %+v", total)
	}
	if len(report.Lines) != 2 || report.Lines[0].User != "ann" || report.Lines[0].Spend != 120 || report.Lines[1].Spend != 60 {
		t.Errorf("lines %+v", report.Lines)
	}
	var spend pricing.Nano
	for _, s := range report.Timeline {
		spend += s.Spend
	}
	if spend != total.Spend {
		t.Errorf("the timeline spends %d of %d", spend, total.Spend)
	}
}

// TestRefusedCalls: calls refused when recorded get the typical cost of the others.
func TestRefusedCalls(t *testing.T) {
	refused := call("ann", 3)
	refused.Refused, refused.Held, refused.Cost, refused.Tokens, refused.Took = true, 50, 0, 0, 0
	trace := traceOf(t, call("ann", 0), refused)
	if c := trace.call(1); c.Cost != 30 || c.Took != 2*time.Second {
		t.Errorf("lent %+v", c)
	}
}
