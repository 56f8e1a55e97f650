package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// fleet is a deployment with one brake by run, and a server that receives its events.
func fleet(t *testing.T, brake string) (*stack, *inbox) {
	t.Helper()
	box, port := newInbox(t)
	return newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
alerts: {url: "http://localhost:%[1]s/chat"}
labels: [{name: run, from: [header X-Run]}, {name: child, from: [header X-Child]}]
brakes:
  - %[2]s
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    webhooks: [{url: "http://localhost:%[1]s/org", secrets: [%[3]s], events: [brake.fired]}]
    limits: [{name: day, amount: $1000, window: 1d}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`, port, brake, hookSecret)), box
}

// runs are the runs of a fleet, and wild those that run wild.
const runs = 50

var wild = []string{"run-07", "run-19", "run-33"}

// live runs the fleet at both proxies: each run sends calls through its three children, and five more once
// it is stopped. It returns the runs that were stopped, and how many of the counted calls of each run passed.
func (s *stack) live(proxies []*process, body func(run string, i int) (string, bool), counted string) ([]string, map[string]int) {
	var mu sync.Mutex
	stopped, passed := map[string]bool{}, map[string]int{}
	var all sync.WaitGroup
	for n := range runs {
		run := fmt.Sprintf("run-%02d", n)
		all.Go(func() {
			var last [2]bool // whether a proxy has refused a call of the run
			for i, refused := 0, 0; refused < 5; i++ {
				text, more := body(run, i)
				if !more {
					return
				}
				a := post(proxies[(n+i)%2].URL+"/chat/completions", s.keys["alice"], text, "X-Run", run, "X-Child", fmt.Sprint(i%3))
				if a.status == http.StatusOK {
					if last[(n+i)%2] { // the other proxy may need some milliseconds to know the firing
						s.t.Errorf("%s, call %d passes at a proxy that refused one before", run, i)
					}
					mu.Lock()
					if strings.Contains(text, counted) {
						passed[run]++
					}
					mu.Unlock()
					continue
				}
				refused++
				last[(n+i)%2] = true
				mu.Lock()
				if _, code, _ := errorOf(s.t, a); a.status != http.StatusForbidden || code != "brake_stopped" {
					s.t.Errorf("%s, call %d: got %d %s, want 403 brake_stopped", run, i, a.status, a.body)
				}
				if a.header.Get("X-Should-Retry") != "false" || !strings.Contains(a.body, "run="+run) {
					s.t.Errorf("%s: got %v %s, want its name and no retry", run, a.header, a.body)
				}
				stopped[run] = true
				mu.Unlock()
			}
		})
	}
	redistest.Wait(s.t, all.Wait)
	var out []string
	for run := range stopped {
		out = append(out, run)
	}
	slices.Sort(out)
	return out, passed
}

// TestBrakes: of 50 runs with children at two proxies, each rule stops exactly the three that run wild.
// Each firing is reported once, with its evidence. A restart keeps it, a release ends it for that run
// alone, and a simulation of what was recorded fires for the same runs.
func TestBrakes(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		name, brake, why string
		body             func(run string, i int) (string, bool)
		counted          string // in the body of calls that are counted
		allowed          int    // of those; 0: it depends on what others spend
	}{
		{
			"repeats", "{name: loop, by: run, when: {repeats: {more_than: 10, window: 1h}}}", "equal requests in 1h, more than 10",
			func(run string, i int) (string, bool) {
				if slices.Contains(wild, run) && i%2 == 1 {
					return chat("gpt-4o", "again", small), i < 60
				}
				return chat("gpt-4o", fmt.Sprint("step ", i, " of any run"), small), i < 6 || slices.Contains(wild, run)
			}, "again", 10,
		},
		{
			"calls", "{name: loop, by: run, when: {calls: {more_than: 15}}}", "calls in 24h, more than 15",
			func(run string, i int) (string, bool) {
				return chat("gpt-4o", fmt.Sprint("step ", i), small), i < 6 || slices.Contains(wild, run) && i < 60
			}, "step", 15,
		},
		{
			"spend", "{name: loop, by: run, when: {spend: {window: 1h, above: 5x, floor: $0.003}}}", "spent in 1h, more than $0.00",
			func(run string, i int) (string, bool) {
				if slices.Contains(wild, run) { // $0.004 each
					return chat("gpt-4o", fmt.Sprint("[fake: output=400] step ", i), `"max_tokens":400`), i < 60
				}
				return chat("gpt-4o", fmt.Sprint("[fake: output=20] step ", i), `"max_tokens":20`), i < 5
			}, "step", 0,
		},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			s, box := fleet(t, rule.brake)
			proxies := []*process{s.proxy(), s.proxy()}
			s.worker()
			got, passed := s.live(proxies, rule.body, rule.counted)
			if !slices.Equal(got, wild) {
				t.Errorf("got %v stopped, want %v", got, wild)
			}
			for _, run := range wild {
				if rule.allowed > 0 && passed[run] != rule.allowed {
					t.Errorf("%s: got %d calls through, want %d", run, passed[run], rule.allowed)
				}
			}
			s.reported(box, proxies[0], rule.why)
			s.restarted(proxies, rule.body)
		})
	}
}

// reported checks that each firing is listed, in the audit, and was sent once to the org's server and the
// operator's chat.
func (s *stack) reported(box *inbox, p *process, why string) {
	t := s.t
	t.Helper()
	var events []string
	for _, text := range box.await(t, "/org", len(wild)) {
		var e struct {
			Type string `json:"type"`
			Data struct {
				Subject, Action, Text string
				Evidence              struct {
					First string `json:"first_call"`
					Last  string `json:"last_call"`
				}
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e.Type+" "+e.Data.Subject+" "+e.Data.Action)
		if !strings.Contains(e.Data.Text, why) || e.Data.Evidence.First == "" || e.Data.Evidence.Last == "" {
			t.Errorf("got event %s, want evidence with %q and calls", text, why)
		}
	}
	slices.Sort(events)
	var want []string
	for _, run := range wild {
		want = append(want, "brake.fired user=alice, run="+run+" stop")
	}
	if !slices.Equal(events, want) {
		t.Errorf("got events %q, want %q", events, want)
	}
	if posts := box.await(t, "/chat", len(wild)); !strings.Contains(posts[0], `"text":"llmguard: brake loop of org acme`) {
		t.Errorf("got %q in the chat", posts)
	}
	s.delivered()
	if n := len(box.await(t, "/org", len(wild))); n != len(wild) {
		t.Errorf("got %d events, want %d", n, len(wild))
	}
	list := s.llmguard("brakes", "list", "--org", "acme")
	if n := strings.Count(list, why); n != len(wild) {
		t.Errorf("got %d lines with %q, want %d: %s", n, why, len(wild), list)
	}
	if n := strings.Count(s.llmguard("audit", "--org", "acme"), "brake.fire"); n != len(wild) {
		t.Errorf("got %d entries in the audit, want %d", n, len(wild))
	}
	if got := p.value("llmguard_guard_brakes_active"); got != float64(len(wild)) {
		t.Errorf("llmguard_guard_brakes_active is %v, want %d", got, len(wild))
	}
}

