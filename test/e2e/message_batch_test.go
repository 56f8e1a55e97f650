package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// claudeStack is a batchStack of a provider with Anthropic's API.
func claudeStack(t *testing.T) *stack {
	t.Helper()
	return newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
files: {store: %q}
batches: {max_lines: 50}
providers:
  - {id: anthropic, kind: anthropic, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: w, subject: org, metric: cost, amount: $1000, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
  - id: other
    users:
      - {id: alice, keys: [{id: k2, hash: "${key:foreigner}"}]}
`, t.TempDir()))
}

func (s *stack) anthropicBatches(p *process, user string) *anthropic.MessageBatchService {
	c := anthropic.NewClient(option.WithBaseURL(strings.TrimSuffix(p.URL, "/v1")), option.WithAPIKey(s.keys[user]),
		option.WithMaxRetries(0))
	return &c.Messages.Batches
}

func messageRequest(id, text string) anthropic.MessageBatchNewParamsRequest {
	return anthropic.MessageBatchNewParamsRequest{CustomID: id, Params: anthropic.MessageBatchNewParamsRequestParams{
		Model: "claude-opus-5", MaxTokens: 20,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}}
}

func messageRequests(n int, text string) (list []anthropic.MessageBatchNewParamsRequest) {
	for i := range n {
		list = append(list, messageRequest(fmt.Sprint("r", i), text))
	}
	return list
}

// awaitMessages polls a batch until it has ended.
func awaitMessages(t *testing.T, c *anthropic.MessageBatchService, id string) (b *anthropic.MessageBatch) {
	t.Helper()
	redistest.Eventually(t, "the batch ended", func() bool {
		var err error
		b, err = c.Get(t.Context(), id, anthropic.MessageBatchGetParams{})
		if err != nil {
			t.Fatal(err)
		}
		return b.ProcessingStatus == "ended"
	})
	return b
}

// readMessages reads the results of a batch by custom_id, each of which may occur once.
func readMessages(t *testing.T, c *anthropic.MessageBatchService, id string) map[string]anthropic.MessageBatchResultUnion {
	t.Helper()
	out := map[string]anthropic.MessageBatchResultUnion{}
	lines := c.ResultsStreaming(t.Context(), id, anthropic.MessageBatchResultsParams{})
	for lines.Next() {
		one := lines.Current()
		if _, twice := out[one.CustomID]; twice {
			t.Errorf("two results for %q", one.CustomID)
		}
		out[one.CustomID] = one.Result
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return out
}

// TestMessageBatchSDK: Anthropic's client creates, polls, reads, lists and deletes a batch, which is also one of
// OpenAI's API; the ledger has the provider's own cost of each line, and other keys see nothing.
func TestMessageBatchSDK(t *testing.T) {
	t.Parallel()
	s := claudeStack(t)
	p := s.proxy()
	s.worker()
	c := s.anthropicBatches(p, "alice")
	requests := append(messageRequests(19, "hello\nyou <&>"), messageRequest("bad", "[fake: status=400]"))
	made, err := c.New(t.Context(), anthropic.MessageBatchNewParams{Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.ID, "msgbatch_") || made.ProcessingStatus != "in_progress" || made.RequestCounts.Processing != 20 ||
		made.ResultsURL != "" || made.ExpiresAt.Sub(made.CreatedAt) != 24*time.Hour || !made.EndedAt.IsZero() {
		t.Errorf("created %s", made.RawJSON())
	}
	b := awaitMessages(t, c, made.ID)
	if n := b.RequestCounts; n.Succeeded != 19 || n.Errored != 1 || n.Processing+n.Canceled+n.Expired != 0 || b.EndedAt.IsZero() {
		t.Errorf("ended as %s", b.RawJSON())
	}
	results := readMessages(t, c, b.ID)
	if len(results) != 20 {
		t.Errorf("%d results", len(results))
	}
	for id, one := range results {
		if id == "bad" {
			if one.Type != "errored" || one.Error.Error.Type != "invalid_request_error" || one.Error.Error.Message == "" {
				t.Errorf("%s: %s", id, one.RawJSON())
			}
			continue
		}
		if one.Type != "succeeded" || one.Message.Usage.OutputTokens == 0 || len(one.Message.Content) == 0 || one.Message.Role != "assistant" {
			t.Errorf("%s: %s", id, one.RawJSON())
		}
	}
	s.checkBilled(t, 19)
	a := get(strings.TrimSuffix(p.URL, "/v1")+b.ResultsURL, s.keys["alice"])
	if a.status != http.StatusOK || strings.Count(a.body, "\n") != 20 {
		t.Errorf("results_url %s: %d, %s", b.ResultsURL, a.status, a.body)
	}
	for _, id := range []string{b.ID, strings.TrimPrefix(b.ID, "msg")} {
		for _, path := range []string{"/batches/", "/messages/batches/"} {
			if a := get(p.URL+path+id, s.keys["alice"]); a.status != http.StatusOK || !strings.Contains(a.body, strings.TrimPrefix(b.ID, "msg")) {
				t.Errorf("%s%s: %d, %s", path, id, a.status, a.body)
			}
		}
	}
	s.checkForeign(t, p, b.ID)
	redistest.Eventually(t, "the batch is deleted", func() bool {
		gone, err := c.Delete(t.Context(), b.ID, anthropic.MessageBatchDeleteParams{})
		if fault, ok := errors.AsType[*anthropic.Error](err); ok && fault.StatusCode == http.StatusServiceUnavailable {
			return false // its end is being reported
		}
		if err != nil || gone.ID != b.ID || gone.Type != "message_batch_deleted" {
			t.Fatalf("%v: %+v", err, gone)
		}
		return true
	})
	for _, path := range []string{"/messages/batches", "/batches", "/files"} {
		if a := get(p.URL+path, s.keys["alice"]); !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("after the deletion %s has %s", path, a.body)
		}
	}
	wantFault(t, "a deleted batch", c.ResultsStreaming(t.Context(), b.ID, anthropic.MessageBatchResultsParams{}).Err(), "not_found_error", "")
}

// TestMessageBatchByProvider: Anthropic's own API runs a batch of its client, in one batch there and at half the price.
func TestMessageBatchByProvider(t *testing.T) {
	t.Parallel()
	s := claudeStack(t)
	s.replace("kind: anthropic,", "kind: anthropic, batch_mode: provider,")
	s.replace("batches: {", "batches: {poll: 200ms, ")
	p := s.proxy()
	s.worker()
	c := s.anthropicBatches(p, "alice")
	requests := append(messageRequests(19, "hello\nyou <&>"), messageRequest("bad", "[fake: status=400]"))
	made, err := c.New(t.Context(), anthropic.MessageBatchNewParams{Requests: requests})
	if err != nil {
		t.Fatal(err)
	}
	if n := awaitMessages(t, c, made.ID).RequestCounts; n.Succeeded != 19 || n.Errored != 1 {
		t.Errorf("ended with %+v", n)
	}
	charged := map[string]pricing.Nano{}
	for _, e := range s.entries("acme") {
		charged[e.UpstreamID] = e.Total
	}
	for id, one := range readMessages(t, c, made.ID) {
		switch u := one.Message.Usage; {
		case id == "bad":
			if one.Type != "errored" || one.Error.Error.Type != "invalid_request_error" || one.Error.Error.Message == "" {
				t.Errorf("%s: %s", id, one.RawJSON())
			}
		case u.OutputTokens == 0 || charged[one.Message.ID] != pricing.Nano(2500*u.InputTokens+12_500*u.OutputTokens):
			t.Errorf("%s: charged %v for %s", id, charged[one.Message.ID], u.RawJSON())
		}
	}
	if all := s.fake.Batches(); len(all) != 1 || all[0].Total != 20 || len(charged) != 19 {
		t.Errorf("%d entries; batches at the provider: %+v", len(charged), all)
	}
}

// checkBilled checks that the ledger has the provider's own cost of each of its successful requests.
func (s *stack) checkBilled(t *testing.T, successes int) {
	t.Helper()
	charged := map[string]ledger.Entry{}
	for _, e := range s.entries("acme") {
		charged[e.UpstreamID] = e
	}
	n := 0
	for _, r := range s.fake.Log() {
		want := billOf(t, "anthropic", []fakeprovider.Record{r})
		if e := charged[r.RequestID]; e.Estimated || e.Total != want {
			t.Errorf("ledger %+v, the provider says %v", e, want)
		}
		if want > 0 {
			n++
		}
	}
	if n != successes {
		t.Errorf("the provider billed %d requests, want %d", n, successes)
	}
}

// checkForeign checks that the key of another org sees nothing of a batch.
func (s *stack) checkForeign(t *testing.T, p *process, id string) {
	t.Helper()
	c := s.anthropicBatches(p, "foreigner")
	_, err := c.Get(t.Context(), id, anthropic.MessageBatchGetParams{})
	_, cancelErr := c.Cancel(t.Context(), id, anthropic.MessageBatchCancelParams{})
	_, deleteErr := c.Delete(t.Context(), id, anthropic.MessageBatchDeleteParams{})
	resultsErr := c.ResultsStreaming(t.Context(), id, anthropic.MessageBatchResultsParams{}).Err()
	for _, err := range []error{err, cancelErr, deleteErr, resultsErr} {
		wantFault(t, "a foreign batch", err, "not_found_error", "")
	}
	page, err := c.List(t.Context(), anthropic.MessageBatchListParams{})
	if err != nil || len(page.Data) != 0 {
		t.Errorf("%v: a foreign list has %+v", err, page)
	}
}

// wantFault checks an error of Anthropic's client.
func wantFault(t *testing.T, what string, err error, kind anthropic.ErrorType, text string) {
	t.Helper()
	fault, ok := errors.AsType[*anthropic.Error](err)
	if !ok || fault.Type() != kind || !strings.Contains(fault.RawJSON(), text) {
		t.Errorf("%s: got %v, want %s with %q", what, err, kind, text)
	}
}

// TestMessageBatchMistakes: Anthropic's client gets its own errors, and what is refused leaves nothing behind. What
// only the worker can refuse has a result for each request.
func TestMessageBatchMistakes(t *testing.T) {
	t.Parallel()
	s := claudeStack(t)
	p := s.proxy()
	s.worker()
	c := s.anthropicBatches(p, "alice")
	streamed, other := messageRequest("a", "hi"), messageRequest("b", "hi")
	streamed.Params.Stream, other.Params.Model = anthropic.Bool(true), "claude-haiku-4-5"
	good := messageRequest("a", "hi")
	for text, requests := range map[string][]anthropic.MessageBatchNewParamsRequest{
		"at least one is required": {},
		"requests.1.custom_id":     {good, good},
		"requests.0.params.stream": {streamed},
		"requests.1.params.model":  {good, other},
		"requests.0.custom_id":     {messageRequest("a b", "hi")},
		"batches.max_lines":        messageRequests(51, "hi"),
	} {
		_, err := c.New(t.Context(), anthropic.MessageBatchNewParams{Requests: requests})
		wantFault(t, text, err, "invalid_request_error", text)
	}
	for _, path := range []string{"/messages/batches", "/batches", "/files"} {
		if a := get(p.URL+path, s.keys["alice"]); !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("after refusals %s has %s", path, a.body)
		}
	}
	unknown := messageRequest("a", "hi")
	unknown.Params.Model = "claude-nobody"
	made, err := c.New(t.Context(), anthropic.MessageBatchNewParams{Requests: []anthropic.MessageBatchNewParamsRequest{unknown}})
	if err != nil {
		t.Fatal(err)
	}
	b := awaitMessages(t, c, made.ID)
	one := readMessages(t, c, made.ID)["a"]
	if b.RequestCounts.Errored != 1 || one.Type != "errored" || !strings.Contains(one.RawJSON(), "claude-nobody") {
		t.Errorf("%s, result %s", b.RawJSON(), one.RawJSON())
	}
}

// TestMessageBatchCancel: a batch that is cancelled while it runs ends with a result for each request, and is
// charged for those that succeeded.
func TestMessageBatchCancel(t *testing.T) {
	t.Parallel()
	s := claudeStack(t)
	release := make(chan struct{})
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		redistest.Came(t, release)
		return fakeprovider.Behaviour{}
	})
	s.replace("id: anthropic, kind", "id: anthropic, pools: [{id: claude, concurrency: 3}], kind")
	p := s.proxy()
	w := s.worker()
	c := s.anthropicBatches(p, "alice")
	made, err := c.New(t.Context(), anthropic.MessageBatchNewParams{Requests: messageRequests(10, "hi")})
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "three lines run", func() bool { return s.fake.Totals().Requests >= 3 })
	_, err = c.Delete(t.Context(), made.ID, anthropic.MessageBatchDeleteParams{})
	wantFault(t, "deleting a batch that runs", err, "invalid_request_error", "Cancel it first")
	wantFault(t, "results of a batch that runs", c.ResultsStreaming(t.Context(), made.ID, anthropic.MessageBatchResultsParams{}).Err(),
		"invalid_request_error", "until its processing_status is ended")
	b, err := c.Cancel(t.Context(), made.ID, anthropic.MessageBatchCancelParams{})
	if err != nil || b.ProcessingStatus != "canceling" || b.CancelInitiatedAt.IsZero() || b.RequestCounts.Processing != 10 {
		t.Errorf("%v: %+v", err, b)
	}
	redistest.Eventually(t, "the lines that wait are withdrawn", func() bool {
		return strings.Contains(w.metrics(), `llmguard_queue_jobs_ended_total{pool="claude",state="expired"} 7`)
	})
	close(release)
	b = awaitMessages(t, c, made.ID)
	if n := b.RequestCounts; n.Succeeded != 3 || n.Canceled != 7 {
		t.Errorf("ended as %s", b.RawJSON())
	}
	kinds := map[string]int{}
	for _, one := range readMessages(t, c, made.ID) {
		kinds[one.Type]++
	}
	if kinds["succeeded"] != 3 || kinds["canceled"] != 7 {
		t.Errorf("results %v", kinds)
	}
	s.checkBilled(t, 3)
	_, err = c.Cancel(t.Context(), made.ID, anthropic.MessageBatchCancelParams{})
	if err != nil {
		t.Errorf("cancelling again: %v", err)
	}
}
