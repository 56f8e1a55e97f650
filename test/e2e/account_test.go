package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

const gossipKey, gossipOrg, gossipProject = "sk-gossip-0123456789abcdef", "org-of-ours", "proj-of-ours"

// gossip is a provider that responds with the status in the prompt and names our account.
func gossip(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Stream   bool
			Messages []struct{ Content string }
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		status, _ := strconv.Atoi(body.Messages[0].Content)
		says := fmt.Sprintf("key %s of %s in %s at %s", gossipKey, gossipOrg, gossipProject, r.Host)
		w.Header().Set("X-Request-Id", "req-"+gossipKey)
		w.Header().Set("Content-Type", "application/json")
		if body.Stream {
			w.Header().Set("Content-Type", "text/event-stream")
			says = "data: {\"error\":{\"message\":\"" + says + "\"}}\n\n"
		} else {
			says = `{"error":{"message":"` + says + `","type":"x"}}`
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(says))
	}))
	t.Cleanup(s.Close)
	return s
}

// TestAccountIsNamedNowhere: neither responses, live or of jobs, nor logs reveal which provider
// account is in use.
func TestAccountIsNamedNowhere(t *testing.T) {
	t.Parallel()
	there := gossip(t)
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple(roomy), `providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}`, fmt.Sprintf(`providers:
  - {id: openai, base_url: "%s/v1", api_key: %s, organization: %s, project: %s, pools: [{id: there, models: [gpt-4o]}]}
  - {id: away, base_url: "http://account-77.invalid:9/v1", api_key: %s, pools: [{id: away, models: [gpt-4o-mini]}]}`,
		there.URL, gossipKey, gossipOrg, gossipProject, gossipKey), 1))
	p, w := s.proxy(), s.worker()
	texts := map[string]string{}
	for _, status := range []string{"200", "400", "401", "403", "404", "500"} {
		for _, stream := range []string{"false", "true"} {
			a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", status, `"max_tokens":5,"stream":`+stream))
			texts[status+" "+stream] = fmt.Sprint(a.status, a.header, a.body)
			s.llmguard("queue", "resume", "there") // which a refused credential pauses
		}
	}
	a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o-mini", "hi", `"max_tokens":5`))
	texts["away"] = fmt.Sprint(a.status, a.header, a.body)
	job := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "403", `"max_tokens":5`), "Prefer", "respond-async")
	at := "/jobs/" + job.header.Get("Location")[strings.LastIndex(job.header.Get("Location"), "/")+1:]
	for range 1500 {
		if a = get(p.URL+at, s.keys["alice"]); strings.Contains(a.body, `"failed"`) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !strings.Contains(a.body, `"failed"`) {
		t.Fatalf("the job has not failed: %s", a.body)
	}
	texts["job"], texts["result"] = a.body, get(p.URL+at+"/result", s.keys["alice"]).body
	w.await("job", func(map[string]any) {})
	texts["proxy's log"], texts["worker's log"] = p.log(), w.log()
	for what, text := range texts {
		for _, name := range []string{gossipKey, gossipOrg, gossipProject, strings.TrimPrefix(there.URL, "http://"), "account-77"} {
			if strings.Contains(text, name) {
				t.Errorf("%s: %s is in %s", what, name, text)
			}
		}
	}
}