// access returns a file with the log of a process.
func (s *stack) access(p *process) string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "access.log")
	if err := os.WriteFile(name, []byte(p.log()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// restarted restarts the proxies, releases one run and simulates what was recorded before.
func (s *stack) restarted(proxies []*process, body func(run string, i int) (string, bool)) {
	t := s.t
	t.Helper()
	logs := []string{s.export()}
	for _, p := range proxies {
		p.terminate()
		logs = append(logs, s.access(p))
	}
	var fired []string
	for _, f := range s.replay(logs...).Firings() {
		fired = append(fired, strings.TrimPrefix(f.Subject, "user=alice, run="))
	}
	slices.Sort(fired)
	if !slices.Equal(fired, wild) {
		t.Errorf("the simulation fires for %v, want %v", fired, wild)
	}
	p := s.proxy()
	send := func(run string) answer {
		text, _ := body(run, 1)
		return post(p.URL+"/chat/completions", s.keys["alice"], text, "X-Run", run)
	}
	want(t, "a stopped run after a restart", send(wild[0]), 403, "brake_stopped")
	s.llmguard("brakes", "release", "--org", "acme", "--brake", "loop", "user=alice", "run="+wild[0], "--reason", "a false alarm")
	until(t, "the released run goes on", func() bool { return send(wild[0]).status == http.StatusOK })
	for range 20 {
		want(t, "the released run", send(wild[0]), 200, "")
	}
	want(t, "another one", send(wild[1]), 403, "brake_stopped")
	if out := s.llmguard("brakes", "list"); strings.Count(out, "released") == 0 {
		t.Errorf("the list has no released run: %s", out)
	}
}
