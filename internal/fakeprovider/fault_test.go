package fakeprovider_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// send posts a chat request with one directive and reads the response.
func send(t *testing.T, s *fakeprovider.Server, directive string, stream bool) (resp *http.Response, body string, err error) {
	t.Helper()
	raw, _ := json.Marshal(map[string]any{
		"model": "gpt-4o", "stream": stream,
		"messages": []any{map[string]string{"role": "user", "content": "hi [fake: output=20 " + directive + "]"}},
	})
	resp, err = (&http.Client{Timeout: redistest.Bound}).Post(s.BaseURL()+"/chat/completions", "application/json", strings.NewReader(string(raw)))
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, string(got), err
}

func TestCutsOfAStream(t *testing.T) {
	f := func(directive string, wantErr error, wantChunks int, wantFinish, wantDone bool, wantOutcome fakeprovider.Outcome) {
		t.Helper()
		s := start(t, fakeprovider.Options{})
		_, body, err := send(t, s, directive, true)
		if !errors.Is(err, wantErr) {
			t.Errorf("%s: error %v, want %v", directive, err, wantErr)
		}
		if got := strings.Count(body, `"content":"`) - 1; got != wantChunks && err == nil {
			t.Errorf("%s: %d chunks of content, want %d", directive, got, wantChunks)
		}
		if got := strings.Contains(body, `"finish_reason":"stop"`); got != wantFinish {
			t.Errorf("%s: finish reason sent: %v", directive, got)
		}
		if got := strings.Contains(body, "[DONE]"); got != wantDone {
			t.Errorf("%s: [DONE] sent: %v", directive, got)
		}
		rec := only(t, s)
		if rec.Outcome != wantOutcome || rec.Usage.Completion != int64(wantChunks) || rec.Usage.Prompt == 0 {
			t.Errorf("%s: outcome %q, usage %+v, want %q and %d", directive, rec.Outcome, rec.Usage, wantOutcome, wantChunks)
		}
	}
	f("cut=reset after=5", syscall.ECONNRESET, 5, false, false, fakeprovider.WasCut)
	f("cut=abort after=5", io.ErrUnexpectedEOF, 5, false, false, fakeprovider.WasCut)
	f("cut=eof after=5", nil, 5, false, false, fakeprovider.WasCut)
	f("cut=eof after=20", nil, 20, false, false, fakeprovider.WasCut)
	f("cut=eof after=999", nil, 20, false, false, fakeprovider.WasCut)
	f("cut=eof", nil, 10, false, false, fakeprovider.WasCut)
	f("cut=nodone", nil, 20, true, false, fakeprovider.WasCut)
	f("cut=error after=5", nil, 5, false, false, fakeprovider.WasCut)
	f("", nil, 20, true, true, fakeprovider.OK)
}

func TestClientSeesTheErrorFrame(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	stream, err := client(s).CreateChatCompletionStream(t.Context(), ask("hi [fake: cut=error after=2 message=broke]"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for err == nil {
		_, err = stream.Recv()
	}
	var e *openai.APIError
	if !errors.As(err, &e) || e.Message != "broke" {
		t.Errorf("stream ended with %v, want the error frame", err)
	}
}

func TestCutsOfAPlainAnswer(t *testing.T) {
	for directive, want := range map[string]error{
		"cut=headers": syscall.ECONNRESET, "cut=reset": syscall.ECONNRESET, "cut=abort": io.ErrUnexpectedEOF,
	} {
		s := start(t, fakeprovider.Options{})
		_, body, err := send(t, s, directive, false)
		early := directive == "cut=headers" && errors.Is(err, io.EOF)
		if !errors.Is(err, want) && !early {
			t.Errorf("%s: error %v, want %v", directive, err, want)
		}
		if json.Valid([]byte(body)) || only(t, s).Outcome != fakeprovider.WasCut {
			t.Errorf("%s: a whole answer came: %s", directive, body)
		}
	}
}

func TestUsageModes(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	f := func(mode, wantPlain string) {
		t.Helper()
		_, body, err := send(t, s, "usage="+mode, false)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Usage map[string]json.RawMessage }
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Usage["completion_tokens"]) != wantPlain {
			t.Errorf("usage=%s: %s, want completion_tokens %s", mode, got.Usage, wantPlain)
		}
	}
	f("none", "")
	f("null", "")
	f("bare", "20")
	f("negative", "-20")
	f("huge", "1e30")
	f("string", `"20"`)
	f("fraction", "20.5")
	f("zero", "0")
	f("every", "20")
	log := s.Log()
	if log[0].Reported != "" || !strings.Contains(log[3].Reported, "-20") || log[3].Usage.Completion != 20 {
		t.Errorf("log does not tell reported usage from true usage: %+v", log[3])
	}

	_, body, err := send(t, s, "usage=every", true)
	if err != nil || strings.Count(body, `"completion_tokens":`) != 22 || !strings.Contains(body, `"completion_tokens":7,`) {
		t.Errorf("usage=every, %v:\n%s", err, body)
	}
	if _, body, _ = send(t, s, "raw-usage={%22prompt_tokens%22:%5B%5D}", false); !strings.Contains(body, `"usage":{"prompt_tokens":[]}`) {
		t.Errorf("raw usage: %s", body)
	}
}

