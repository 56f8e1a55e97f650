package e2e

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// growing is a configuration with one org whose holds grow in steps of 40 tokens.
func growing(limits string) string {
	return strings.Replace(simple(limits), "  - id: acme\n", "  - id: acme\n    hold: grow\n    grow_step: 40\n", 1)
}

// endless makes the provider generate output without end.
func endless(gap time.Duration) func(*fakeprovider.Request) fakeprovider.Behaviour {
	return func(q *fakeprovider.Request) fakeprovider.Behaviour {
		if !q.Stream {
			return fakeprovider.Behaviour{Fill: true}
		}
		return fakeprovider.Behaviour{Endless: true, Gap: gap}
	}
}

// cut reads a go-openai stream until its error, and returns the number of words before it.
func cut(t *testing.T, c *openai.Client) (words int, e *openai.APIError) {
	t.Helper()
	stream, err := c.CreateChatCompletionStream(context.Background(), openai.ChatCompletionRequest{
		Model: openai.GPT4o, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		chunk, err := stream.Recv()
		if errors.As(err, &e) {
			return words, e
		}
		if err != nil {
			t.Fatalf("the stream ends with %v after %d words", err, words)
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			words++
		}
	}
}

// TestCutStream: when a stream is cut off, live or from the queue, the SDK gets an error, the
// upstream call is cancelled, and the output so far is charged.
func TestCutStream(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, growing("[{name: t, subject: user, metric: tokens, amount: 200, window: 1h}, {name: one, subject: user, metric: concurrency, amount: 1}]")+
		"      - {id: bob, keys: [{id: k2, hash: \"${key:bob}\"}]}\n")
	g := s.gate(endless(5 * time.Millisecond))
	p := s.proxy()
	s.worker()
	check := func(words int, e *openai.APIError, entry ledger.Entry) {
		t.Helper()
		if !strings.Contains(e.Message, `limit "t"`) || !strings.Contains(e.Message, "incomplete") {
			t.Errorf("told %v: %s", e.Code, e.Message)
		}
		u := entry.Usage
		if words < 80 || u.Output < int64(words) || u.Input+u.Output > 200 || !entry.Estimated || entry.Outcome != "cut" || entry.Overrun != 0 {
			t.Errorf("%d words came, the ledger says %+v", words, entry)
		}
	}
	words, e := cut(t, goClient(p, s.keys["alice"]))
	entry := s.settled("acme", 1)[0]
	check(words, e, entry)
	if e.Code != "insufficient_quota" || !strings.Contains(e.Message, "of 192.") || entry.JobID != "" {
		t.Errorf("told %v: %s; job %q", e.Code, e.Message, entry.JobID)
	}

	// While bob's one call runs, his stream waits.
	first := make(chan answer)
	go func() {
		first <- post(p.URL+"/chat/completions", s.keys["bob"], chat("gpt-4o", gated, `"max_tokens":10`))
	}()
	g.awaitHeld()
	go func() {
		for !strings.Contains(get(p.URL+"/jobs", s.keys["bob"]).body, `"job_`) && t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		g.release()
	}()
	words, e = cut(t, goClient(p, s.keys["bob"]))
	if a := redistest.Came(t, first); a.status != http.StatusOK {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	entry = s.settled("acme", 3)[2]
	check(words, e, entry)
	if entry.JobID == "" {
		t.Fatal("bob's stream did not wait")
	}
	if j := awaitJob(t, p.URL, s.keys["bob"], entry.JobID, time.Minute); j.Status != "failed" || j.Error == nil || j.Error.Code != e.Code || j.Attempts != 1 {
		t.Errorf("the job ended as %+v, %+v", j, j.Error)
	}
	quiet, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := s.fake.Quiet(quiet); err != nil {
		t.Error(err)
	}
	for _, rec := range s.fake.Log() {
		if rec.Stream && rec.Outcome != fakeprovider.ClientGone {
			t.Errorf("the provider was not cancelled: %+v", rec)
		}
	}
	if text := p.metrics(); !strings.Contains(text, `llmguard_guard_extensions_total{outcome="refused"} 1`) ||
		!strings.Contains(text, `llmguard_guard_calls_total{model="gpt-4o",outcome="cut",pool="openai"} 1`) {
		t.Error("the proxy's metrics do not tell of the cut")
	}
}

// TestKilledGrowing: when a proxy is killed while a hold grows, the grown amount stays held,
// and is charged when the lease expires.
func TestKilledGrowing(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, growing("[{name: w, subject: user, amount: $1, window: 1h}]"))
	s.fake.Script(endless(5 * time.Millisecond))
	p := s.proxy()
	req, err := http.NewRequest(http.MethodPost, p.URL+"/chat/completions", strings.NewReader(chat("gpt-4o", "hi", `"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, words := bufio.NewScanner(resp.Body), int64(0)
	for words < 100 && lines.Scan() {
		if strings.Contains(lines.Text(), `"content"`) {
			words++
		}
	}
	p.kill()
	quiet, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := s.fake.Quiet(quiet); err != nil {
		t.Fatal(err)
	}
	sent := s.fake.Log()[0].Usage.Completion // what the provider had generated when it noticed

	ctx, rdb := context.Background(), s.redis.Client()
	records, err := rdb.HGetAll(ctx, "lg:{acme}:holds").Result()
	if err != nil || len(records) != 1 {
		t.Fatalf("holds %v, %v", records, err)
	}
	for id, record := range records {
		_, amounts, _ := strings.Cut(record, ",")
		amounts, _, _ = strings.Cut(amounts, ",")
		held, err := strconv.ParseInt(amounts, 10, 64)
		if err != nil || held < words*10_000 || held > (sent+400)*10_000 {
			t.Errorf("%d nano-USD are held after %d words, %v", held, words, err)
		}
		// Expire its lease of one minute.
		if err := rdb.ZAdd(ctx, "lg:{acme}:leases", redis.Z{Score: 1, Member: id}).Err(); err != nil {
			t.Fatal(err)
		}
		if n, err := budget.New(redistest.DB(rdb), budget.Options{}).Expiry.Sweep(ctx, "acme"); n != 1 || err != nil {
			t.Fatalf("%d holds expired, %v", n, err)
		}
		if e := s.settled("acme", 1)[0]; int64(e.Cost) != held || !e.Estimated {
			t.Errorf("the ledger says %+v, %d were held", e, held)
		}
	}
}
