package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/bench/budget/attack"
	"github.com/llmguard/llmguard/bench/budget/fixture"
	"github.com/llmguard/llmguard/bench/budget/gateway"
	"github.com/llmguard/llmguard/bench/budget/report"
)

// The test's binary is also the fixtures' program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "fixture" {
		if err := fixture.Serve(context.Background(), os.Args[2:]); err != nil {
			fail(err)
		}
		return
	}
	os.Exit(m.Run())
}

// results runs attacks in the short form.
func results(t *testing.T, args ...string) map[string]*attack.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // with the build of llmguard
	defer cancel()
	base := filepath.Join(t.TempDir(), "result")
	if _, err := run(ctx, append(args, "-short", "-out", base, "-keep", t.TempDir()), io.Discard); err != nil {
		t.Fatal(err)
	}
	written, err := report.Read(base + ".json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*attack.Result{}
	for _, r := range written.Results {
		out[r.Gateway+" "+r.Attack] = r
		if r.Error != "" {
			t.Errorf("%s, %s: %s", r.Gateway, r.Attack, r.Error)
		}
	}
	return out
}

// TestFixtures: the fixtures have the scores that follow from how they count. Overspend is in
// percent of the budget.
func TestFixtures(t *testing.T) {
	t.Parallel()
	type score struct {
		overspend int64
		falsely   bool
	}
	want := map[string]score{
		"none burst": {500, false}, "none replicas": {500, false}, "none hang-ups": {0, false}, "none cached-input": {0, false},
		"after burst": {500, false}, "after replicas": {500, false}, "after hang-ups": {0, false}, "after cached-input": {0, false},
		"leaks burst": {0, false}, "leaks replicas": {0, false}, "leaks hang-ups": {0, true}, "leaks cached-input": {0, false},
		"process burst": {0, false}, "process replicas": {100, false}, "process hang-ups": {0, false}, "process cached-input": {0, false},
	}
	got := results(t, "-gateways", "fixtures", "-attacks", "burst,replicas,hang-ups,cached-input")
	if len(got) != len(want) {
		t.Errorf("%d results, want %d", len(got), len(want))
	}
	for name, w := range want {
		r := got["fixture-"+name]
		if r == nil {
			t.Errorf("%s: no result", name)
			continue
		}
		if s := (score{int64(100 * r.Overspend / r.Budget), r.FalseRefusals > 0}); s != w {
			t.Errorf("%s: %+v, want %+v", name, s, w)
		}
		// A fixture cannot know whether a call that was hung up immediately had been sent.
		if r.Overcharge != 0 && r.Attack != "hang-ups" {
			t.Errorf("%s: overcharge %d", name, r.Overcharge)
		}
		if r.Failed() != (len(r.Events) > 0) {
			t.Errorf("%s: failed %t with %d events", name, r.Failed(), len(r.Events))
		}
	}
}

// quick are attacks that need no long wait.
const quick = "burst,hang-ups,retries,cached-input,reasoning,batch,key-rotation,restart-term,restart-kill,store-gone,replicas," +
	"clock-step,provider-errors,missing-usage,images,audio,concurrency"

// TestLLMGuard: llmguard holds in the short form.
func TestLLMGuard(t *testing.T) {
	t.Parallel()
	for name, r := range results(t, "-gateways", "llmguard", "-attacks", quick, "-parallel", "4") {
		if r.NA == "" && r.Failed() && !r.Documented() {
			t.Errorf("%s: %s", name, report.Line(r))
		}
		if r.NA == "" && r.Calls.Served == 0 {
			t.Errorf("%s: no call was served", name)
		}
	}
}

// TestManifests: all manifests are complete, and name attacks that exist.
func TestManifests(t *testing.T) {
	paths, err := filepath.Glob("gateways/*.yaml")
	if err != nil || len(paths) < 13 {
		t.Fatalf("%d manifests, %v", len(paths), err)
	}
	for _, path := range paths {
		m, err := gateway.Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, reasons := range []map[string]string{m.Cannot, m.Reasons} {
			for name := range reasons {
				if !slices.ContainsFunc(attack.All, func(a attack.Attack) bool { return a.Name == name }) {
					t.Errorf("%s: there is no attack %q", path, name)
				}
			}
		}
		if err := m.Try(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if m.Status != "run" && len(m.Sources) == 0 {
			t.Errorf("%s: it was not run, and names no documentation", path)
		}
	}
}

// TestReadme: the page lists every attack.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## The attacks")
	for _, a := range attack.All {
		if !strings.Contains(table, "`"+a.Name+"`") {
			t.Errorf("README.md does not list the attack %s", a.Name)
		}
	}
}

// TestCompare: a comparison shows what has changed, and nothing else.
func TestCompare(t *testing.T) {
	before := &report.Run{Results: []*attack.Result{{Gateway: "g", Attack: "burst", Budget: 100}, {Gateway: "g", Attack: "images"}}}
	now := &report.Run{Results: []*attack.Result{{Gateway: "g", Attack: "burst", Budget: 100, Overspend: 50}, {Gateway: "g", Attack: "images"}}}
	var out strings.Builder
	now.Compare(&out, before)
	if text := out.String(); !strings.Contains(text, "g burst: held") || !strings.Contains(text, "failed (overspend $0.00000005 (50%)") ||
		!strings.Contains(text, "1 are the same") {
		t.Error(text)
	}
}
