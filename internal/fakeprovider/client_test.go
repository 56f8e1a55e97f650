package fakeprovider_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, opts fakeprovider.Options) *fakeprovider.Server {
	t.Helper()
	s := fakeprovider.New(opts)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func client(s *fakeprovider.Server) *openai.Client {
	cfg := openai.DefaultConfig("sk-test")
	cfg.BaseURL = s.BaseURL()
	return openai.NewClientWithConfig(cfg)
}

func ask(text string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model:    "gpt-4o-mini",
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: text}},
	}
}

func only(t *testing.T, s *fakeprovider.Server) fakeprovider.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Quiet(ctx); err != nil {
		t.Fatal(err)
	}
	log := s.Log()
	if len(log) != 1 {
		t.Fatalf("%d records, want 1", len(log))
	}
	return log[0]
}

func TestCompletion(t *testing.T) {
	s := start(t, fakeprovider.Options{Key: "sk-test"})
	req := ask("Tell me about rivers. [fake: output=50]")
	req.N = 2
	resp, err := client(s).CreateChatCompletion(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Choices) != 2 || resp.Choices[0].FinishReason != "stop" || resp.Choices[1].Message.Content == "" {
		t.Errorf("choices %+v", resp.Choices)
	}
	if resp.Usage.CompletionTokens != 100 || resp.Usage.TotalTokens != resp.Usage.PromptTokens+100 {
		t.Errorf("usage %+v, want 2 x 50 output tokens", resp.Usage)
	}
	if got := resp.GetRateLimitHeaders(); got.LimitRequests == 0 || got.ResetTokens.String() == "" {
		t.Errorf("rate limit headers %+v", got)
	}
	if resp.Header().Get("X-Request-Id") == "" || resp.Header().Get("Openai-Processing-Ms") == "" {
		t.Errorf("headers %v", resp.Header())
	}
	rec := only(t, s)
	if rec.Outcome != fakeprovider.OK || rec.Status != 200 || rec.Usage.Completion != 100 || rec.Model != "gpt-4o-mini" {
		t.Errorf("record %+v", rec)
	}
	again, err := client(s).CreateChatCompletion(t.Context(), req)
	if err != nil || again.Choices[1].Message.Content != resp.Choices[1].Message.Content {
		t.Errorf("the same request got another text (%v)", err)
	}
}

func TestOutputLimit(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	f := func(model, directive string, limit int, wantTotal, wantReasoning int, wantFinish openai.FinishReason) {
		t.Helper()
		req := ask("Hello " + directive)
		req.Model, req.MaxCompletionTokens = model, limit
		resp, err := client(s).CreateChatCompletion(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Usage.CompletionTokens != wantTotal || resp.Usage.CompletionTokensDetails.ReasoningTokens != wantReasoning {
			t.Errorf("%s limit %d: usage %+v, want %d with %d reasoning", directive, limit, resp.Usage, wantTotal, wantReasoning)
		}
		if got := resp.Choices[0].FinishReason; got != wantFinish {
			t.Errorf("%s limit %d: finish_reason %q, want %q", directive, limit, got, wantFinish)
		}
	}
	f("gpt-4o", "[fake: output=40]", 100, 40, 0, "stop")
	f("gpt-4o", "[fake: output=400]", 100, 100, 0, "length")
	f("gpt-4o", "[fake: output=all]", 777, 777, 0, "length")
	f("gpt-4o", "[fake: output=-1]", 100, 0, 0, "stop")
	f("gpt-5", "[fake: output=10 reasoning=128]", 1000, 138, 128, "stop")
	f("gpt-5", "[fake: output=10 reasoning=128]", 100, 100, 100, "length")
	f("gpt-5", "[fake: output=all reasoning=64]", 500, 500, 64, "length")
}

func TestStream(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	plain, err := client(s).CreateChatCompletion(t.Context(), ask("A story please"))
	if err != nil {
		t.Fatal(err)
	}
	req := ask("A story please")
	req.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := client(s).CreateChatCompletionStream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text strings.Builder
	var usage *openai.Usage
	chunks := 0
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		chunks++
		for _, c := range part.Choices {
			text.WriteString(c.Delta.Content)
		}
		if part.Usage != nil {
			usage = part.Usage
			if len(part.Choices) != 0 {
				t.Errorf("usage came in a chunk with choices")
			}
		}
	}
	if text.String() != plain.Choices[0].Message.Content {
		t.Errorf("streamed %q\nplain %q", text.String(), plain.Choices[0].Message.Content)
	}
	if usage == nil || usage.CompletionTokens != plain.Usage.CompletionTokens || chunks != usage.CompletionTokens+3 {
		t.Errorf("%d chunks, usage %+v, want one chunk per token and %+v", chunks, usage, plain.Usage)
	}
}

func TestStreamWithoutUsage(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	body := post(t, s, `{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi [fake: output=3]"}]}`)
	if strings.Contains(body, `"usage"`) || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Count(body, "data: ") != 6 {
		t.Errorf("stream without include_usage:\n%s", body)
	}
	body = post(t, s, `{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi [fake: output=3]"}]}`)
	if strings.Count(body, `"usage":null`) != 5 || strings.Count(body, `"choices":[],"usage":{`) != 1 {
		t.Errorf("stream with include_usage:\n%s", body)
	}
}

