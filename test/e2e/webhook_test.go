package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

const (
	hookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldHookSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	wrongSecret   = "whsec_FxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA"
)

// hooks is an org's webhook server.
type hooks struct {
	*httptest.Server
	mu    sync.Mutex
	posts []hookPost
}

// hookPost is a delivery, in the form that the npm test reads.
type hookPost struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`

	path  string
	event struct {
		ID, Type string
		Data     struct{ ID string }
	}
}

func newHooks(t *testing.T) *hooks {
	h := &hooks{}
	h.Server = httptest.NewServer(h.handler(t, http.StatusOK))
	t.Cleanup(h.Close)
	return h
}

// handler records deliveries and responds with a status.
func (h *hooks) handler(t *testing.T, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p := hookPost{Headers: map[string]string{}, Body: string(body), path: r.URL.Path}
		for name := range r.Header {
			p.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
		if err := json.Unmarshal(body, &p.event); err != nil {
			t.Errorf("posted %q: %v", body, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.posts = append(h.posts, p)
		w.WriteHeader(status)
	})
}

func (h *hooks) got() []hookPost {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.posts)
}

// about returns the types of the events about a job at a path.
func (h *hooks) about(id, path string) (types []string) {
	for _, p := range h.got() {
		if p.event.Data.ID == id && p.path == path {
			types = append(types, p.event.Type)
		}
	}
	return types
}

func (h *hooks) await(t *testing.T, patience time.Duration, id, path, typ string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if slices.Contains(h.about(id, path), typ) {
			return
		}
	}
	t.Fatalf("%s was never told %s of %s, but %v", path, typ, id, h.about(id, path))
}

func hookStack(t *testing.T, h *hooks) *stack {
	_, port, err := net.SplitHostPort(h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return newStack(t, fakeprovider.Options{}, fmt.Sprintf("files: {store: %q}", t.TempDir())+fmt.Sprintf(`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
orgs:
  - id: acme
    webhooks:
      - {url: "http://localhost:%[1]s/org", secrets: [%[2]s, %[3]s], events: [job.*, response.*, batch.*]}
    request_webhooks: {hosts: ["localhost:%[1]s"], secrets: [%[2]s, %[3]s]}
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
`, port, hookSecret, oldHookSecret))
}

// TestWebhooks: when jobs end, whatever ended them, the org's server and the one named in the
// request are notified, in a form that the openai package accepts.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	s := hookStack(t, h)
	p := s.proxy()
	body := chat("gpt-4o-mini", "hi", `"max_tokens":5`)
	mine := strings.Replace(h.URL, "127.0.0.1", "localhost", 1) + "/mine"
	ask := func(headers ...string) job {
		t.Helper()
		a := post(p.URL+"/chat/completions", s.keys["alice"], body, append(headers, "Prefer", "respond-async")...)
		var j job
		if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		return j
	}
	for url, code := range map[string]string{
		"http://169.254.169.254/latest": "webhook_not_allowed", "https://evil.example/": "webhook_not_allowed", "nonsense": "webhook_not_allowed",
	} {
		a := post(p.URL+"/chat/completions", s.keys["alice"], body, "Prefer", "respond-async", "X-Llmguard-Webhook", url)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, code) {
			t.Errorf("%s: status %d: %s", url, a.status, a.body)
		}
	}
	if a := post(p.URL+"/chat/completions", s.keys["alice"], body, "X-Llmguard-Webhook", mine); a.status != http.StatusBadRequest || !strings.Contains(a.body, "invalid_webhook") {
		t.Errorf("without respond-async: status %d: %s", a.status, a.body)
	}

	// No worker is running when this job ends, so nothing is delivered yet.
	cancelled := ask("X-Llmguard-Webhook", mine)
	if a := post(p.URL+"/jobs/"+cancelled.ID+"/cancel", s.keys["alice"], ""); a.status != http.StatusOK {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	p.kill()
	worker := s.worker()
	p = s.proxy()
	done := ask("X-Llmguard-Webhook", mine)
	plain := ask()
	const patience = 2 * time.Minute
	for _, path := range []string{"/org", "/mine"} {
		h.await(t, patience, cancelled.ID, path, "job.cancelled")
		h.await(t, patience, done.ID, path, "job.succeeded")
	}
	h.await(t, patience, plain.ID, "/org", "job.succeeded")
	hookedResponses(t, h, s, p, mine)
	hookedBatches(t, h, s, p, mine)
	hookedEnds(t, h, s, p, worker)
	if n := len(h.about(plain.ID, "/mine")); n != 0 {
		t.Errorf("told %d times of a job that did not ask for it", n)
	}
	unwrap(t, h.got())
}

// hookedResponses creates background responses, one of them incomplete.
func hookedResponses(t *testing.T, h *hooks, s *stack, p *process, mine string) {
	t.Helper()
	for body, typ := range map[string]string{
		background("[fake: output=20]", ""):                "response.completed",
		background("[fake: output=20]", `,"stream":true`):  "response.completed",
		background("[fake: output=400]", ""):               "response.incomplete",
		background("[fake: output=400]", `,"stream":true`): "response.incomplete",
		background("[fake: status=400]", ``):               "response.failed",
	} {
		a := post(p.URL+"/responses", s.keys["alice"], body, "X-Llmguard-Webhook", mine)
		_, rest, _ := strings.Cut(a.body, `"id":"resp_`)
		id, _, ok := strings.Cut(rest, `"`)
		if a.status != http.StatusOK || !ok {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		for _, path := range []string{"/org", "/mine"} {
			h.await(t, 2*time.Minute, "resp_"+id, path, typ)
		}
	}
}

