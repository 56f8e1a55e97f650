package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/pricing"
)

// traced is a deployment that has made the calls of a trace and stopped.
type traced struct {
	*stack
	window         time.Duration // of the limit that makes calls wait
	price          pricing.Nano  // of one call
	ledger, access string        // file names
}

// TestSimulateIsReality: a simulation of the ledger and access log of a trace, under the same
// configuration, reproduces what really happened on a proxy and a worker: which calls ran
// immediately, which waited, which were refused and by what limit, what limits in shadow mode
// would have done, and the spend to the nano-USD.
func TestSimulateIsReality(t *testing.T) {
	t.Parallel()
	// The number of waiting calls is known in advance only if all calls arrive in the first
	// half of the window. The window grows until they do.
	for window := 3 * time.Second; ; window *= 2 {
		s := trace(t, window)
		spread := s.spread("acme")
		if spread < window/2 {
			s.checkDecisions(s.replay(s.ledger, s.access))
			s.checkCommand()
			s.checkShadow()
			return
		}
		if window > time.Minute {
			t.Fatalf("nine calls at once came within %s, with a window of %s", spread, window)
		}
	}
}

const simulated = `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}", pools: [{id: all, rpm: 100000, tpm: 100M}]}
orgs:
  - id: acme
    limits:
      - {name: short, subject: user, metric: requests, amount: 3, window: %s}
      - {name: shade, metric: requests, amount: 2, window: 1h, mode: shadow}
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
  - id: globex
    over_limit: refuse
    limits: [{name: hard, subject: user, amount: %q, window: 1h}]
    users: [{id: gus, keys: [{id: k3, hash: "${key:gus}"}]}]
`

// trace makes calls that run immediately, wait, or are refused.
func trace(t *testing.T, window time.Duration) *traced {
	t.Helper()
	price := costOfOne(t)
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(simulated, window, (10*price).String()))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	proxy := s.proxy()
	worker := s.worker()
	body := chat("gpt-4o", callText, fmt.Sprintf(`"max_tokens":%d`, callOutput))
	send := func(user string, want int) {
		if a := post(proxy.URL+"/chat/completions", s.keys[user], body); a.status != want {
			t.Errorf("%s: status %d, want %d: %s", user, a.status, want, a.body)
		}
	}
	for i := range 14 { // sequentially: the budget is worth ten
		want := http.StatusOK
		if i >= 10 {
			want = http.StatusTooManyRequests
		}
		send("gus", want)
	}
	var wg sync.WaitGroup
	for i := range 9 { // concurrently: two of alice's and one of bob's must wait
		user := "alice"
		if i >= 5 {
			user = "bob"
		}
		wg.Go(func() { send(user, http.StatusOK) })
	}
	redistest.Wait(s.t, wg.Wait)
	s.settled("acme", 9)
	s.settled("globex", 10)
	proxy.terminate()
	worker.terminate()
	access := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(access, []byte(proxy.log()+worker.log()), 0o600); err != nil {
		t.Fatal(err)
	}
	return &traced{stack: s, window: window, price: price, ledger: s.export(), access: access}
}

// spread returns the time between the first and the last arrival of an org's calls.
func (s *stack) spread(org string) time.Duration {
	s.t.Helper()
	var came []time.Time
	for _, e := range s.entries(org) {
		came = append(came, arrival(e))
	}
	slices.SortFunc(came, time.Time.Compare)
	return came[len(came)-1].Sub(came[0])
}

// arrival returns when a call arrived, as a simulation derives it from the ledger.
func arrival(e ledger.Entry) time.Time {
	return time.UnixMicro(e.HeldUS).Add(-time.Duration(e.WaitedMS) * time.Millisecond)
}

