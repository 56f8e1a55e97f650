package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// answers waits until n answers are stored for the org, and returns their texts in Redis.
func (s *stack) answers(org string, n int) (texts []string) {
	s.t.Helper()
	rdb, ctx := s.redis.Client(), context.Background()
	for range 3000 {
		names, err := rdb.Keys(ctx, "lg:{"+org+"}:cache:"+strings.Repeat("?", 64)).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if len(names) == n {
			for _, name := range names {
				texts = append(texts, rdb.Get(ctx, name).Val())
			}
			return texts
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatalf("never %d answers of %s", n, org)
	return nil
}

// TestCache: an SDK and a batch get the stored answers of identical requests, and the bill is exact.
func TestCache(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `files: {store: "`+t.TempDir()+`"}
queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    cache: {max_age: 1h, cost: 25%, always: true}
    limits: [{name: w, subject: user, amount: $100, window: 1h}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Text: "open sesame"} })
	p := s.proxy()
	s.worker()
	ctx, c := context.Background(), goClient(p, s.keys["alice"])
	request := openai.ChatCompletionRequest{
		Model: openai.GPT4oMini, MaxTokens: 5, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Say hello"}},
	}
	plain := func() string {
		resp, err := c.CreateChatCompletion(ctx, request)
		if err != nil || len(resp.Choices) != 1 {
			t.Fatalf("got %+v, %v; want a completion", resp, err)
		}
		return resp.ID + resp.Choices[0].Message.Content
	}
	stream := func() (text string) {
		from, err := c.CreateChatCompletionStream(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		for {
			part, err := from.Recv()
			if errors.Is(err, io.EOF) {
				return text
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, choice := range part.Choices {
				text += part.ID + choice.Delta.Content
			}
		}
	}
	first := plain()
	s.answers("acme", 1)
	streamed := stream()
	s.answers("acme", 2)
	if again := plain(); again != first {
		t.Errorf("got %q, want %q", again, first)
	}
	if again := stream(); again != streamed {
		t.Errorf("got %q, want %q", again, streamed)
	}

	const line = `{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"line 0 x"}]}`
	if a := post(p.URL+"/chat/completions", s.keys["alice"], line); a.status != 200 {
		t.Fatalf("got %+v, want 200", a)
	}
	for _, text := range s.answers("acme", 3) {
		if strings.Contains(text, "sesame") || strings.Contains(text, "choices") {
			t.Errorf("an answer can be read in Redis: %q", text)
		}
	}
	id := s.batch(p, s.uploadLines(p, 1, "x"))
	b := s.awaitBatch(p, id, func(b openai.Batch) bool { return b.Status == "completed" })
	if b.RequestCounts.Completed != 1 {
		t.Errorf("got %+v, want one completed line", b)
	}
	if n := len(s.fake.Log()); n != 3 {
		t.Errorf("%d requests reached the provider, want 3", n)
	}
	var original, charged int64
	for _, e := range s.settled("acme", 6) {
		if e.Outcome == "cached" {
			charged += int64(e.Cost)
		} else {
			original += (int64(e.Cost) + 3) / 4 // each was a hit once
		}
	}
	if charged == 0 || charged != original {
		t.Errorf("the hits were charged %d, want %d", charged, original)
	}
}

// TestCacheInFiles: with cache.store: files, all proxies answer from one store, in which nothing can
// be read. An answer without its file is a miss, and a killed proxy leaves nothing that is served.
func TestCacheInFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStack(t, fakeprovider.Options{}, `files: {store: "`+dir+`"}
cache: {store: files}
queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    cache: {max_age: 1h, always: true}
    limits: [{name: w, subject: user, amount: $100, window: 1h}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
  - id: globex
    cache: {max_age: 1h, always: true}
    limits: [{name: w, subject: user, amount: $100, window: 1h}]
    users: [{id: bob, keys: [{id: k1, hash: "${key:bob}"}]}]
`)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Text: "open sesame"} })
	one, two := s.proxy(), s.proxy()
	const request = `{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"Say hello"}]}`
	call := func(p *process, who, want string) string {
		t.Helper()
		a := post(p.URL+"/chat/completions", s.keys[who], request)
		if a.status != 200 || a.err != nil || a.header.Get("Llmguard-Cache") != want {
			t.Fatalf("got %d, %v, %v; want a %s", a.status, a.header, a.err, want)
		}
		return a.body
	}
	first := call(one, "alice", "miss")
	text := s.answers("acme", 1)[0]
	names, err := filepath.Glob(filepath.Join(dir, "cache", "acme", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("got files %q, %v; want one", names, err)
	}
	body, err := os.ReadFile(names[0])
	if err != nil || strings.Contains(string(body), "sesame") || strings.Contains(text, "sesame") || len(text) > len(body) {
		t.Errorf("got %q in the file and %q in Redis, want the body sealed in the file", body, text)
	}
	call(two, "bob", "miss") // of another org
	one.kill()
	if again := call(two, "alice", "hit"); again != first {
		t.Errorf("got %q from another proxy, want %q", again, first)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	call(two, "alice", "miss")
}
