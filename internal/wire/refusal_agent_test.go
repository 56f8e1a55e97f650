package wire

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestForAgent: agents that obey any wait in silence are told of a long one by a status that they show, in words after
// which they do not repeat the call. All others get the 429.
func TestForAgent(t *testing.T) {
	codex, openCode := http.Header{"X-Codex-Window-Id": {"w"}}, http.Header{"User-Agent": {"opencode/1.18.33 ai-sdk/4"}}
	const text = `Rate limit reached for limit "day" of this user (cost): Limit $1, Used $1, Requested $2. Please try again in 24h0m0s.`
	for _, c := range []struct {
		from  http.Header
		e     *Error
		shows bool
	}{
		{codex, RateLimited(text, 24*time.Hour), true},
		{openCode, RateLimited(text, 24*time.Hour), true},
		{openCode, RateLimited("Rate Limit reached. try again when one ends.", time.Hour), true},
		{codex, RateLimited(text, 5*time.Minute), false},
		{openCode, ServiceUnavailable(text, time.Hour, nil), false},
		{http.Header{"User-Agent": {"OpenAI/Python 2.0"}}, RateLimited(text, 24*time.Hour), false},
	} {
		before := *c.e
		got := c.e.ForAgent(c.from)
		if !c.shows {
			if got != c.e {
				t.Errorf("%v: got %+v, want the error unchanged", c.from, got)
			}
			continue
		}
		again := strings.ToLower(got.Message)
		if got.Status != 402 || got.Code != "insufficient_quota" || got.Header.Get("Retry-After") != "" || got.Header.Get("X-Should-Retry") != "false" ||
			strings.Contains(again, "rate limit") || strings.Contains(again, "try again") {
			t.Errorf("%v: got %d %s, %v: %s", c.from, got.Status, got.Code, got.Header, got.Message)
		}
		if c.e.Status != before.Status || c.e.Header.Get("Retry-After") == "" || c.e.Message != before.Message {
			t.Errorf("the error is changed: %+v", c.e)
		}
	}
	want := `Limit reached for limit "day" of this user (cost): Limit $1, Used $1, Requested $2. It has capacity again in 24h0m0s.`
	if got := RateLimited(text, 24*time.Hour).ForAgent(codex).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
