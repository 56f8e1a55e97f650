package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestSDKs calls llmguard with the official SDKs of Anthropic and OpenAI.
func TestSDKs(t *testing.T) {
	sdk.need(t)
	s := newStand(t, binary)
	st, large := s.begin(t, sdk, "text", say("The river is calm.")), s.begin(t, sdk, "large", say("Never."))
	cmd := redistest.Command(t, "node", "sdk.mjs")
	cmd.Dir = "node"
	cmd.Env = append(os.Environ(), "URL="+s.Proxy.URL, "KEY="+st.key, "LARGE="+large.key, "PROMPT="+st.prompt(),
		"LARGE_PROMPT="+large.prompt())
	out, err := cmd.CombinedOutput()
	var got struct {
		Message, Stream, Response, Refused, RefusedResponse string
		Tokens, Models                                      int
	}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, answer := range []string{got.Message, got.Stream, got.Response} {
		if answer != "The river is calm." {
			t.Errorf("got the answer %q", answer)
		}
	}
	if got.Tokens == 0 || got.Models == 0 {
		t.Errorf("got %d tokens and %d models, want some", got.Tokens, got.Models)
	}
	for _, refusal := range []string{got.Refused, got.RefusedResponse} {
		if !strings.Contains(refusal, " 402 ") || !strings.Contains(refusal, "larger than limit") {
			t.Errorf("got the refusal %q, want a 402 with the text", refusal)
		}
	}
	large.want("", "", 2, 0) // no SDK repeats it
	large.charged(0)
	sum := st.charge(4) // counting tokens is listed, too
	for _, rec := range st.sent() {
		sum -= bill(rec)
	}
	if sum != 0 {
		t.Errorf("got %d nano-USD more charged than billed", sum)
	}
}

// charge waits until the ledger has as many entries, and returns their sum in nano-USD.
func (st *story) charge(n int) (sum int64) {
	st.t.Helper()
	for _, e := range st.charged(n) {
		sum += int64(e.Cost)
	}
	return sum
}

// TestFree makes the requests of Claude Code that cost nothing: its probe, and the burst of its command /context.
func TestFree(t *testing.T) {
	s := newStand(t, binary)
	st := s.begin(t, programs[0], "free", say("Never."))
	client := http.Client{Timeout: redistest.Bound}
	resp, err := client.Head(strings.TrimSuffix(s.Proxy.URL, "/v1") + "/api/hello")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode >= 400 {
		t.Errorf("HEAD /api/hello: got status %d", resp.StatusCode)
	}
	const burst = 25
	var all sync.WaitGroup
	for i := range burst {
		all.Go(func() {
			body := fmt.Sprintf(`{"model":"claude-opus-5","messages":[{"role":"user","content":"%d %s"}]}`, i,
				strings.Repeat("word ", 10<<(i/2)))
			status, text, err := st.post("/messages/count_tokens?beta=true", body)
			if err != nil || status != http.StatusOK || !strings.Contains(text, `"input_tokens":`) {
				t.Errorf("count_tokens: got %v, status %d: %s", err, status, text)
			}
		})
	}
	redistest.Wait(t, all.Wait)
	redistest.Eventually(t, "the log has the requests", func() bool { return len(st.requests()) >= burst })
	if sum := st.charge(burst); sum != 0 {
		t.Errorf("got %d nano-USD charged, want none", sum)
	}
	for line := range strings.Lines(s.Proxy.Log()) {
		probe := strings.Contains(line, `"method":"HEAD"`)
		if strings.Contains(line, `"level":"ERROR"`) || probe && strings.Contains(line, `"error"`) {
			t.Errorf("the proxy logged %s", line)
		}
	}
}
