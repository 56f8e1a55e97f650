package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// distance delays each round trip to Redis.
type distance struct{ atomic.Int64 }

func (d *distance) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *distance) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d.Load()))
		return next(ctx, cmd)
	}
}

func (d *distance) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		time.Sleep(time.Duration(d.Load()))
		return next(ctx, cmds)
	}
}

// timed is how many calls have had a part, and for how long.
type timed struct {
	calls uint64
	time  time.Duration
}

// parts returns the parts of all calls until now.
func parts(t *testing.T, reg *prometheus.Registry) map[string]timed {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]timed{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); f.GetName() == "llmguard_proxy_call_seconds" {
				out[m.GetLabel()[0].GetValue()] = timed{
					h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second)),
				}
			}
		}
	}
	return out
}

// slowly is a body whose end arrives late.
func slowly(text string, late time.Duration) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, strings.Repeat(" ", 64<<10)) // more than is buffered on the way
		time.Sleep(late)
		_, _ = io.WriteString(w, text)
		_ = w.Close()
	}()
	return r
}

// TestLatency: every wait counts in its own part, and in no other. A part is at least as long as its
// waits, and all parts together are no longer than the call without its caller's part, so that no
// wait counts twice or elsewhere.
func TestLatency(t *testing.T) {
	const (
		far  = 200 * time.Millisecond // a round trip to Redis
		slow = 500 * time.Millisecond // the provider
		late = 300 * time.Millisecond // the caller
	)
	reg, away := prometheus.NewRegistry(), &distance{}
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Metrics = reg }, window(roomy, time.Hour))
	r.rdb.AddHook(away)
	r.org.Hold, r.org.GrowStep = "grow", 20
	r.org.Cache = settings.Cache{MaxAge: time.Hour}
	r.http.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	records := 0
	for _, x := range []struct {
		name, body, cache string
		redis, provider   time.Duration // at least
		far, late         time.Duration // delays
	}{
		{name: "provider", body: prompt("[fake: delay=500ms]", `"max_tokens":9`), provider: slow},
		{name: "redis", body: prompt("hi", `"max_tokens":9`), far: far, redis: far},
		{name: "all", body: prompt("[fake: delay=500ms]", `"max_tokens":9`), far: far, redis: far, provider: slow, late: late},
		{name: "stream", body: prompt("[fake: delay=500ms output=50]", `"stream":true`), far: far, redis: 6 * far, provider: slow}, // its hold grows
		{name: "miss", body: prompt("[fake: delay=500ms]", `"max_tokens":8`), cache: "max-age=60", provider: slow},
		{name: "hit", body: prompt("[fake: delay=500ms]", `"max_tokens":8`), cache: "max-age=60", far: far, redis: 2 * far},
	} {
		before := parts(t, reg)
		away.Store(int64(x.far))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.http.URL+"/v1/chat/completions", slowly(x.body, x.late))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.key)
		req.Header.Set("Expect", "100-continue") // the body is late only once it is read
		if x.cache != "" {
			req.Header.Set(guard.HeaderCache, x.cache)
		}
		resp, err := r.http.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %d %s, %v; want 200", x.name, resp.StatusCode, text, err)
		}
		records++
		record := r.records(records)[records-1]
		if x.name == "miss" {
			r.stored(1)
		}
		away.Store(0)
		after := parts(t, reg)
		grown := func(name string) timed {
			return timed{after[name].calls - before[name].calls, after[name].time - before[name].time}
		}
		own, redis, provider := grown("llmguard"), grown("redis"), grown("provider")
		took := time.Duration(record["took"].(float64))
		t.Logf("%s: llmguard %v, redis %v, provider %v of %v", x.name, own, redis, provider, took)
		asked := uint64(1)
		if x.name == "hit" {
			asked = 0
		}
		if own.calls != 1 || redis.calls != 1 || provider.calls != asked {
			t.Errorf("%s: got %d, %d, %d calls; want 1 of each part, and of the provider if it was asked", x.name,
				own.calls, redis.calls, provider.calls)
		}
		if redis.time < x.redis || provider.time < x.provider {
			t.Errorf("%s: got %v for Redis, %v for the provider; want at least %v, %v", x.name, redis.time,
				provider.time, x.redis, x.provider)
		}
		if all := own.time + redis.time + provider.time; all > took-x.late+time.Microsecond {
			t.Errorf("%s: got %v for all parts; want at most %v without the caller's %v", x.name, all, took, x.late)
		}
	}
}

// TestLatencyOfLiveCalls: calls that are refused or wait in the queue have no parts.
func TestLatencyOfLiveCalls(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, single, func(o *Options) { o.Metrics = reg }, window(roomy, time.Hour))
	r.worker(nil)
	r.chat(strings.Replace(prompt("hi", `"max_tokens":9`), "gpt-4o", "nope", 1)).fails(t, 400, "model_not_priced")
	release := r.occupy()
	answers := make(chan answer)
	go func() { answers <- r.chat(prompt("hi", `"max_tokens":9`)) }()
	r.until("the call waits", func() bool {
		waiting, err := r.queue.Waiting(t.Context(), "main")
		return err == nil && len(waiting) > 0
	})
	release()
	if a := redistest.Came(t, answers); a.status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", a.status, a.body)
	}
	r.records(2)
	if own := parts(t, reg)["llmguard"]; own.calls != 0 {
		t.Errorf("got %d calls, want none", own.calls)
	}
}
