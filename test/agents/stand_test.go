package agents

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/world"
)

// stand is one deployment for all stories. Each story has an org of its own.
type stand struct {
	*world.World
	binary string

	mu      sync.Mutex
	stories map[string]*story // by org
}

// settings are the members of the orgs of stories. FEW is more than the first call of a task costs, and less than the
// second holds after it.
var settings = map[string]string{
	"text": roomy, "tools": roomy, "thinking": roomy, "run": roomy, "broken": roomy, "fails": roomy, "overloaded": roomy,
	"stop": roomy, "free": roomy,
	"large":  "limits: [{name: day, subject: user, amount: $0.000001, window: 1d}]",
	"used":   "limits: [{name: day, subject: user, amount: $FEW, window: 1d}]",
	"queue":  "limits: [{name: parallel, metric: concurrency, subject: org, amount: 1}]",
	"cancel": "on_disconnect: cancel",
}

const roomy = "limits: [{name: day, subject: user, amount: $1000, window: 1d}]"

// newStand starts the deployment, with a worker.
func newStand(t *testing.T, binary string) *stand {
	t.Helper()
	if skipped {
		t.Skip("`make agents` and `make check` run the agents")
	}
	dir := t.TempDir()
	var text bytes.Buffer
	text.WriteString(`
queue: {keep_alive: 1s}
providers:
  - id: anthropic
    kind: anthropic
    base_url: "${provider}"
    api_key: "${provider_key}"
    pools: [{id: claude, models: [claude-*]}]
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
`)
	for _, p := range append(slices.Clone(programs), sdk) {
		for name, members := range settings {
			fmt.Fprintf(&text, `
  - id: %[1]s
    hold: grow
    %[2]s
    users: [{id: u, keys: [{id: k, hash: "${key:%[1]s}"}]}]
`, p.name+"_"+name, strings.ReplaceAll(members, "$FEW", p.few))
		}
	}
	write(t, filepath.Join(dir, "llmguard.yaml"), text.String())
	s := &stand{World: world.Start(t, binary, dir), binary: binary, stories: map[string]*story{}}
	s.StartWorker()
	s.Provider.Script(s.script)
	return s
}

// script answers a call as its story says.
func (s *stand) script(q *fakeprovider.Request) fakeprovider.Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stories {
		if strings.Contains(q.UserText, st.prompt()) {
			return st.answer(q)
		}
	}
	return say("Nobody tells this.")
}

// llmguard runs a command of the operator.
func (s *stand) llmguard(t *testing.T, args ...string) {
	t.Helper()
	cmd := redistest.Command(t, s.binary, args...)
	cmd.Env = append(os.Environ(), "LLMGUARD_ADMIN_URL="+s.Proxy.Admin, "LLMGUARD_ADMIN_KEY="+s.Keys["ops"])
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("llmguard %v: %v\n%s", args, err, out)
	}
}

// story is what one program does, and how the provider answers it.
type story struct {
	t       *testing.T
	s       *stand
	org     string
	key     string
	answers []fakeprovider.Behaviour // one after the other; the last also for further calls

	mu   sync.Mutex
	seen []int64 // numbers of its calls in the provider's log
}

// begin begins a story of a program.
func (s *stand) begin(t *testing.T, p program, name string, answers ...fakeprovider.Behaviour) *story {
	t.Helper()
	org := p.name + "_" + name
	st := &story{t: t, s: s, org: org, key: s.Keys[org], answers: answers}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stories[org] = st
	return st
}

// prompt is what the program is told, by which the provider recognizes the story.
func (st *story) prompt() string { return "Story " + st.org + ": do the task." }

func (st *story) answer(q *fakeprovider.Request) fakeprovider.Behaviour {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := len(st.seen)
	st.seen = append(st.seen, q.Seq)
	return st.answers[min(n, len(st.answers)-1)]
}

// sent returns the provider's records of the story.
func (st *story) sent() []fakeprovider.Record {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []fakeprovider.Record
	for _, rec := range st.s.Provider.Log() {
		if slices.Contains(st.seen, rec.Seq) {
			out = append(out, rec)
		}
	}
	return out
}

// requests returns the calls of the story in the proxy's log.
func (st *story) requests() []map[string]any {
	var out []map[string]any
	for _, line := range st.s.Proxy.Lines("call") {
		if line["org"] == st.org && line["model"] != nil {
			out = append(out, line)
		}
	}
	return out
}

// charged waits until the ledger has as many entries, and returns them.
func (st *story) charged(n int) []ledger.Entry {
	st.t.Helper()
	var out []ledger.Entry
	store := budget.New(st.s.Redis.DB(), budget.Options{})
	redistest.Eventually(st.t, fmt.Sprint(n, " entries in the ledger"), func() bool {
		out = nil
		err := store.Ledger.Entries(st.t.Context(), st.org, time.Now().Add(-time.Hour), time.Now().Add(time.Hour),
			func(e ledger.Entry) error { out = append(out, e); return nil })
		return err == nil && len(out) >= n
	})
	if len(out) != n {
		st.t.Errorf("got %d entries in the ledger, want %d: %+v", len(out), n, out)
	}
	return out
}

// prices are nano-USD per token: input, cache read, cache write, output.
var prices = map[string][4]int64{
	"claude-opus-5": {5000, 500, 6250, 25_000}, "gpt-5": {1250, 125, 0, 10_000}, "gpt-4o-mini": {150, 75, 0, 600},
}

// bill returns what the provider bills for a call, by an arithmetic of its own.
func bill(rec fakeprovider.Record) int64 {
	u, rates := rec.Usage, prices[rec.Model]
	return (u.Prompt-u.Cached-u.CacheWrite)*rates[0] + u.Cached*rates[1] + u.CacheWrite*rates[2] + u.Completion*rates[3]
}

// say answers with a text, without tools and thinking.
func say(text string) fakeprovider.Behaviour {
	return fakeprovider.Behaviour{Tools: -1, Text: text, Reasoning: -1}
}

// post sends a request with the story's key, and returns the status and the body.
func (st *story) post(path, body string) (int, string, error) {
	req, err := http.NewRequest(http.MethodPost, st.s.Proxy.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+st.key)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: redistest.Bound}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