// hookedBatches runs one batch and lets another fail.
func hookedBatches(t *testing.T, h *hooks, s *stack, p *process, mine string) {
	t.Helper()
	c := goClient(p, s.keys["alice"])
	for line, typ := range map[string]string{
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":` + chat("gpt-4o-mini", "hi", `"max_tokens":5`) + `}`: "batch.completed",
		`{"nonsense":1}`: "batch.failed",
	} {
		f, err := c.CreateFileBytes(t.Context(), openai.FileBytesRequest{Name: "in.jsonl", Bytes: []byte(line + "\n"), Purpose: openai.PurposeBatch})
		if err != nil {
			t.Fatal(err)
		}
		request := openai.CreateBatchRequest{
			InputFileID: f.ID, Endpoint: openai.BatchEndpointChatCompletions, CompletionWindow: "24h",
			Metadata: map[string]any{"llmguard_webhook": "https://evil.example/"},
		}
		if _, err := c.CreateBatch(t.Context(), request); err == nil || !strings.Contains(err.Error(), "evil.example") {
			t.Errorf("a batch that names a foreign target: %v", err)
		}
		request.Metadata["llmguard_webhook"] = mine
		b, err := c.CreateBatch(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/org", "/mine"} {
			h.await(t, 2*time.Minute, b.ID, path, typ)
			if n := len(h.about(b.ID, path)); n != 1 {
				t.Errorf("%s was told %d times of %s", path, n, b.ID)
			}
		}
	}
}

// hookedEnds cancels one batch and lets another expire before they start; no worker runs until
// then.
func hookedEnds(t *testing.T, h *hooks, s *stack, p, worker *process) {
	t.Helper()
	worker.kill()
	cancelled, expired := s.batch(p, s.uploadLines(p, 3, "")), s.batch(p, s.uploadLines(p, 3, ""))
	if a := post(p.URL+"/batches/"+cancelled+"/cancel", s.keys["alice"], ""); a.status != http.StatusOK {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	if err := s.redis.Client().HSet(t.Context(), "lg:{"+expired+"}:batch", "expires", time.Now().Unix()-1).Err(); err != nil {
		t.Fatal(err)
	}
	s.worker()
	for id, typ := range map[string]string{cancelled: "batch.cancelled", expired: "batch.expired"} {
		h.await(t, 2*time.Minute, id, "/org", typ)
		if got := h.about(id, "/org"); len(got) != 1 {
			t.Errorf("told %v of %s", got, id)
		}
	}
}

// unwrap checks the deliveries with the openai package for Node.
func unwrap(t *testing.T, posts []hookPost) {
	t.Helper()
	text, err := json.Marshal(posts)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"POSTS=" + string(text), "SECRET=" + hookSecret, "OLD_SECRET=" + oldHookSecret, "WRONG_SECRET=" + wrongSecret}
	runNode(t, nodeScript{"unwrap", "node", "webhook.test.mjs", env})
}

// TestWebhooksOfKilledWorkers: every end is delivered although workers are killed. A delivery
// in progress at a killed worker is retried after a minute or two, so the short form kills each
// worker only after its deliveries.
func TestWebhooksOfKilledWorkers(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	s := hookStack(t, h)
	p := s.proxy()
	submitOne := func(i int) string {
		body := chat("gpt-4o-mini", fmt.Sprint("job ", i), `"max_tokens":5`)
		return submit(t, func() string { return p.URL }, s.keys["alice"], body).ID
	}
	var ids []string
	if soak {
		ids = h.underKills(s, submitOne)
	} else {
		ids = h.betweenKills(t, s, submitOne)
	}
	twice := 0
	for _, id := range ids {
		j := awaitJob(t, p.URL, s.keys["alice"], id, 3*time.Minute)
		h.await(t, 4*time.Minute, id, "/org", "job."+j.Status)
		twice += len(h.about(id, "/org")) - 1
	}
	events := map[string]bool{}
	for _, one := range h.got() {
		events[one.event.ID] = true
	}
	t.Logf("%d jobs, %d posts, %d of them repetitions", len(ids), len(h.got()), twice)
	if len(events) != len(ids) {
		t.Errorf("got %d events, want one of each of %d jobs", len(events), len(ids))
	}
}

// underKills submits 100 jobs while workers are started and killed continuously.
func (h *hooks) underKills(s *stack, submitOne func(int) string) (ids []string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			w := s.worker()
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i*137%700) * time.Millisecond):
				w.kill()
			}
		}
	}()
	for i := range 100 {
		ids = append(ids, submitOne(i))
		time.Sleep(100 * time.Millisecond)
	}
	close(stop)
	redistest.Came(s.t, done)
	return ids
}

// betweenKills submits jobs while no worker runs, and kills each worker that is started for
// one.
func (h *hooks) betweenKills(t *testing.T, s *stack, submitOne func(int) string) (ids []string) {
	t.Helper()
	for i := range 3 {
		id := submitOne(i)
		w := s.worker()
		h.await(t, 4*time.Minute, id, "/org", "job.succeeded")
		w.kill()
		ids = append(ids, id)
	}
	return ids
}
