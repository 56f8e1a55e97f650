package guard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/quota"
)

// The prices of gpt-4o, in nano-USD a token.
const in, out = 2500, 10_000

// TestOutcomes checks how each kind of answer is charged, reported and recorded.
func TestOutcomes(t *testing.T) {
	r := newRig(t, roomy()...)
	const (
		nothing = iota // void: no trace
		exact          // by the provider's usage
		some           // counted output
		reached        // counted output, and what may have been generated since
		elapsed        // what may have been generated since the call was sent
	)
	cases := []struct {
		directive, extra string
		outcome          Outcome
		charge           int
		err              string // what Forward returns
	}{
		{"", "", Completed, exact, ""},
		{"", `,"stream":true`, Completed, exact, ""},
		{"cut=nodone", `,"stream":true`, Completed, exact, ""},
		{"usage=every", `,"stream":true`, Completed, exact, ""},
		{"usage=bare", "", Completed, exact, ""},
		{"newline=crlf comments", `,"stream":true`, Completed, exact, ""},
		{"newline=cr", `,"stream":true`, Completed, exact, ""},
		{"split=byte", `,"stream":true`, Completed, exact, ""},
		{"long=100000", `,"stream":true`, Completed, exact, ""},
		{"garbage", `,"stream":true`, Completed, exact, ""},
		{"usage=none", "", NoUsage, some, ""},
		{"usage=null", "", NoUsage, some, ""},
		{"usage=negative", "", NoUsage, some, ""},
		{"usage=huge", "", NoUsage, some, ""},
		{"usage=string", "", Completed, exact, ""},
		{"usage=zero", "", NoUsage, some, ""},
		{"garbage", "", Broken, elapsed, "502"},
		{"usage=none", `,"stream":true`, NoUsage, some, ""},
		{"usage=negative", `,"stream":true`, NoUsage, some, ""},
		{"usage=zero", `,"stream":true`, NoUsage, some, ""},
		{"cut=error", `,"stream":true`, Broken, reached, ""},
		{"status=400", "", Rejected, nothing, ""},
		{"status=404 body=string", "", Rejected, nothing, "404"},
		{"status=401", "", Rejected, nothing, "502"},
		{"status=302", "", UpstreamError, nothing, ""},
		{"status=429 retry-after=7", "", Busy, nothing, "answered 429"},
		{"status=503", `,"stream":true`, Busy, nothing, "answered 503"},
		{"status=500", "", UpstreamError, nothing, ""},
		{"status=501 body=html", "", UpstreamError, nothing, "501"},
		{"status=408", "", UpstreamError, nothing, ""},
		{"status=502", "", UpstreamError, nothing, ""},
		{"status=522 body=html", "", UpstreamError, nothing, "522"},
		{"status=504 body=html", "", UpstreamError, nothing, "504"},
		{"cut=headers", "", Broken, elapsed, "502"},
		{"cut=abort", "", Broken, elapsed, "502"},
		{"cut=reset", "", Broken, elapsed, "502"},
		{"cut=reset", `,"stream":true`, Broken, reached, ""},
		{"cut=eof", `,"stream":true`, Broken, reached, ""},
	}
	entries := 0
	for _, c := range cases {
		t.Run(c.directive+c.extra, func(t *testing.T) {
			before := r.used()
			call, w, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=40 "+c.directive+"]", `"max_tokens":100`+c.extra))
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("Forward: %v", err)
			}
			res := call.Result
			want := map[int]pricing.Nano{
				nothing: 0,
				exact:   pricing.Nano(res.Usage.Input*in - res.Usage.CachedInput*in/2 + res.Usage.Output*out),
				some:    pricing.Nano(call.Plan.Input*in + res.Usage.Output*out),
			}[min(c.charge, some)]
			if res.Outcome != c.outcome || res.Cost != want || res.Estimated != (c.charge >= some) {
				t.Errorf("%s costs %v, estimated %v; want %s at %v", res.Outcome, res.Cost, res.Estimated, c.outcome, want)
			}
			if c.charge == exact && res.Usage.Output != 40 || c.charge == some && (res.Usage.Output < 15 || res.Usage.Output > 45) ||
				c.charge == reached && res.Usage.Output < 15 {
				t.Errorf("%d tokens of output were charged", res.Usage.Output)
			}
			if (res.Fault != "") != (c.charge >= some && strings.Contains(c.directive, "usage=") && !strings.Contains(c.directive, "none") && !strings.Contains(c.directive, "null")) {
				t.Errorf("fault %q", res.Fault)
			}
			r.charged(before, call)
			if err != nil && w.Body.Len() > 0 {
				t.Errorf("%q was written although Forward failed", w.Body)
			}
			if c.charge == nothing {
				return
			}
			entries++
			list := r.entries()
			if len(list) != entries {
				t.Fatalf("%d entries in the ledger, want %d", len(list), entries)
			}
			last := list[entries-1]
			if last.Cost != res.Cost || last.Outcome != string(res.Outcome) || last.Estimated != res.Estimated || last.Overrun != 0 || last.Status != res.Status {
				t.Errorf("the ledger says %+v", last)
			}
		})
	}
}

