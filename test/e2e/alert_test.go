package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// inbox records what was posted to a server, by path.
type inbox struct {
	*httptest.Server
	mu    sync.Mutex
	posts map[string][]string
	signs map[string]string
}

func newInbox(t *testing.T) (box *inbox, port string) {
	box = &inbox{posts: map[string][]string{}, signs: map[string]string{}}
	box.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		box.mu.Lock()
		defer box.mu.Unlock()
		box.posts[r.URL.Path] = append(box.posts[r.URL.Path], string(body))
		box.signs[r.URL.Path] = r.Header.Get("Webhook-Signature")
	}))
	t.Cleanup(box.Close)
	_, port, err := net.SplitHostPort(box.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return box, port
}

// delivered waits until the worker has posted all pending messages.
func (s *stack) delivered() {
	s.t.Helper()
	rdb := s.redis.Client()
	for range 3000 {
		n := int64(0)
		for _, state := range []string{"pending", "active"} {
			n += rdb.LLen(s.t.Context(), "asynq:{llmguard.webhooks}:"+state).Val()
		}
		if n == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatal("the worker does not post what is there")
}

func (b *inbox) await(t *testing.T, path string, n int) []string {
	t.Helper()
	var posts []string
	for range 6000 {
		b.mu.Lock()
		posts = append([]string(nil), b.posts[path]...)
		b.mu.Unlock()
		if len(posts) >= n {
			return posts
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s was posted to %d times, want %d", path, len(posts), n)
	return nil
}

// TestSpendAlerts: when a user has spent half of a limit, and again at nearly all of it, the
// operator's chat and the org's own server are each notified once, although two proxies charge
// the limit.
func TestSpendAlerts(t *testing.T) {
	t.Parallel()
	box, port := newInbox(t)
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
alerts: {url: "http://localhost:%[1]s/chat", thresholds: [50%%, 80%%]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    alerts: {url: "http://localhost:%[1]s/org", format: standard, secrets: [%[2]s], thresholds: [50%%]}
    limits: [{name: day, subject: user, window: 1d, amount: "$0.01"}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
`, port, hookSecret))
	first, second := s.proxy(), s.proxy()
	s.worker()
	// gpt-4o costs $10 per million output tokens: about 65% of the limit, then 85%.
	spend := func(p *process, output int) {
		t.Helper()
		a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", fmt.Sprintf("[fake: output=%d]", output), fmt.Sprintf(`"max_tokens":%d`, output)))
		if a.status != http.StatusOK {
			t.Fatalf("call: %d %s", a.status, a.body)
		}
	}
	for range 10 {
		spend(first, 30)
		spend(second, 30)
	}
	text := box.await(t, "/chat", 1)[0]
	var chat struct{ Text string }
	if err := json.Unmarshal([]byte(text), &chat); err != nil || !strings.Contains(chat.Text, "user alice of org acme") || !strings.Contains(chat.Text, "of its limit day") {
		t.Errorf("the chat was told %s", text)
	}
	var event struct {
		Type string
		Data struct {
			Org, User, Limit string
			Threshold        int   `json:"threshold_percent"`
			Charged          int64 `json:"charged_nano_usd"`
			Amount           int64 `json:"amount_nano_usd"`
		}
	}
	posted := box.await(t, "/org", 1)[0]
	if err := json.Unmarshal([]byte(posted), &event); err != nil || event.Type != "alert.limit" || event.Data.Org != "acme" || event.Data.User != "alice" ||
		event.Data.Limit != "day" || event.Data.Threshold != 50 || event.Data.Amount != 10_000_000 || event.Data.Charged < 5_000_000 {
		t.Errorf("the org was told %s", posted)
	}
	spend(first, 200)
	if posts := box.await(t, "/chat", 2); posts[0] == posts[1] {
		t.Errorf("the chat was told %q", posts)
	}
	spend(second, 1)
	first.terminate() // a process checks the limits once more as it shuts down
	second.terminate()
	s.delivered()
	box.mu.Lock()
	defer box.mu.Unlock()
	if len(box.posts["/chat"]) != 2 || len(box.posts["/org"]) != 1 {
		t.Errorf("told %q", box.posts)
	}
	if !strings.HasPrefix(box.signs["/org"], "v1,") || box.signs["/chat"] != "" {
		t.Errorf("signed %q", box.signs)
	}
}
