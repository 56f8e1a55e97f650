package baseline

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// Every baseline must relay both kinds of response unchanged, or its figures are meaningless.
func TestBaselinesRelay(t *testing.T) {
	upstream := httptest.NewServer(Upstream(0))
	defer upstream.Close()
	to, _ := url.Parse(upstream.URL)
	rdb := redistest.Start(t).Client()
	if err := LoadScript(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]http.Handler{
		"reverse": Reverse(to), "lean": Lean(to),
		"reverse+redis": WithRedis(Reverse(to), rdb), "lean+redis": WithRedis(Lean(to), rdb),
	} {
		proxy := httptest.NewServer(h)
		for body, want := range map[string]int{`{"stream":false}`: 0, `{"stream":true}`: chunks + 2} {
			resp, err := (&http.Client{Timeout: redistest.Bound}).Post(proxy.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || strings.Count(string(got), "chat.completion.chunk") != want || want == 0 && string(got) != answer {
				t.Errorf("%s, %s: got status %d, %s; want 200 and the upstream's answer", name, body, resp.StatusCode, got)
			}
		}
		proxy.Close()
	}
	if n := rdb.Exists(t.Context(), "bench:{org}:bucket", "bench:{pool}:quota", "bench:{org}:settled").Val(); n != 3 {
		t.Errorf("%d buckets were used, want 3", n)
	}
}

func TestRedisRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	w := httptest.NewRecorder()
	WithRedis(http.NotFoundHandler(), rdb).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("without Redis: got status %d, want 503", w.Code)
	}
}