// TestBytes checks that answers reach the caller byte for byte, except for the usage chunk
// that the caller did not request.
func TestBytes(t *testing.T) {
	r := newRig(t, roomy()...)
	var sent strings.Builder
	h := r.fake.Handler()
	tap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h.ServeHTTP(&tee{ResponseWriter: w, copy: &sent}, q) }))
	t.Cleanup(tap.Close)
	r.moveTo(tap.URL)
	f := func(directive, extra string, asked bool) {
		t.Helper()
		sent.Reset()
		_, w, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=20 "+directive+"]", `"max_tokens":50`+extra))
		if err != nil {
			t.Fatal(err)
		}
		got, want := w.Body.String(), sent.String()
		if at := strings.Index(want, `"choices":[]`); at >= 0 && !asked {
			i := strings.LastIndex(want[:at], "data:")
			end := strings.LastIndex(want, "data:") // [DONE]
			want = want[:i] + want[end:]
		}
		if got != want {
			t.Errorf("%s %s:\n got %q\nwant %q", directive, extra, got, want)
		}
	}
	f("", "", true)
	f("status=400", "", true)
	f("", `,"stream":true`, false)
	f("newline=crlf", `,"stream":true`, false)
	f("newline=cr split=byte", `,"stream":true`, false)
	f("split=utf8 garbage", `,"stream":true`, false)
	f("usage=every", `,"stream":true`, false)
	f("usage=string", `,"stream":true`, false)
	f("", `,"stream":true,"stream_options":{"include_usage":true}`, true)
	f("comments", `,"stream":true,"stream_options":{"include_usage":true}`, true)
}

// tee copies an answer.
type tee struct {
	http.ResponseWriter
	copy *strings.Builder
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }
func (t *tee) Write(p []byte) (int, error) {
	t.copy.Write(p)
	return t.ResponseWriter.Write(p)
}

// raw serves a provider whose whole answer is the text.
func (r *rig) raw(contentType, text string) {
	r.t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(text))
	}))
	r.t.Cleanup(srv.Close)
	r.moveTo(srv.URL)
}

func event(text string) string { return "data: " + text + "\n\n" }