func TestFraming(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	f := func(directive string, check func(body string) bool) {
		t.Helper()
		_, body, err := send(t, s, directive, true)
		if err != nil || !check(body) {
			t.Errorf("%s: %v\n%.2000s", directive, err, body)
		}
	}
	f("newline=crlf", func(b string) bool { return strings.HasSuffix(b, "data: [DONE]\r\n\r\n") })
	f("newline=cr", func(b string) bool { return strings.HasSuffix(b, "data: [DONE]\r\r") && !strings.Contains(b, "\n") })
	f("comments", func(b string) bool { return strings.Count(b, ": FAKE PROCESSING\n\n") == 23 })
	f("long=10000000", func(b string) bool { return len(b) > 10_000_000 && strings.HasSuffix(b, "[DONE]\n\n") })
	f("split=utf8", func(b string) bool { return utf8.ValidString(b) && strings.Contains(b, "日本語") })
	f("split=byte", func(b string) bool { return utf8.ValidString(b) && strings.Contains(b, "🙂") })
	f("chunk=7", func(b string) bool { return strings.Count(b, `"content":"`) == 1+3 })
	f("garbage after=3", func(b string) bool {
		broken := 0
		for line := range strings.Lines(b) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {"); ok && !json.Valid([]byte("{"+data)) {
				broken++
			}
		}
		return broken == 1 && strings.Contains(b, "[DONE]")
	})
}

// The client transport requests gzip on its own and must decode it.
func TestGzip(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	for _, stream := range []bool{false, true} {
		resp, body, err := send(t, s, "gzip", stream)
		if err != nil || !resp.Uncompressed || !strings.Contains(body, "chatcmpl-") {
			t.Errorf("stream %v: uncompressed %v, %v: %.100s", stream, resp.Uncompressed, err, body)
		}
	}
}

func TestErrorBodies(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	for body, want := range map[string]string{
		"html": "<html>", "empty": "", "string": `{"error":"`, "detail": `{"detail":`, "number": `"code":5001`,
	} {
		resp, got, err := send(t, s, "status=502 body="+body, false)
		if err != nil || resp.StatusCode != 502 || !strings.Contains(got, want) {
			t.Errorf("body=%s: %d %q, %v", body, resp.StatusCode, got, err)
		}
	}
}

