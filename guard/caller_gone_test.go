package guard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// quitter leaves after a number of stream events, or immediately; with refuse it stays and
// accepts no more bytes.
type quitter struct {
	http.ResponseWriter
	events int
	leave  func()
	refuse bool
}

func (q *quitter) Unwrap() http.ResponseWriter { return q.ResponseWriter }

func (q *quitter) Write(p []byte) (int, error) {
	q.events -= strings.Count(string(p), "data:")
	if q.events > 0 {
		return q.ResponseWriter.Write(p)
	}
	if q.refuse {
		return 0, errors.New("the caller does not read")
	}
	q.leave()
	return q.ResponseWriter.Write(p)
}

// TestGone checks that a caller who hangs up pays for what was generated: the provider is
// cancelled if the stream shows all of it, and read to its end otherwise.
func TestGone(t *testing.T) {
	r := newRig(t, roomy()...)
	const (
		head = iota // leaves before the provider has answered
		mid         // after some events
		last        // after [DONE]
		deaf        // stays, but accepts no more bytes
	)
	cases := []struct {
		name, model, extra string
		policy             string
		when               int
		outcome            Outcome
		cancelled          bool
	}{
		{"visible stream", "gpt-4o", `,"stream":true`, "auto", head, ClientGone, true},
		{"visible stream", "gpt-4o", `,"stream":true`, "auto", mid, ClientGone, true},
		{"visible stream", "gpt-4o", `,"stream":true`, "auto", last, Completed, false},
		{"visible stream", "gpt-4o", `,"stream":true`, "auto", deaf, ClientGone, true},
		{"visible stream", "gpt-4o", `,"stream":true`, Finish, mid, Completed, false},
		{"visible stream", "gpt-4o", `,"stream":true`, Finish, deaf, Completed, false},
		{"hidden stream", "o4-mini", `,"stream":true`, "auto", head, Completed, false},
		{"hidden stream", "o4-mini", `,"stream":true`, "auto", mid, Completed, false},
		{"hidden stream", "o4-mini", `,"stream":true`, Cancel, mid, ClientGone, true},
		{"effort asked for", "gpt-4o", `,"stream":true,"reasoning_effort":"low"`, "auto", mid, Completed, false},
		{"plain", "gpt-4o", "", "auto", head, Completed, false},
		{"plain", "gpt-4o", "", Cancel, head, ClientGone, true},
		{"plain", "gpt-4o", "", Finish, head, Completed, false},
	}
	for _, c := range cases {
		t.Run(c.name+" "+c.policy+" "+[]string{"head", "mid", "last", "deaf"}[c.when], func(t *testing.T) {
			r.org = &Org{Org: settings.Org{ID: "acme", OnDisconnect: c.policy}, Limits: r.org.Limits}
			before, seen := r.used(), len(r.fake.Log())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			directive := "output=40 gap=3ms"
			switch {
			case c.when == last:
				directive = "output=40"
			case c.when == head && c.cancelled:
				directive = "output=40 first=1m delay=10ms"
			case c.when == head:
				directive = "output=40 first=200ms delay=10ms"
			case c.cancelled:
				directive = "output=900 gap=20ms" // it would take long
			}
			w := &quitter{
				ResponseWriter: httptest.NewRecorder(), leave: cancel, refuse: c.when == deaf,
				events: map[int]int{mid: 10, deaf: 10, last: 43}[c.when],
			}
			if c.when == head {
				w.events = 1 << 30
				go func() {
					redistest.Eventually(t, "the provider is called", func() bool { return len(r.fake.Log()) > seen })
					cancel()
				}()
			}
			p := r.plan(prompt(c.model, "[fake: reasoning=-1 "+directive+"]", `"max_completion_tokens":1000`+c.extra))
			call := r.begin(p)
			if err := call.Forward(ctx, w, Forwarding{}); !errors.Is(err, ErrGone) {
				t.Errorf("Forward: got %v, want %v", err, ErrGone)
			}
			call.End(ctx)
			r.settle()
			if err := r.fake.Quiet(t.Context()); err != nil {
				t.Fatal(err)
			}
			res := call.Result
			if want := c.outcome == Completed && c.when != deaf; res.Relayed != want {
				t.Errorf("got relayed %t, want %t", res.Relayed, want)
			}
			if res.Outcome != c.outcome || res.Estimated != c.cancelled {
				t.Errorf("got outcome %s, estimated %v, usage %+v; want %s, %v", res.Outcome, res.Estimated, res.Usage, c.outcome, c.cancelled)
			}
			log := r.fake.Log()
			if got := log[len(log)-1].Outcome == fakeprovider.ClientGone; got != c.cancelled {
				t.Errorf("the provider was cancelled: got %v, want %v", got, c.cancelled)
			}
			most := call.Plan.Max.Cost
			if strings.Contains(c.extra, "stream") && !p.hidesOutput() {
				most /= 2 // what was seen, not what was held
			}
			if res.Cost <= 0 || c.cancelled && res.Cost > most {
				t.Errorf("charged %v of %v held, want up to %v", res.Cost, call.Plan.Max.Cost, most)
			}
			r.charged(before, call)
		})
	}
}