func post(t *testing.T, s *fakeprovider.Server, body string) string {
	t.Helper()
	resp, err := (&http.Client{Timeout: redistest.Bound}).Post(s.BaseURL()+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	return string(got)
}

func TestEmbeddings(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	f := func(format openai.EmbeddingEncodingFormat, dimensions int) []float32 {
		t.Helper()
		resp, err := client(s).CreateEmbeddings(t.Context(), openai.EmbeddingRequestStrings{
			Input: []string{"one river", "two rivers"}, Model: openai.SmallEmbedding3,
			EncodingFormat: format, Dimensions: dimensions,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Data) != 2 || resp.Usage.PromptTokens != 4 || resp.Usage.CompletionTokens != 0 {
			t.Errorf("%d vectors, usage %+v", len(resp.Data), resp.Usage)
		}
		return resp.Data[1].Embedding
	}
	plain, coded, short := f("float", 0), f("base64", 0), f("", 256)
	if len(plain) != 1536 || len(coded) != 1536 || len(short) != 256 {
		t.Errorf("lengths %d, %d, %d", len(plain), len(coded), len(short))
	}
	var square float64
	for i := range plain {
		square += float64(plain[i]) * float64(plain[i])
		if plain[i] != coded[i] {
			t.Fatalf("element %d: %v as floats, %v as base64", i, plain[i], coded[i])
		}
	}
	if math.Abs(square-1) > 1e-5 {
		t.Errorf("length^2 %v, want 1", square)
	}
}

func TestBase64IsAString(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	resp, err := (&http.Client{Timeout: redistest.Bound}).Post(s.BaseURL()+"/embeddings", "application/json",
		strings.NewReader(`{"model":"text-embedding-3-large","input":[[1,2,3],[4]],"encoding_format":"base64","dimensions":8}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Data  []struct{ Embedding string }
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(got.Data[1].Embedding)
	if err != nil || len(raw) != 32 || got.Usage.Prompt != 4 {
		t.Errorf("%d bytes, usage %+v, %v", len(raw), got.Usage, err)
	}
}

func TestModels(t *testing.T) {
	s := start(t, fakeprovider.Options{Models: []string{"gpt-4o", "meta-llama/llama-4:free"}})
	list, err := client(s).ListModels(t.Context())
	if err != nil || len(list.Models) != 2 {
		t.Errorf("%d models, %v", len(list.Models), err)
	}
	if m, err := client(s).GetModel(t.Context(), "meta-llama/llama-4:free"); err != nil || m.ID != "meta-llama/llama-4:free" {
		t.Errorf("model %+v, %v", m, err)
	}
	_, err = client(s).CreateChatCompletion(t.Context(), ask("hi"))
	wantError(t, err, 404, "invalid_request_error", "model_not_found")
}

func wantError(t *testing.T, err error, status int, typ, code string) {
	t.Helper()
	var e *openai.APIError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an API error", err)
	}
	got, _ := e.Code.(string)
	if e.HTTPStatusCode != status || e.Type != typ || got != code || e.Message == "" {
		t.Errorf("error %d %q %q %q, want %d %q %q", e.HTTPStatusCode, e.Type, got, e.Message, status, typ, code)
	}
}

func TestErrors(t *testing.T) {
	s := start(t, fakeprovider.Options{Key: "sk-right-key"})
	_, err := client(s).CreateChatCompletion(t.Context(), ask("hi"))
	wantError(t, err, 401, "invalid_request_error", "invalid_api_key")
	if rec := only(t, s); rec.Outcome != fakeprovider.Unauthorized || rec.Header.Get("Authorization") != "Bearer sk-test" {
		t.Errorf("record %+v", rec)
	}

	s = start(t, fakeprovider.Options{})
	f := func(directive string, status int, typ, code string) {
		t.Helper()
		_, err := client(s).CreateChatCompletion(t.Context(), ask("hi "+directive))
		wantError(t, err, status, typ, code)
	}
	f("[fake: status=429]", 429, "rate_limit_error", "rate_limit_exceeded")
	f("[fake: status=429 type=insufficient_quota code=insufficient_quota message=No+money]", 429, "insufficient_quota", "insufficient_quota")
	f("[fake: status=503 retry-after=7]", 503, "service_unavailable_error", "server_is_overloaded")
	f("[fake: status=500]", 500, "server_error", "")
	f("[fake: statos=500]", 400, "invalid_request_error", "fake_directive")
}

func TestBadRequests(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for _, body := range []string{
		``, `[]`, `null`, `{`, `{}`, `{"model":"gpt-4o"}`, `{"model":7,` + hi + `}`,
		`{"MODEL":"gpt-4o",` + hi + `}`,
		`{"model":"gpt-4o","n":0,` + hi + `}`,
		`{"model":"gpt-4o","n":129,` + hi + `}`,
		`{"model":"gpt-4o","max_tokens":-5,` + hi + `}`,
		`{"model":"gpt-4o","max_tokens":99999999999999999999,` + hi + `}`,
		`{"model":"gpt-5","max_tokens":5,` + hi + `}`,
		`{"model":"gpt-4o","max_tokens":5,"max_completion_tokens":5,` + hi + `}`,
		`{"model":"gpt-4o","stream_options":{"include_usage":true},` + hi + `}`,
		`{"model":"gpt-4o","service_tier":"batch",` + hi + `}`,
		`{"model":"gpt-4o","messages":[{"role":"robot","content":"hi"}]}`,
		`{"model":"gpt-4o","messages":[{"role":"user","content":{}}]}`,
		"{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
	} {
		var got struct {
			Error *struct{ Message, Type string }
		}
		if err := json.Unmarshal([]byte(post(t, s, body)), &got); err != nil || got.Error == nil || got.Error.Type != "invalid_request_error" {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	if got := s.Totals(); got.Outcomes[fakeprovider.Rejected] != got.Requests || got.Usage.Total() != 0 {
		t.Errorf("totals %+v, want all rejected and nothing used", got)
	}
}