func TestClientGone(t *testing.T) {
	for _, directive := range []string{"delay=1h", "first=1h", "stall=1h after=3", "endless gap=1ms", "endless"} {
		s := start(t, fakeprovider.Options{})
		ctx, hangUp := context.WithCancel(t.Context())
		if strings.HasPrefix(directive, "delay") || strings.HasPrefix(directive, "first") { // no event is ever sent
			go func() {
				redistest.Eventually(t, "the request has come", func() bool { return len(s.Log()) > 0 })
				hangUp()
			}()
		}
		st, err := client(s).CreateChatCompletionStream(ctx, ask("hi [fake: output=20 "+directive+"]"))
		if err == nil {
			_, _ = st.Recv()
			hangUp()
			_ = st.Close()
		}
		hangUp()
		rec := only(t, s)
		if rec.Outcome != fakeprovider.ClientGone {
			t.Errorf("%s: got record %+v, want that the client is gone", directive, rec)
		}
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	failed := make(chan error)
	for _, stream := range []bool{true, false} {
		go func() {
			_, _, err := send(t, s, "delay=1h", stream)
			failed <- err
		}()
	}
	redistest.Eventually(t, "both requests are in flight", func() bool { return s.Totals().InFlight == 2 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err1, err2 := redistest.Came(t, failed), redistest.Came(t, failed); err1 == nil || err2 == nil {
		t.Errorf("errors %v, %v; want two broken connections", err1, err2)
	}
	if got := s.Totals(); got.InFlight != 0 || got.PeakInFlight != 2 {
		t.Errorf("totals %+v", got)
	}
}

func TestScripts(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	s.Script(func(r *fakeprovider.Request) fakeprovider.Behaviour {
		if r.Model == "gpt-4o" && !strings.HasPrefix(r.UserText, "hi") || r.Stream {
			t.Errorf("request %+v", r)
		}
		return fakeprovider.Behaviour{Text: "scripted"}
	})
	if _, body, _ := send(t, s, "", false); !strings.Contains(body, `"content":"scripted"`) {
		t.Errorf("script: %s", body)
	}
	s.ScriptModel("gpt-4o", fakeprovider.Behaviour{Text: "by model", Model: "gpt-4o-2024-08-06", Tier: "flex"})
	if _, body, _ := send(t, s, "", false); !strings.Contains(body, "by model") || !strings.Contains(body, `"gpt-4o-2024-08-06"`) || !strings.Contains(body, `"service_tier":"flex"`) {
		t.Errorf("script by model: %s", body)
	}
	if _, body, _ := send(t, s, "text=by+directive", false); !strings.Contains(body, "by directive") {
		t.Errorf("directive over script: %s", body)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/embeddings", strings.NewReader(`{"model":"m","input":"x"}`))
	req.Header.Set("X-Fake", "status=429;retry-after=2")
	resp, err := (&http.Client{Timeout: redistest.Bound}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" {
		t.Errorf("header: %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

func TestTimes(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	for try, want := range []int{500, 500, 200, 200} {
		resp, _, err := send(t, s, "status=500 times=2", false)
		if err != nil || resp.StatusCode != want {
			t.Errorf("try %d: %d, %v, want %d", try, resp.StatusCode, err, want)
		}
	}
}

func TestPromptCache(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	long := strings.Repeat("The careful teacher keeps every letter. ", 300)
	f := func(model, text string, wantCached, wantWritten bool) {
		t.Helper()
		req := ask(text)
		req.Model = model
		resp, err := client(s).CreateChatCompletion(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		log := s.Log()
		u := log[len(log)-1].Usage
		if (u.Cached > 0) != wantCached || u.Cached%128 != 0 || u.Cached > u.Prompt || int(u.Cached) != resp.Usage.PromptTokensDetails.CachedTokens {
			t.Errorf("%s: usage %+v, want cached: %v", model, u, wantCached)
		}
		if (u.CacheWrite > 0) != wantWritten || u.Cached+u.CacheWrite > u.Prompt {
			t.Errorf("%s: usage %+v, want written: %v", model, u, wantWritten)
		}
	}
	f("gpt-4o", "short", false, false)
	f("gpt-4o", "short", false, false)
	f("gpt-4o", long+"one", false, false)
	f("gpt-4o", long+"two", true, false)
	f("gpt-4o", "other start "+long, false, false)
	f("gpt-6-sol", long+"one", false, true)
	f("gpt-6-sol", long+long, true, true)
}

func TestLogIsBounded(t *testing.T) {
	s := start(t, fakeprovider.Options{LogSize: 3, KeepBodies: true})
	for range 5 {
		post(t, s, `{"model":"gpt-4o","messages":[{"role":"user","content":"x"}]}`)
	}
	log := s.Log()
	if len(log) != 3 || log[0].Seq != 3 || log[2].Seq != 5 || len(log[2].Body) != int(log[2].BodyLen) || len(log[2].BodySHA256) != 64 {
		t.Errorf("log %+v", log)
	}
	total := s.Totals()
	if total.Requests != 5 || total.Usage.Completion == 0 {
		t.Errorf("totals %+v", total)
	}
}

// A fault as raw bytes on the wire: no status line.
func TestResetBeforeHeaders(t *testing.T) {
	s := start(t, fakeprovider.Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(redistest.Bound))
	const body = `{"model":"m","input":"[fake: cut=headers]"}`
	_, _ = io.WriteString(conn, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 43\r\n\r\n"+body)
	if _, err := bufio.NewReader(conn).ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
}