// TestGoneBeforeSending checks that an unsent call costs nothing.
func TestGoneBeforeSending(t *testing.T) {
	r := newRig(t, roomy()...)
	before := r.used()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, _, err := r.run(ctx, prompt("gpt-4o", "hi", `"stream":true`))
	if !errors.Is(err, ErrGone) || c.Result.Outcome != Unsent || len(r.fake.Log()) != 0 {
		t.Errorf("got %v, outcome %s, %d requests at the provider; want %v, %s, 0", err, c.Result.Outcome, len(r.fake.Log()), ErrGone, Unsent)
	}
	r.charged(before, c)
}

// TestGoneWhileHolding checks that a caller who hangs up during the hold leaves none
// behind.
func TestGoneWhileHolding(t *testing.T) {
	r := newRig(t, roomy()...)
	before := r.used()
	p := r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`))
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		c, err := r.guard.admission.begin(ctx, p, &Attempt{ID: wire.NewCallID(), Number: 1})
		if err != nil {
			t.Fatal(err)
		}
		c.End(ctx)
	}
	r.settle()
	r.charged(before, &Call{Result: Result{Outcome: Unsent}})
}

// TestCancelled checks that a call cancelled on purpose is not read to its end, whatever
// the policy.
func TestCancelled(t *testing.T) {
	r := newRig(t, roomy()...)
	r.org.OnDisconnect = Finish
	ctx, cancel := context.WithCancelCause(t.Context())
	var seen atomic.Bool
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if !seen.Swap(true) {
			cancel(ErrCancelled)
		}
		return fakeprovider.Behaviour{Delay: time.Hour}
	})
	c, _, err := r.run(ctx, prompt("o4-mini", "hi", `"max_completion_tokens":5`))
	if !errors.Is(err, ErrGone) || c.Result.Outcome != ClientGone || c.Result.Cost != c.Plan.Max.Cost {
		t.Errorf("%v, %s at %v", err, c.Result.Outcome, c.Result.Cost)
	}
}

// TestCancelledStream checks that a stream with hidden output that is cancelled, before or after it has shown
// something, costs what it may have generated in the time, and not its hold for minutes of it.
func TestCancelledStream(t *testing.T) {
	r := newRig(t, roomy()...)
	for _, shown := range []bool{false, true} {
		seen := len(r.fake.Log())
		ctx, cancel := context.WithCancelCause(t.Context())
		w, directive := &quitter{ResponseWriter: httptest.NewRecorder(), events: 10, leave: func() { cancel(ErrCancelled) }}, "first=400ms gap=20ms"
		if !shown {
			directive = "delay=1m"
			go func() {
				redistest.Eventually(t, "the provider is called", func() bool { return len(r.fake.Log()) > seen })
				cancel(ErrCancelled)
			}()
		}
		c := r.begin(r.plan(prompt("o4-mini", "[fake: reasoning=200 output=900 "+directive+"]", `"max_completion_tokens":90000,"stream":true`)))
		if err := c.Forward(ctx, w, Forwarding{}); !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want %v", err, ErrGone)
		}
		c.End(t.Context())
		if err := r.fake.Quiet(t.Context()); err != nil {
			t.Fatal(err)
		}
		rec := r.fake.Log()[seen]
		least := rec.Usage.Prompt*1100 + rec.Usage.Completion*4400
		if cost := int64(c.Result.Cost); rec.Outcome != fakeprovider.ClientGone || c.Result.Outcome != ClientGone || cost < least ||
			cost > int64(c.Hold.Max.Cost)/2 || c.Result.Usage.Output == 0 {
			t.Errorf("shown %v: %s, %s costs %d of %d held, want at least %d", shown, rec.Outcome, c.Result.Outcome, cost, c.Hold.Max.Cost, least)
		}
	}
}

const stop, resume = syscall.SIGSTOP, syscall.SIGCONT

// TestStoreGone checks that settlements survive an unavailable store.
func TestStoreGone(t *testing.T) {
	r := newRig(t, roomy()...)
	c := r.begin(r.plan(prompt("gpt-4o", "[fake: output=5]", `"max_tokens":50`)))
	r.guard.admission.deadline = 300 * time.Millisecond
	if err := r.redis.Signal(stop); err != nil {
		t.Fatal(err)
	}
	if err := c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{}); err != nil {
		t.Error(err)
	}
	c.End(t.Context())
	// A call whose hold is uncertain is not forwarded, and the hold is released.
	if _, err := r.guard.admission.begin(t.Context(), c.Plan, &Attempt{ID: wire.NewCallID(), Number: 1}); err == nil {
		t.Error("a call was admitted without a store")
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.guard.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a settlement under way: %v", err)
	}
	if err := r.redis.Signal(resume); err != nil {
		t.Fatal(err)
	}
	r.settle()
	r.charged(map[string]int64{}, c)
	if list := r.entries(); len(list) != 1 || list[0].Cost != c.Result.Cost || list[0].Cost == pricing.Nano(0) {
		t.Errorf("ledger %+v", list)
	}
}
