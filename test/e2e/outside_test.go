package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// largestKey returns the memory that the largest key of a job takes in Redis, in bytes. The
// output of a failed attempt is kept, so only the last attempt counts.
func (s *stack) largestKey() (key string, most int64) {
	s.t.Helper()
	rdb := s.redis.Client()
	last := map[string]string{} // last attempt by job
	sizes := map[string]int64{}
	for _, k := range rdb.Keys(s.t.Context(), "lg:{job_*").Val() {
		sizes[k] = rdb.MemoryUsage(s.t.Context(), k, 0).Val()
		job, attempt, output := strings.Cut(k, ":out:")
		if output {
			last[job] = max(last[job], attempt) // a single digit
		}
	}
	for k, n := range sizes {
		job, attempt, _ := strings.Cut(k, ":out:")
		if n > most && (attempt == "" || attempt == last[job]) {
			key, most = k, n
		}
	}
	return key, most
}

// jobBlobs lists the blobs of jobs, and fails if one contains the text.
func jobBlobs(t *testing.T, dir, secret string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "jobs", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), secret) {
			t.Errorf("%s has %q in the clear", name, secret)
		}
	}
	return names
}

// joined returns the text of a completed stream.
func joined(body string) string {
	var text strings.Builder
	for line := range strings.Lines(body) {
		var chunk struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if data == "[DONE]" {
			return text.String()
		}
		if ok && json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			text.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	return "no end of " + text.String()
}

// TestLargeJobs: prompts and responses of 200 KB are stored encrypted outside Redis, across
// processes and the death of the worker that runs them. The callers, some waiting on the
// connection, receive them completely.
func TestLargeJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple("[{name: w, subject: org, amount: $100, window: 1h}]"), `api_key: "${provider_key}"`,
		`api_key: "${provider_key}", pools: [{id: one, concurrency: 4}]`, 1)+fmt.Sprintf(`
files: {store: %q}
queue: {lease: 3s, max_attempts: 20, seal_keys: [{id: k, secret: a-secret-of-16-characters}]}
`, dir))
	const secret = "canary-51c0"
	const words = 15_000 // one token each
	answer := secret + strings.Repeat(" understanding", words)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Text: answer, Chunk: 500, Delay: 300 * time.Millisecond}
	})
	body := func(i int, extra string) string {
		return chat("gpt-4o-mini", fmt.Sprint(secret, " ", i, strings.Repeat(" understanding", words)), `"max_tokens":16000`+extra)
	}
	p := s.proxy()
	url := func() string { return p.URL }
	var ids []string
	for i := range 6 {
		ids = append(ids, submit(t, url, s.keys["alice"], body(i, "")).ID)
	}
	if names := jobBlobs(t, dir, secret); len(names) != len(ids) {
		t.Errorf("%d blobs of %d waiting jobs: %q", len(names), len(ids), names)
	}
	if key, n := s.largestKey(); n > 64<<10 {
		t.Errorf("%s takes %d bytes", key, n)
	}
	first := s.worker()
	until(t, "the worker asks the provider", func() bool { return len(s.fake.Log()) > 0 })
	first.kill()
	s.worker()
	whole := func(body string) string {
		var got struct {
			Choices []struct {
				Message struct{ Content string }
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Choices) != 1 {
			return fmt.Sprintf("%v: %.200s", err, body)
		}
		return got.Choices[0].Message.Content
	}
	for _, id := range ids {
		if j := awaitJob(t, p.URL, s.keys["alice"], id, time.Minute); j.Status != "succeeded" {
			t.Fatalf("job %s ended as %s (%v)", id, j.Status, j.Error)
		}
		if r := fetch(p.URL+"/jobs/"+id+"/result", s.keys["alice"]); r.status != http.StatusOK || whole(r.body) != answer {
			t.Errorf("result of %s: status %d: %.100s", id, r.status, whole(r.body))
		}
	}
	waited := post(p.URL+"/chat/completions", s.keys["alice"], body(9, ""), "Prefer", "respond-async, wait=60")
	if waited.status != http.StatusOK || whole(waited.body) != answer {
		t.Errorf("who waited got status %d: %.100s", waited.status, whole(waited.body))
	}
	streamed := post(p.URL+"/chat/completions", s.keys["alice"], body(10, `,"stream":true`), "Prefer", "respond-async, wait=60")
	if got := joined(streamed.body); streamed.status != http.StatusOK || got != answer {
		t.Errorf("who waited for a stream got status %d, %d bytes of %d", streamed.status, len(got), len(answer))
	}
	if key, n := s.largestKey(); n > 64<<10 {
		t.Errorf("%s takes %d bytes", key, n)
	}
	if names := jobBlobs(t, dir, secret); len(names) < len(ids)+2 {
		t.Errorf("%d blobs of %d answers: %q", len(names), len(ids)+2, names)
	}
}