// TestStreamEnds checks that a complete stream ends normally, and an incomplete one in an
// error.
func TestStreamEnds(t *testing.T) {
	r := newRig(t, roomy()...)
	const (
		delta  = `{"choices":[{"index":0,"delta":{"content":"word"}}]}`
		first  = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
		second = `{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`
		usage  = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}`
	)
	f := func(n int, text, want string, outcome Outcome) {
		t.Helper()
		r.raw("text/event-stream", text)
		c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":50,"stream":true,"n":`+string(rune('0'+n))))
		got := w.Body.String()
		if i := strings.Index(got, `data: {"error":`); i >= 0 {
			got = got[:i] + "ERROR"
		}
		if err != nil || got != want || c.Result.Outcome != outcome {
			t.Errorf("%q became %q and %s, %v; want %q and %s", text, got, c.Result.Outcome, err, want, outcome)
		}
	}
	done := event("[DONE]")
	f(1, event(delta)+event(first)+event(usage)+done, event(delta)+event(first)+done, Completed)
	f(1, event(delta)+event(first)+event(usage), event(delta)+event(first), Completed)
	f(1, event(delta)+event(first), event(delta)+event(first), NoUsage)
	f(1, event(delta)+done, event(delta)+done, NoUsage)
	f(1, event(delta), event(delta)+"ERROR", Broken)
	f(2, event(delta)+event(first), event(delta)+event(first)+"ERROR", Broken) // one of two choices
	f(2, event(delta)+event(first)+event(second), event(delta)+event(first)+event(second), NoUsage)
	// Half an event is dropped, so that the error can be parsed.
	f(1, event(delta)+`data: {"choices":[{"del`, event(delta)+"ERROR", Broken)
	// A last event without its blank line is completed, because most clients drop it
	// otherwise.
	f(1, event(delta)+event(first)+"data: [DONE]", event(delta)+event(first)+done, NoUsage)
	// Errors from the provider are forwarded and end the stream.
	failed := event(`{"error":{"message":"x","type":"server_error","param":null,"code":null}}`)
	f(1, event(delta)+failed, event(delta)+"ERROR", Broken)
	billed := event(`{"error":{"message":"x"},"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}`)
	f(1, event(delta)+billed, event(delta)+"ERROR", Completed)
	// A usage chunk with invalid numbers is still ours, not the caller's.
	f(1, event(delta)+event(first)+event(`{"choices":[],"usage":{"prompt_tokens":"9"}}`)+done, event(delta)+event(first)+done, NoUsage)
}

// TestNoStream uses a provider that answers a stream request with one document.
func TestNoStream(t *testing.T) {
	r := newRig(t, roomy()...)
	const text = `{"id":"x","choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}`
	r.raw("application/json", text)
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":50,"stream":true`))
	if err != nil || w.Body.String() != text || c.Result.Cost != 9*in+5*out {
		t.Errorf("%q at %v, %v", w.Body, c.Result.Cost, err)
	}
}

// TestAnswerModel checks that the bill follows the tier that the answer names, and the more
// expensive of the requested and the named model.
func TestAnswerModel(t *testing.T) {
	r := newRig(t, roomy()...)
	f := func(directive string, perIn, perOut int64) {
		t.Helper()
		before := r.used()
		c, _, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=40 cached=-1 "+directive+"]", `"max_tokens":100`))
		if err != nil {
			t.Fatal(err)
		}
		if want := pricing.Nano(c.Result.Usage.Input*perIn + 40*perOut); c.Result.Cost != want || c.Result.Estimated {
			t.Errorf("%s costs %v, want %v", directive, c.Result.Cost, want)
		}
		r.charged(before, c)
		list := r.entries()
		if e := list[len(list)-1]; e.Overrun != max(0, c.Result.Cost-c.Plan.Max.Cost) || e.ServiceTier != c.Result.Tier {
			t.Errorf("%s: the ledger says %+v", directive, e)
		}
	}
	f("", in, out)
	f("model=gpt-4o-2024-08-06", in, out)
	f("model=gpt-4o-mini", in, out)
	f("model=o1", 15_000, 60_000) // more expensive than the hold: an overrun
	f("model=never-heard-of", in, out)
	f("model=claude-sonnet-4-5", in, out) // not this provider's
	f("tier=default", in, out)
	f("tier=priority", in*5/2, out*5/2)
	f("tier=unheard-of", in*5/2, out*5/2) // the most expensive tier
}

