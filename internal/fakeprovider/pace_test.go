package fakeprovider_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// left returns the value of a rate limit header.
func left(w *httptest.ResponseRecorder, what string) string {
	h := w.Header()
	return h.Get("X-Ratelimit-Limit-"+what) + " " + h.Get("X-Ratelimit-Remaining-"+what) + " " + h.Get("X-Ratelimit-Reset-"+what)
}

// TestRateLimitHeaders: the headers count down with each call. A call over the limit gets a 429
// with Retry-After, and succeeds after that time.
func TestRateLimitHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{Quota: fakeprovider.Quota{RPM: 3, TPM: 1000}})
		call := func(limit string) *httptest.ResponseRecorder {
			return f.do("POST", "/chat/completions", chat("", `,"max_tokens":`+limit))
		}
		for i, want := range []string{"3 2 1m0s", "3 1 1m0s", "3 0 1m0s"} {
			w := call("100")
			tokens := fmt.Sprintf("1000 %d 1m0s", 900-100*i)
			if got := left(w, "Requests"); w.Code != 200 || got != want || left(w, "Tokens") != tokens {
				t.Errorf("call %d: status %d, requests %q, tokens %q; want %q, %q", i, w.Code, got, left(w, "Tokens"), want, tokens)
			}
			time.Sleep(10 * time.Second)
		}
		w := call("100")
		if w.Code != 429 || w.Header().Get("Retry-After") != "30" || w.Header().Get("Retry-After-Ms") != "30000" || left(w, "Requests") != "3 0 1m0s" {
			t.Errorf("beyond: status %d, retry after %s, %q; want 429, 30, \"3 0 1m0s\"", w.Code, w.Header().Get("Retry-After"), left(w, "Requests"))
		}
		var fault apiFault
		err := json.Unmarshal(w.Body.Bytes(), &fault)
		if err != nil || fault.Error.Type != "requests" || text(fault.Error.Code) != "rate_limit_exceeded" || !strings.Contains(fault.Error.Message, "Limit 3, Used 3, Requested 1. Please try again in 30s.") {
			t.Errorf("%v: %s", err, w.Body)
		}
		time.Sleep(40 * time.Second) // the rejected call counts too
		if w = call("100"); w.Code != 200 || left(w, "Requests") != "3 0 1m0s" {
			t.Errorf("after the wait: status %d, %q", w.Code, left(w, "Requests"))
		}
		time.Sleep(time.Minute)
		if w = call("1001"); w.Code != 429 || !strings.Contains(w.Body.String(), `"type":"tokens"`) {
			t.Errorf("a call larger than the quota: %d %s", w.Code, w.Body)
		}
		if w = call("1000"); w.Code != 200 || left(w, "Tokens") != "1000 0 1m0s" {
			t.Errorf("one as large: status %d, tokens %q", w.Code, left(w, "Tokens"))
		}
	})
}

// TestCadence: responses have the configured pace, in virtual time.
func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{Cadence: fakeprovider.Cadence{First: time.Second, Token: 100 * time.Millisecond}})
		for _, test := range []struct {
			directives, more string
			want             time.Duration
		}{
			{"output=10", "", 2 * time.Second},
			{"output=10", `,"stream":true`, 2 * time.Second},
			{"output=10 delay=5s", "", 7 * time.Second},
			{"output=10 first=3s gap=1s", `,"stream":true`, 13 * time.Second},
			{"output=10 stall=1m", `,"stream":true`, 62 * time.Second},
			{"output=10 chunk=5", `,"stream":true`, 1200 * time.Millisecond},
			{"status=500 delay=4s", "", 4 * time.Second},
		} {
			began := time.Now()
			f.do("POST", "/chat/completions", chat(test.directives, test.more))
			if got := time.Since(began); got != test.want {
				t.Errorf("%s%s: %s, want %s", test.directives, test.more, got, test.want)
			}
		}
	})
}
