package guard

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// TestCacheFailsSoft checks that a cache whose Redis is silent or gone makes calls miss, nothing else.
func TestCacheFailsSoft(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and does not answer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	gone := redis.NewClient(&redis.Options{Addr: silent.Addr().String()})
	_ = gone.Close()
	slow := redis.NewClient(&redis.Options{Addr: silent.Addr().String(), MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Minute, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = slow.Close() })
	r := newRig(t, roomy()...)
	r.org.Cache = settings.Cache{MaxAge: time.Hour, Always: true}
	r.guard.deadline = 20 * time.Millisecond
	for name, rdb := range map[string]*redis.Client{"gone": gone, "slow": slow} {
		r.guard.cache = cache.New(redistest.DB(rdb), cache.Options{})
		for range 2 {
			w := httptest.NewRecorder()
			a := Attempt{ID: wire.NewCallID(), Number: 1, Patience: time.Minute, Header: http.Header{}}
			c, err := r.guard.Run(t.Context(), r.plan(prompt("gpt-4o", "hi", "")), a, w)
			if err != nil || w.Code != 200 || c.Result.Outcome != Completed || w.Header().Get(HeaderCache) != "miss" {
				t.Errorf("%s: got %v, status %d, %v; want an answer of the provider", name, err, w.Code, w.Header())
			}
		}
		r.settle()
	}
	if n := len(r.fake.Log()); n != 4 {
		t.Errorf("%d requests reached the provider, want 4", n)
	}
}

// TestCacheOfALeaver checks that a stream is stored although its caller left at its last event.
func TestCacheOfALeaver(t *testing.T) {
	r := newRig(t, roomy()...)
	r.org.Cache = settings.Cache{MaxAge: time.Hour, MaxBytes: 1 << 20, Always: true}
	rdb := redis.NewClient(&redis.Options{Addr: r.redis.Addr})
	t.Cleanup(func() { _ = rdb.Close() })
	r.guard.cache = cache.New(redistest.DB(rdb), cache.Options{})
	for _, want := range []string{"miss", "hit"} {
		p := r.plan(prompt("gpt-4o", "[fake: output=40]", `"stream":true`))
		ctx, leave := context.WithCancel(t.Context())
		w := &quitter{ResponseWriter: httptest.NewRecorder(), leave: leave, events: 43}
		a := Attempt{ID: wire.NewCallID(), Number: 1, Patience: time.Minute, Header: http.Header{}}
		c, err := r.guard.Run(ctx, p, a, w)
		if c == nil || w.Header().Get(HeaderCache) != want {
			t.Fatalf("got %v, %v; want a %s", err, w.Header(), want)
		}
		r.settle()
	}
}

// TestCacheCharge checks the share of a cost, rounded up, without overflow.
func TestCacheCharge(t *testing.T) {
	for _, c := range []struct {
		cost  pricing.Nano
		share settings.Percent
		want  pricing.Nano
	}{
		{0, 25, 0}, {1, 0, 0}, {1, 1, 1}, {100, 25, 25}, {101, 25, 26}, {99, 100, 99}, {1<<63 - 1, 100, 1<<63 - 1}, {199, 50, 100},
	} {
		if got := cachedCost(c.share, c.cost); got != c.want {
			t.Errorf("%d%% of %d: got %d, want %d", c.share, c.cost, got, c.want)
		}
	}
}

// TestCacheID checks that everything that determines an answer is in the id of its request.
func TestCacheID(t *testing.T) {
	r := newRig(t)
	body := prompt("gpt-4o", "hi", `"stream":true`)
	id := func(body string, a Attempt) string { return r.plan(body).cacheID(&a) }
	first := id(body, Attempt{})
	if again := id(body, Attempt{ID: "x", JobID: "job"}); again != first {
		t.Errorf("got %s and %s for one request", first, again)
	}
	r.org.DefaultOutputLimit = 7 // written into the request
	limited := id(body, Attempt{})
	r.org.DefaultOutputLimit = 0
	for what, other := range map[string]string{
		"other bytes": id(body+" ", Attempt{}), "another model": id(prompt("smart", "hi", `"stream":true`), Attempt{}),
		"a query": id(body, Attempt{Query: "a=b"}), "an edit": limited,
		"a beta": id(body, Attempt{Header: http.Header{"Openai-Beta": {"x"}}}),
	} {
		if other == first {
			t.Errorf("%s: the id is the same", what)
		}
	}
}

// TestReusable checks which requests have answers that may be reused.
func TestReusable(t *testing.T) {
	r := newRig(t)
	r.org.AllowBuiltinTools = true
	picture := func(url string) string {
		return `{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
	}
	for body, want := range map[string]bool{
		prompt("gpt-4o", "hi", ""):                                                                   true,
		`{"model":"text-embedding-3-small","input":"hi"}`:                                            true,
		picture("data:image/png;base64,iVBORw0KGgo="):                                                true,
		picture("https://example.com/a.png"):                                                         false,
		prompt("gpt-4o", "hi", `"store":true`):                                                       false,
		prompt("gpt-4o-search-preview", "hi", `"web_search_options":{}`):                             false,
		prompt("talker", "hi", `"audio":{"voice":"a","format":"mp3"},"modalities":["text","audio"]`): false,
	} {
		if got := r.plan(body).reusable(); got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}