// export runs `llmguard usage export` and returns the file that it wrote.
func (s *stack) export() string {
	s.t.Helper()
	out, err := redistest.Command(s.t, binary, "usage", "export", "-c", s.path, "--org", "all", "--from", "1h").Output()
	if err != nil {
		s.t.Fatalf("usage export: %v", err)
	}
	path := filepath.Join(s.t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// replay simulates logs under the stack's own configuration.
func (s *stack) replay(logs ...string) *simulate.Result {
	s.t.Helper()
	cfg, err := config.LoadPolicy(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	policy, err := app.Policy(cfg, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	r := simulate.NewReader()
	for _, name := range logs {
		file, err := os.Open(name)
		if err != nil {
			s.t.Fatal(err)
		}
		defer file.Close()
		if err := r.Read(context.Background(), name, file); err != nil {
			s.t.Fatal(err)
		}
	}
	trace, err := r.Trace()
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := simulate.Run(context.Background(), trace, policy, simulate.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// checkDecisions compares the outcome of each call with the ledger.
func (s *traced) checkDecisions(result *simulate.Result) {
	s.t.Helper()
	waited := map[time.Time]int64{} // ms by arrival, for calls in the ledger
	for _, org := range []string{"acme", "globex"} {
		for _, e := range s.entries(org) {
			waited[arrival(e)] = e.WaitedMS
		}
	}
	result.Each(func(d simulate.Decision) bool {
		live, ran := waited[d.Call.At]
		switch {
		case d.Call.Refused:
			if d.Outcome != simulate.Refused || d.Why != "hard" {
				s.t.Errorf("a call that was refused: %s %s", d.Outcome, d.Why)
			}
		case !ran:
			s.t.Errorf("a call at %s is in no ledger", d.Call.At)
		case live == 0 && d.Outcome != simulate.AtOnce, live > 0 && (d.Outcome != simulate.Waited || d.Why != "short"):
			s.t.Errorf("%s waited %d ms, simulated: %s %s, by %q", d.Call.User, live, d.Outcome, d.Wait, d.Why)
		case live > 0:
			s.t.Logf("%s waited %d ms, simulated %d ms", d.Call.User, live, d.Wait.Milliseconds())
			// A simulated worker is never late; the window has sixty slots.
			if early := d.Wait.Milliseconds() - live; early > s.window.Milliseconds()/60+1 {
				s.t.Errorf("%s waited %d ms, simulated %d ms more", d.Call.User, live, early)
			}
		}
		return true
	})
}

// checkCommand compares the totals that the command prints.
func (s *traced) checkCommand() {
	s.t.Helper()
	out, err := redistest.Command(s.t, binary, "simulate", "--log", s.ledger, "--log", s.access, "--policy", s.path, "-o", "json").Output()
	if err != nil {
		s.t.Fatalf("simulate: %v", err)
	}
	var got struct{ Reports []simulate.Report }
	if err := json.Unmarshal(out, &got); err != nil {
		s.t.Fatal(err)
	}
	total, shade := got.Reports[0].Total, 0
	if total.Calls != 23 || total.AtOnce != 16 || total.Waited != 3 || total.Refused != 4 || total.GaveUp != 0 {
		s.t.Errorf("simulated %+v", total)
	}
	if total.Spend != 19*s.price || total.Recorded != 19*s.price {
		s.t.Errorf("simulated spend %v of %v recorded, want %v", total.Spend, total.Recorded, 19*s.price)
	}
	for _, l := range got.Reports[0].Shadow {
		shade += l.Waited + l.Refused
	}
	if shade != 7 {
		s.t.Errorf("the limit in the shadow would have held back %d, want 7", shade)
	}
}

// checkShadow checks the output of `llmguard limits shadow`: of nine calls, all but two
// exceeded the limit in shadow mode, and ran.
func (s *traced) checkShadow() {
	s.t.Helper()
	for _, args := range [][]string{{"--log", s.ledger}, {"-c", s.path, "--org", "all", "--from", "1h"}} {
		out, err := redistest.Command(s.t, binary, append([]string{"limits", "shadow", "-o", "json"}, args...)...).Output()
		if err != nil {
			s.t.Fatalf("limits shadow: %v", err)
		}
		var got simulate.ShadowReport
		if err := json.Unmarshal(out, &got); err != nil {
			s.t.Fatal(err)
		}
		if got.Calls != 19 || got.HeldBack != 7 || len(got.Limits) != 1 || got.Limits[0].Limit != "shade" || got.Limits[0].Waited != 7 {
			s.t.Errorf("limits shadow %s: %s", strings.Join(args, " "), out)
		}
	}
}
