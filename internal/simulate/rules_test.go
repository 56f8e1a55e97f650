package simulate_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// nothingKnown is a policy that skips every call.
func nothingKnown() simulate.Policy {
	return simulate.Policy{Name: "none", Guard: &guard.Policy{}}
}

// under is a policy with one org, acme, with these limits, and a pool without quota.
func under(t *testing.T, limits ...budget.Limit) simulate.Policy {
	t.Helper()
	base := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "all"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return simulate.Policy{
		Name: "p", Pools: []queue.Pool{{ID: "all"}},
		Guard: &guard.Policy{Orgs: map[string]*guard.Org{"acme": {Org: settings.Org{ID: "acme"}, Limits: limits}}, Providers: set},
	}
}

// refusing is under for an org whose calls do not wait.
func refusing(t *testing.T, limits ...budget.Limit) simulate.Policy {
	p := under(t, limits...)
	p.Guard.Orgs["acme"].OverLimit = "refuse"
	return p
}

func limitOf(shape budget.Shape) budget.Limit {
	return budget.Limit{ID: "l", Subject: budget.Org, Metric: budget.Cost, Shape: shape}
}

// callAt returns a call of ann's after some seconds that costs what it holds and ends
// immediately.
func callAt(seconds float64, cost int64) simulate.Call {
	return simulate.Call{
		Org: "acme", User: "ann", Key: "k", Model: "m", Endpoint: "chat.completions",
		At: begin.Add(time.Duration(seconds * float64(time.Second))), Held: nano(cost), Cost: nano(cost),
	}
}

func traceOf(t *testing.T, calls ...simulate.Call) *simulate.Trace {
	t.Helper()
	trace := simulate.NewTrace()
	for _, c := range calls {
		err := trace.Add(c)
		if err != nil {
			t.Fatal(err)
		}
	}
	trace.Sort()
	return trace
}

func run(t *testing.T, trace *simulate.Trace, p simulate.Policy) *simulate.Result {
	t.Helper()
	result, err := simulate.Run(t.Context(), trace, p, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func decisions(t *testing.T, trace *simulate.Trace, p simulate.Policy) []simulate.Decision {
	t.Helper()
	var out []simulate.Decision
	run(t, trace, p).Each(func(d simulate.Decision) bool {
		out = append(out, d)
		return true
	})
	return out
}

func reportOf(t *testing.T, trace *simulate.Trace, p simulate.Policy, by ...string) simulate.Report {
	t.Helper()
	report, err := run(t, trace, p).Report(by)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// outcomes formats decisions as "immediate" or "waited 5s".
func outcomes(list []simulate.Decision) []string {
	var out []string
	for _, d := range list {
		text := d.Outcome.String()
		if d.Wait > 0 {
			text += " " + d.Wait.String()
		}
		out = append(out, text)
	}
	return out
}

func checkOutcomes(t *testing.T, list []simulate.Decision, want ...string) {
	t.Helper()
	if got := outcomes(list); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