// TestUnsent checks that a call that never reached the provider leaves no trace.
func TestUnsent(t *testing.T) {
	r := newRig(t, roomy()...)
	before := r.used()
	end := func(c *Call) {
		t.Helper()
		c.End(t.Context())
		c.End(t.Context())
		r.settle()
		if c.Result.Outcome != Unsent {
			t.Errorf("outcome %s", c.Result.Outcome)
		}
		r.charged(before, c)
	}
	end(r.begin(r.plan(prompt("gpt-4o", "hi", "")))) // never forwarded

	c := r.begin(r.plan(prompt("gpt-4o", "hi", "")))
	err := c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Permit: func() error { return quota.ErrStale }})
	if !errors.Is(err, quota.ErrStale) {
		t.Errorf("a stale grant: %v", err)
	}
	end(c)

	if err := r.fake.Close(); err != nil {
		t.Fatal(err)
	}
	c = r.begin(r.plan(prompt("gpt-4o", "hi", "")))
	err = c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{})
	var public *wire.Error
	if !errors.As(err, &public) || public.Status != http.StatusBadGateway {
		t.Errorf("a provider that is down: %v", err)
	}
	end(c)
	if n := len(r.entries()); n != 0 {
		t.Errorf("%d entries in the ledger", n)
	}
}

// TestBusy checks that a busy provider's advice is returned.
func TestBusy(t *testing.T) {
	r := newRig(t, roomy()...)
	_, _, err := r.run(t.Context(), prompt("gpt-4o", "[fake: status=429 retry-after=7]", ""))
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Status != 429 || busy.RetryAfter.Seconds() != 7 || len(busy.Answer) == 0 {
		t.Errorf("got %+v", err)
	}
}

// TestErrorRelayed checks that a provider's error is forwarded unchanged, with its retry
// advice and our headers.
func TestErrorRelayed(t *testing.T) {
	r := newRig(t, roomy()...)
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "[fake: status=400 retry-after=3 code=bad_thing message=no+good header=X-Should-Retry:false]", ""))
	if err != nil || w.Code != 400 || !strings.Contains(w.Body.String(), `"bad_thing"`) {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	if e := c.Result.Refusal; e == nil || e.Code != "bad_thing" || e.Message != "no good" {
		t.Errorf("refusal %+v", e)
	}
	h := w.Header()
	if h.Get("Retry-After") != "3" || h.Get("X-Should-Retry") != "false" || h.Get(HeaderCost) != "0.000000000" || h.Get("X-Request-Id") == "" {
		t.Errorf("headers %v", h)
	}
	if h.Get("Openai-Organization") != "" || h.Get("Set-Cookie") != "" {
		t.Errorf("the provider's account shows in %v", h)
	}
}

// TestWaitedHeader checks that a call from the queue reports how long it waited.
func TestWaitedHeader(t *testing.T) {
	r := newRig(t, roomy()...)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Output: 1} })
	c, w := r.begin(r.plan(prompt("gpt-4o", "hi", ""))), httptest.NewRecorder()
	c.Waited = 1500e6
	if err := c.Forward(t.Context(), w, Forwarding{}); err != nil || w.Header().Get(HeaderWaited) != "1500" {
		t.Errorf("headers %v, %v", w.Header(), err)
	}
	c.EndNow(t.Context())
	if list := r.entries(); len(list) != 1 || list[0].WaitedMS != 1500 {
		t.Errorf("EndNow left the ledger %+v", list)
	}
}

// TestRefusalCountsFromItsRequest: the refusal of a request that was written after another refusal
// counts, even if its call began earlier.
func TestRefusalCountsFromItsRequest(t *testing.T) {
	r := newRig(t, roomy()...)
	rdb := r.redis.Client()
	q := quota.New(redistest.DB(rdb), quota.Options{Lease: time.Minute})
	q.Configure([]quota.Pool{{ID: "main", RPM: 100}})
	r.guard.Grants.quota = q
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Status: http.StatusTooManyRequests}
	})
	refused := func(permit func() error) string {
		c := r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":5`)))
		defer c.End(t.Context())
		if err := c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Permit: permit}); !errors.As(err, new(*BusyError)) {
			t.Errorf("got %v, want a refusal", err)
		}
		return rdb.HGet(t.Context(), quota.Key("main", "quota"), "cut").Val()
	}
	first := ""
	last := refused(func() error {
		first = refused(nil)
		return nil
	})
	if first == "" || last == first {
		t.Errorf("the last refusal that counts is of %q, that before of %q", last, first)
	}
}
