package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// asking is a deployment whose callers may request more of their tiny limits.
func asking(t *testing.T) (*stack, *inbox) {
	t.Helper()
	box, port := newInbox(t)
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
public_url: https://llm.example.com
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
alerts: {url: "http://localhost:%[1]s/chat", thresholds: [100%%]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
defaults: {raise_requests: {mode: allow, max_amount: $20}}
orgs:
  - id: acme
    over_limit: refuse
    limits: [{name: day, subject: user, window: 1d, amount: "$0.000001"}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
  - id: patient
    limits: [{name: hour, subject: user, window: 1h, amount: "$0.00015"}]
    users: [{id: dora, keys: [{id: k4, hash: "${key:dora}"}]}]
  - id: closed
    raise_requests: {mode: refuse}
    limits: [{name: day, subject: user, window: 1d, amount: "$0.000001"}]
    over_limit: refuse
    users: [{id: carol, keys: [{id: k3, hash: "${key:carol}"}]}]
`, port))
	return s, box
}

// wanted is a limit request as its caller sees it.
type wanted struct {
	ID, Status, Limit string
	Approved          string `json:"approved_usd"`
	Why               string `json:"decision_reason"`
}

func (s *stack) asks(p *process, user, body string) (w wanted) {
	s.t.Helper()
	a := p.do(s.keys[user], http.MethodPost, "/limit_requests?limit=day", body)
	if err := json.Unmarshal([]byte(a.body), &w); err != nil || a.status != http.StatusCreated || w.Status != "pending" {
		s.t.Fatalf("request: got %d %s, want 201 and pending", a.status, a.body)
	}
	return w
}

func (s *stack) wanted(p *process, user, id string) (w wanted) {
	s.t.Helper()
	a := p.do(s.keys[user], http.MethodGet, "/limit_requests/"+id, "")
	if err := json.Unmarshal([]byte(a.body), &w); err != nil || a.status != http.StatusOK {
		s.t.Fatalf("read a request: got %d %s", a.status, a.body)
	}
	return w
}

// TestLimitRequests: a refused caller requests more, the operator's chat is told, an administrator
// approves on the command line, and the caller's next call goes through. Others stay refused.
func TestLimitRequests(t *testing.T) {
	t.Parallel()
	s, box := asking(t)
	p := s.proxy()
	s.worker()
	call := func(user string) answer {
		return post(p.URL+"/chat/completions", s.keys[user], chat("gpt-4o", "hi", `"max_tokens":10`))
	}
	refused := call("alice")
	link := "https://llm.example.com/v1/limit_requests?limit=day"
	if got := refused.header.Get("Llmguard-Ask"); refused.status != http.StatusPaymentRequired || got != link ||
		!strings.Contains(refused.body, link) {
		t.Fatalf("refusal: got %d, Llmguard-Ask %q, %s; want 402 and %s", refused.status, got, refused.body, link)
	}
	if a := call("carol"); a.status != http.StatusPaymentRequired || a.header.Get("Llmguard-Ask") != "" {
		t.Errorf("an org without requests: got %d, Llmguard-Ask %q; want 402 and none", a.status, a.header.Get("Llmguard-Ask"))
	}
	if a := p.do(s.keys["carol"], http.MethodPost, "/limit_requests", `{}`); a.status != http.StatusForbidden {
		t.Errorf("a request in an org without them: got %d %s, want 403", a.status, a.body)
	}

	w := s.asks(p, "alice", `{"amount":"$10","reason":"demo <!channel> <b>& <https://evil.example|here> `+"`x`"+`"}`)
	var told struct{ Text string }
	if err := json.Unmarshal([]byte(box.await(t, "/chat", 1)[0]), &told); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"user alice of org acme requests $10", "limit day of user `alice`", w.ID,
		"`demo &lt;!channel&gt; &lt;b&gt;&amp; &lt;https://evil.example|here&gt; 'x'`",
	} {
		if !strings.Contains(told.Text, want) {
			t.Errorf("the chat got %q, want %q in it", told.Text, want)
		}
	}
	if a := p.do(s.keys["bob"], http.MethodGet, "/limit_requests/"+w.ID, ""); a.status != http.StatusNotFound {
		t.Errorf("another user's request: got %d %s, want 404", a.status, a.body)
	}
	if list := s.llmguard("limits", "requests", "list", "--status", "pending"); !strings.Contains(list, w.ID) {
		t.Errorf("list: got %s, want %s", list, w.ID)
	}

	s.llmguard("limits", "requests", "approve", w.ID, "--amount", "$5", "--reason", "half")
	s.llmguard("limits", "requests", "approve", w.ID) // changes nothing
	until(t, "the caller's call goes through", func() bool { return call("alice").status == http.StatusOK })
	if a := call("bob"); a.status != http.StatusPaymentRequired {
		t.Errorf("another user: got %d, want 402", a.status)
	}
	if got := s.wanted(p, "alice", w.ID); got.Status != "approved" || got.Approved != "5.000000000" || got.Why != "half" {
		t.Errorf("after the approval: got %+v, want $5 approved", got)
	}
	if over := s.llmguard("limits", "overrides", "--org", "acme"); strings.Count(over, w.ID) != 1 {
		t.Errorf("overrides: got %s, want one of %s", over, w.ID)
	}
	box.await(t, "/chat", 2)
	audit := s.llmguard("audit", "--org", "acme")
	for _, want := range []string{"limit_request.create", "user:alice", "limit_request.approve", "half"} {
		if !strings.Contains(audit, want) {
			t.Errorf("audit: got %s, want %s", audit, want)
		}
	}
}

// TestApprovalWakesJobs: a job that waits for a limit runs once a request for more is approved.
func TestApprovalWakesJobs(t *testing.T) {
	t.Parallel()
	s, _ := asking(t)
	p := s.proxy()
	s.worker()
	body := chat("gpt-4o", "hi", `"max_tokens":10`)
	if a := post(p.URL+"/chat/completions", s.keys["dora"], body); a.status != http.StatusOK {
		t.Fatalf("a call within the limit: got %d %s, want 200", a.status, a.body)
	}
	a := post(p.URL+"/chat/completions", s.keys["dora"], body, "Prefer", "respond-async")
	if a.status != http.StatusAccepted {
		t.Fatalf("job: got %d %s, want 202", a.status, a.body)
	}
	id := strings.TrimPrefix(a.header.Get("Location"), "/v1/jobs/")
	until(t, "the job waits for the limit", func() bool {
		return strings.Contains(p.do(s.keys["dora"], http.MethodGet, "/jobs/"+id, "").body, "limit:hour")
	})
	w := s.asks(p, "dora", `{"limit":"hour","amount":1,"reason":"report"}`)
	s.llmguard("limits", "requests", "approve", w.ID)
	p.awaitJob(s.keys["dora"], id)
}

// TestLimitRequestDecisions: of several decisions at once at two processes one counts. A denied,
// withdrawn or expired request raises nothing.
func TestLimitRequestDecisions(t *testing.T) {
	t.Parallel()
	s, _ := asking(t)
	p := s.proxy()
	w := s.asks(p, "alice", `{"amount":10,"reason":"demo"}`)
	if again := s.asks(p, "alice", `{"amount":10,"reason":"demo"}`); again.ID != w.ID {
		t.Errorf("a repetition: got %s, want %s", again.ID, w.ID)
	}
	if a := p.do(s.keys["alice"], http.MethodPost, "/limit_requests", `{"limit":"day","amount":11,"reason":"demo"}`); a.status != http.StatusConflict {
		t.Errorf("a second request for a limit: got %d %s, want 409", a.status, a.body)
	}
	s.llmguard("limits", "requests", "deny", w.ID, "--reason", "use batches")
	if got := s.wanted(p, "alice", w.ID); got.Status != "denied" || got.Why != "use batches" {
		t.Errorf("after the denial: got %+v", got)
	}
	if out, err := s.try("limits", "requests", "approve", w.ID); err == nil || !strings.Contains(out, "already denied") {
		t.Errorf("approve after a denial: got %v, %s; want a conflict", err, out)
	}

	w = s.asks(p, "alice", `{"amount":10,"reason":"demo"}`)
	if a := p.do(s.keys["alice"], http.MethodDelete, "/limit_requests/"+w.ID, ""); a.status != http.StatusOK {
		t.Errorf("withdraw: got %d %s, want 200", a.status, a.body)
	}
	if out, err := s.try("limits", "requests", "approve", w.ID); err == nil || !strings.Contains(out, "already withdrawn") {
		t.Errorf("approve after a withdrawal: got %v, %s; want a conflict", err, out)
	}

	end := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
	w = s.asks(p, "alice", `{"amount":10,"reason":"demo","until":"`+end+`"}`)
	until(t, "it expires", func() bool { return s.wanted(p, "alice", w.ID).Status == "expired" })
	if out, err := s.try("limits", "requests", "approve", w.ID); err == nil || !strings.Contains(out, "already expired") {
		t.Errorf("approve after the end: got %v, %s; want a conflict", err, out)
	}

	w = s.asks(p, "alice", `{"amount":10,"reason":"demo"}`)
	var deciding sync.WaitGroup
	for i := range 4 {
		deciding.Go(func() {
			how := []string{"limits", "requests", "approve", w.ID}
			if i%2 == 1 {
				how = []string{"limits", "requests", "deny", w.ID, "--reason", "no"}
			}
			_, _ = s.try(how...)
		})
	}
	redistest.Wait(t, deciding.Wait)
	audit := s.llmguard("audit", "--org", "acme", "-o", "jsonl")
	decisions := 0
	for line := range strings.Lines(audit) {
		var e struct{ Action, Target string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Target == w.ID && e.Action != "limit_request.create" {
			decisions++
		}
	}
	if decisions != 1 {
		t.Errorf("decisions of one request: got %d, want 1:\n%s", decisions, audit)
	}
}

// TestLimitRequestsAreBounded: bad values get 400 that names them, and a user's requests of a day
// are bounded.
func TestLimitRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := asking(t)
	p := s.proxy()
	for body, param := range map[string]string{
		`{"amount":5,"reason":"r","limit":"none"}`: "limit",
		`{"reason":"r"}`:                                           "amount",
		`{"amount":"$20.01","reason":"r"}`:                         "amount",
		`{"amount":"-1","reason":"r"}`:                             "amount",
		`{"amount":{},"reason":"r"}`:                               "amount",
		`{"amount":5}`:                                             "reason",
		`{"amount":5,"reason":"a\nb"}`:                             "reason",
		`{"amount":5,"reason":"a\u202eb"}`:                         "reason",
		`{"amount":5,"reason":"` + strings.Repeat("r", 501) + `"}`: "reason",
		`{"amount":5,"reason":"r","until":"2020-01-01T00:00:00Z"}`: "until",
		`{"amount":5,"reason":"r","until":"2100-01-01T00:00:00Z"}`: "until",
		`{"amount":5,"reason":"r","user":"bob"}`:                   "user",
		`{"amount":5,"reason":"r","limit":"request:day"}`:          "limit",
	} {
		a := p.do(s.keys["alice"], http.MethodPost, "/limit_requests?limit=day", body)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, `"param":"`+param+`"`) {
			t.Errorf("%s: got %d %s, want 400 about %s", body, a.status, a.body, param)
		}
	}
	for range 10 {
		w := s.asks(p, "alice", `{"amount":5,"reason":"r"}`)
		p.do(s.keys["alice"], http.MethodDelete, "/limit_requests/"+w.ID, "")
	}
	if a := p.do(s.keys["alice"], http.MethodPost, "/limit_requests?limit=day", `{"amount":5,"reason":"r"}`); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("the 11th request of a day: got %d %s, want 429 with Retry-After", a.status, a.body)
	}
}
