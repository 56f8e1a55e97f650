package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// flights records which scripts are sent to Redis in one batch: "take", "give" and "org" for a
// script of the org's limits.
type flights struct {
	mu     sync.Mutex
	sent   [][]string
	around func(flight []string, cmds []redis.Cmder, next func() error) error // nil: only record
}

func (f *flights) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *flights) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *flights) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var flight []string
		for _, cmd := range cmds {
			if name := scriptOf(cmd); name != "" {
				flight = append(flight, name)
			}
		}
		f.mu.Lock()
		f.sent = append(f.sent, flight)
		around := f.around
		f.mu.Unlock()
		if around == nil {
			return next(ctx, cmds)
		}
		return around(flight, cmds, func() error { return next(ctx, cmds) })
	}
}

func scriptOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 4 || args[0] != "evalsha" {
		return ""
	}
	first, _ := args[3].(*string)
	switch {
	case first == nil:
		return ""
	case strings.HasPrefix(*first, "lg:{acme}:"):
		return "org"
	case *first == "lg:{main}:quota" && args[2] == 6:
		return "take"
	case *first == "lg:{main}:quota" && args[2] == 2:
		return "give"
	}
	return ""
}

// with returns the batches that contain a script.
func (f *flights) with(name string) (out [][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flight := range f.sent {
		for _, s := range flight {
			if s == name {
				out = append(out, flight)
				break
			}
		}
	}
	return out
}

func (f *flights) set(around func(flight []string, cmds []redis.Cmder, next func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.around = around
}

// prefetchRig returns a rig whose org has been served a first call, with all its writes done.
func prefetchRig(t *testing.T, pool queue.Pool, limits ...budget.Limit) (*rig, *flights) {
	t.Helper()
	f := &flights{}
	r := newRig(t, pool, nil, limits...)
	r.org.OverLimit = "refuse"
	r.rdb.AddHook(f)
	if a := r.chat(prefetchPrompt); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	r.written()
	return r, f
}

// written waits until the previous calls are settled, so that their ends share no batch.
func (r *rig) written() {
	r.t.Helper()
	r.until("nothing is held", func() bool { return r.held() == 0 && strings.HasSuffix(r.used(), " 0 open") })
}

var prefetchPrompt = prompt("[fake: output=5] hi", `"max_tokens":5`)

// used describes the used part of the pool's quota and the number of open calls.
func (r *rig) used() string {
	r.t.Helper()
	d, err := r.queue.Depth(r.t.Context(), "main")
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprintf("%d requests, %d tokens, %d open", d.Rates[0].Used, d.Rates[1].Used, r.rdb.ZCard(r.t.Context(), "lg:{main}:slots").Val())
}

// nothingStays waits until the pool's quota is as before and nothing is held, and checks that only
// the first call reached the provider.
func (r *rig) nothingStays(before string) {
	r.t.Helper()
	r.until("the quota is back and nothing is held", func() bool { return r.used() == before && r.held() == 0 })
	if n := len(r.fake.Log()); n != 1 {
		r.t.Errorf("%d calls reached the provider, want the first alone", n)
	}
}

// measured is a pool with a quota of every kind.
var measured = queue.Pool{RPM: 1000, TPM: 1_000_000, Concurrency: 20}

// TestPrefetchTogether: from the second call on, the quota is requested in the same batch as the
// hold.
func TestPrefetchTogether(t *testing.T) {
	r, f := prefetchRig(t, measured, window(roomy, time.Hour))
	if a := r.chat(prefetchPrompt); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	if got := fmt.Sprint(f.with("take")); got != "[[take] [take org]]" {
		t.Errorf("flights with a take: %s, want [[take] [take org]]", got)
	}
	if n := len(r.fake.Log()); n != 2 {
		t.Errorf("got %d calls reached the provider, want 2", n)
	}
}

// TestPrefetchRefused: quota requested with a hold that is refused is returned, and the next calls
// of a caller that is over budget request none until one is granted.
func TestPrefetchRefused(t *testing.T) {
	once := budget.Limit{ID: "n", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour}}
	r, f := prefetchRig(t, measured, once)
	before := r.used()
	for range 5 {
		if a := r.chat(prefetchPrompt); a.status != http.StatusTooManyRequests {
			t.Fatalf("got status %d, %s; want 429", a.status, a.body)
		}
		if after := r.used(); after != before {
			t.Errorf("got %s after a refusal, %s before; want the same", after, before)
		}
	}
	if got := fmt.Sprint(f.with("take"), f.with("give")); got != "[[take] [take org]] [[give] [give]]" {
		t.Errorf("flights with a take, with a give: %s; want [[take] [take org]] [[give] [give]]", got)
	}
	r.nothingStays(before)
	r.org.Limits = []budget.Limit{window(roomy, time.Hour)}
	for range 2 {
		if a := r.chat(prefetchPrompt); a.status != 200 {
			t.Fatalf("got status %d, %s; want 200", a.status, a.body)
		}
		r.written()
	}
	if got := fmt.Sprint(f.with("take")); got != "[[take] [take org] [take] [take org]]" {
		t.Errorf("flights with a take: %s, want [[take] [take org] [take] [take org]]", got)
	}
}

// TestPrefetchBusy: the hold of a call that gets no quota is returned.
func TestPrefetchBusy(t *testing.T) {
	r, f := prefetchRig(t, single, window(roomy, time.Hour))
	release := r.occupy()
	before := r.used()
	if a := r.chat(prefetchPrompt); a.status != http.StatusTooManyRequests {
		t.Errorf("got status %d, %s; want 429", a.status, a.body)
	}
	if got := f.with("take"); len(got) != 3 || fmt.Sprint(got[2]) != "[take org]" {
		t.Errorf("flights with a take: %v, want 3, the last [take org]", got)
	}
	r.nothingStays(before)
	release()
}

// TestPrefetchDowngrade: quota requested with a refused hold is used for the cheaper model of the
// same pool.
func TestPrefetchDowngrade(t *testing.T) {
	r, f := prefetchRig(t, single, tight())
	r.org.Downgrade = map[string]string{"gpt-4o": "gpt-4o-mini"}
	a := r.chat(prompt("[fake: output=5] hi", `"max_tokens":100`))
	if a.status != 200 || a.header.Get(guard.HeaderInstead) != "gpt-4o" {
		t.Errorf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
	}
	if got := fmt.Sprint(f.with("take")); got != "[[take] [take org] [take]]" {
		t.Errorf("flights with a take: %s, want [[take] [take org] [take]]", got)
	}
}

// TestPrefetchLost: whichever of the two replies is lost, hold and quota are returned.
func TestPrefetchLost(t *testing.T) {
	for _, lost := range []string{"take", "org"} {
		r, f := prefetchRig(t, measured, window(roomy, time.Hour))
		before := r.used()
		f.set(func(flight []string, cmds []redis.Cmder, next func() error) error {
			err := next()
			if fmt.Sprint(flight) == "[take org]" {
				f.set(nil)
				for _, cmd := range cmds {
					if scriptOf(cmd) == lost {
						cmd.SetErr(io.EOF)
					}
				}
			}
			return err
		})
		r.chat(prefetchPrompt).fails(t, http.StatusServiceUnavailable, "server_is_overloaded")
		r.nothingStays(before)
	}
}

// TestPrefetchGone: a caller that leaves while both are in flight leaves nothing behind.
func TestPrefetchGone(t *testing.T) {
	r, f := prefetchRig(t, measured, window(roomy, time.Hour))
	before := r.used()
	ctx, leave := context.WithCancel(t.Context())
	f.set(func(flight []string, _ []redis.Cmder, next func() error) error {
		err := next()
		if fmt.Sprint(flight) == "[take org]" {
			f.set(nil)
			leave()
			redistest.Came(t, r.hungUp)
		}
		return err
	})
	if a := r.do(ctx, http.MethodPost, "/v1/chat/completions", prefetchPrompt); !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %+v, want that the call was canceled", a)
	}
	r.records(2)
	r.nothingStays(before)
}
