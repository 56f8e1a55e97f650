package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestCut checks that a stream is cut off at the last step that fits, whatever the limit
// counts, and that the caller is informed in time and pays for what arrived.
func TestCut(t *testing.T) {
	const input = 8 // of "hi"
	long := tokens("t", input+60)
	bucket := money("t", input*in+60*out)
	bucket.Shape = budget.Shape{Kind: budget.Bucket, Amount: bucket.Shape.Amount, Refill: 1, Per: time.Hour}
	for _, limit := range []budget.Limit{long, money("t", input*in+60*out), bucket} {
		t.Run(string(limit.Metric)+" "+string(limit.Shape.Kind), func(t *testing.T) {
			r := growing(t, 20, limit, tokens("far", 1<<40))
			p := r.teach()
			c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
			if c.Plan.Input != input {
				t.Fatalf("the input is %d tokens", c.Plan.Input)
			}
			w, err := p.listen(t.Context(), c, 1000)
			p.hungUp(t)
			// 20 tokens are held at first, 31 at 11 words, 42 at 22, 53 at 33;
			// at 44 there is no room for 64.
			if err != nil || w.got != 44 || c.bill.held != 53 || c.Result.Outcome != Cut || !c.Result.Estimated || c.Result.Usage.Output != 44 {
				t.Errorf("%v: %d words, %d tokens held, %+v", err, w.got, c.bill.held, c.Result)
			}
			e := inStream(t, w.Body.String())
			if e.Code != "insufficient_quota" || e.Type != "insufficient_quota" || !strings.Contains(e.Message, `limit "t"`) ||
				!strings.Contains(e.Message, "incomplete") || !strings.HasSuffix(e.Message, "max_completion_tokens (or max_tokens) of 60.") {
				t.Errorf("told %+v", e)
			}
			if got := c.Result.Ending; got == nil || got.Message != e.Message || !wire.OverLimit(got.Status) || (got.Status == 402) != (e.Code == "insufficient_quota") {
				t.Errorf("recorded %+v", got)
			}
			if trailer := w.Result().Trailer; trailer.Get(HeaderCost) != spelled(input*in+44*out) || trailer.Get(HeaderEstimate) != "true" {
				t.Errorf("trailer %v", trailer)
			}
			c.End(t.Context())
			r.settle()
			want := map[budget.Metric]int64{budget.Tokens: input + 44, budget.Cost: input*in + 44*out}[limit.Metric]
			if got := r.used()["t"]; got != want {
				t.Errorf("%d is charged, want %d", got, want)
			}
			if list := r.entries(); len(list) != 1 || list[0].Outcome != string(Cut) || !list[0].Estimated || list[0].Overrun != 0 || list[0].Cost != input*in+44*out {
				t.Errorf("ledger %+v", list)
			}
		})
	}
}

// TestCutLater checks that the caller may retry if only other calls take up the room.
func TestCutLater(t *testing.T) {
	r := growing(t, 20, tokens("quota", 2000))
	other := r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":1930`)))
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	w, err := p.listen(t.Context(), c, 1000)
	if e := inStream(t, w.Body.String()); err != nil || e.Code != "rate_limit_exceeded" || strings.Contains(e.Message, "quota") || !strings.Contains(e.Message, "try again in") {
		t.Errorf("%v, told %+v", err, e)
	}
	p.hungUp(t)
	c.End(t.Context())
	other.End(t.Context())
}

// TestCutByShadow checks that a limit in shadow mode cuts nothing off.
func TestCutByShadow(t *testing.T) {
	shadow := tokens("s", 30)
	shadow.Mode = budget.Shadow
	r := growing(t, 20, shadow)
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	w, err := p.listen(t.Context(), c, 100)
	if err != nil || w.got != 100 || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 100 {
		t.Errorf("%v: %d words, %+v", err, w.got, c.Result)
	}
	c.End(t.Context())
}

// TestCutMidChunk checks that output that is not held is not forwarded, but is still paid
// for if the provider sends more than a step in one event.
func TestCutMidChunk(t *testing.T) {
	r := growing(t, 20, tokens("t", 8+60))
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	p.words <- word
	p.words <- strings.Repeat(word, 200)
	w := httptest.NewRecorder()
	err := c.Forward(t.Context(), w, Forwarding{})
	p.hungUp(t)
	inStream(t, w.Body.String())
	if n := strings.Count(w.Body.String(), `"content"`); err != nil || n != 1 || c.Result.Usage.Output != 201 {
		t.Errorf("%v: %d events passed on, %d tokens charged", err, n, c.Result.Usage.Output)
	}
	c.End(t.Context())
	r.settle()
	if list := r.entries(); len(list) != 1 || list[0].Overrun != c.Result.Cost-c.Plan.First.Cost || list[0].Overrun <= 0 {
		t.Errorf("ledger %+v", list)
	}
}

// TestWholeIsNotCut checks that an answer that is already complete when the room ends is
// not cut off.
func TestWholeIsNotCut(t *testing.T) {
	r := growing(t, 20, tokens("t", 8+25))
	finish := event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
	const usage = `{"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":%d}}`
	r.raw("text/event-stream", strings.Repeat(delta(word), 15)+finish+event(fmt.Sprintf(usage, 15))+event("[DONE]"))
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", streamed))
	if err != nil || c.Result.Outcome != Completed || !strings.HasSuffix(w.Body.String(), event("[DONE]")) {
		t.Errorf("%v, %+v: %q", err, c.Result, w.Body)
	}
	// The end of this one is not held, so it is not forwarded. Its bill is known.
	r = growing(t, 20, tokens("t", 8+25))
	r.raw("text/event-stream", strings.Repeat(delta(word), 22)+finish+event(fmt.Sprintf(usage, 22))+event("[DONE]"))
	c, w, err = r.run(t.Context(), prompt("gpt-4o", "hi", streamed))
	if err != nil || c.Result.Outcome != Cut || c.Result.Estimated || c.Result.Cost != 8*in+22*out || strings.Count(w.Body.String(), `"content"`) != 20 {
		t.Errorf("%v, %+v: %q", err, c.Result, w.Body)
	}
	inStream(t, w.Body.String())
}

// TestChoicesAreCountedApart checks that tokens of two choices do not merge into one.
func TestChoicesAreCountedApart(t *testing.T) {
	r := growing(t, 20, tokens("t", 1<<40))
	choice := func(i int) string {
		return event(fmt.Sprintf(`{"choices":[{"index":%d,"delta":{"content":"1"},"finish_reason":"stop"}]}`, i))
	}
	r.raw("text/event-stream", choice(0)+choice(1)+event("[DONE]"))
	c, _, err := r.run(t.Context(), prompt("gpt-4o", "hi", streamed+`,"n":2`))
	if err != nil || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 2 {
		t.Errorf("%v, %+v", err, c.Result)
	}
}

// TestGrowsByUsage checks that usage sent with every chunk counts if it exceeds the text.
func TestGrowsByUsage(t *testing.T) {
	r := growing(t, 20, tokens("t", 8+60))
	chunk := func(n int) string {
		return event(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":" a"}}],"usage":{"prompt_tokens":8,"completion_tokens":%d}}`, n))
	}
	r.raw("text/event-stream", chunk(11)+chunk(22)+chunk(33)+chunk(44))
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", streamed))
	inStream(t, w.Body.String())
	if err != nil || c.Result.Outcome != Cut || c.Result.Usage.Output != 44 || c.bill.held != 53 {
		t.Errorf("%v, %d held, %+v", err, c.bill.held, c.Result)
	}
}

// TestCutWithoutStream checks that if a provider answers a stream request with one
// document, all it can cost is held before the document is read.
func TestCutWithoutStream(t *testing.T) {
	const text = `{"choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":8,"completion_tokens":500}}`
	r := growing(t, 20, tokens("t", 1<<40))
	r.raw("application/json", text)
	if c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", streamed)); err != nil || w.Body.String() != text || c.Hold.Max != c.Plan.Max {
		t.Errorf("%v: %q, held %+v", err, w.Body, c.Hold.Max)
	}
	r = growing(t, 20, tokens("t", 1000))
	r.raw("application/json", text)
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", streamed))
	var public *wire.Error
	if !errors.As(err, &public) || public.Status != 402 || w.Body.Len() > 0 || c.Result.Outcome != Cut || c.Result.Cost != c.Plan.First.Cost {
		t.Errorf("%v: %q, %+v", err, w.Body, c.Result)
	}
}

// TestCutWithoutStore checks that the stream is cut off if the store does not answer within
// its deadline, without ever exceeding the hold.
func TestCutWithoutStore(t *testing.T) {
	r := growing(t, 20, tokens("t", 1<<40))
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	patience := r.guard.deadline
	r.guard.deadline = 50 * time.Millisecond
	if err := r.redis.Signal(stop); err != nil {
		t.Fatal(err)
	}
	w, err := p.listen(t.Context(), c, 1000)
	p.hungUp(t)
	if errSignal := r.redis.Signal(resume); errSignal != nil {
		t.Fatal(errSignal)
	}
	if e := inStream(t, w.Body.String()); err != nil || e.Code != "server_is_overloaded" || w.got != 11 || c.Result.Outcome != Cut || c.Result.Usage.Output != 11 {
		t.Errorf("%v: %d words, told %+v, %+v", err, w.got, e, c.Result)
	}
	c.End(t.Context())
	r.settle()
	r.guard.deadline = patience // the resumed Redis may be slow
	if got := r.used()["t"]; got != 8+11 {
		t.Errorf("%d tokens are charged", got)
	}
}

// TestCutAndGone checks that a stream whose caller has left, but which is read to its end,
// is cut off like any other.
func TestCutAndGone(t *testing.T) {
	r := growing(t, 20, tokens("t", 8+60))
	r.org.OnDisconnect = Finish
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	ctx, leave := context.WithCancel(t.Context())
	for range 1000 {
		p.words <- word
	}
	w := &quitter{ResponseWriter: httptest.NewRecorder(), events: 5, leave: leave}
	if err := c.Forward(ctx, w, Forwarding{}); !errors.Is(err, ErrGone) || c.Result.Outcome != Cut || c.Result.Usage.Output < 44 {
		t.Errorf("%v, %+v", err, c.Result)
	}
	p.hungUp(t)
	c.End(ctx)
}

// TestDiesGrowing checks that if the process dies, the size its hold has grown to is
// charged. A process that was only suspended finds its hold gone and cuts off the stream.
func TestDiesGrowing(t *testing.T) {
	r := growing(t, 20, tokens("t", 1<<40))
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	l := &listener{ResponseRecorder: httptest.NewRecorder()}
	heir := budget.New(r.redis.DB(), budget.Options{})
	l.next = func(got int) {
		if got == 30 { // 42 are held, and the hold is no longer renewed
			leases := "lg:{acme}:leases"
			if err := r.redis.Client().ZAdd(t.Context(), leases, redis.Z{Score: 1, Member: c.Hold.ID}).Err(); err != nil {
				t.Error(err)
			}
			if n, err := heir.Expiry.Sweep(t.Context(), "acme"); n != 1 || err != nil {
				t.Errorf("%d holds expired, %v", n, err)
			}
			if list := r.entries(); len(list) != 1 || !list[0].Estimated || list[0].Cost != 8*in+42*out || r.used()["t"] != 8+42 {
				t.Errorf("ledger %+v, used %v", list, r.used())
			}
		}
		if got == 1000 {
			close(p.words)
			return
		}
		p.words <- word
	}
	p.words <- word
	err := c.Forward(t.Context(), l, Forwarding{})
	p.hungUp(t)
	if e := inStream(t, l.Body.String()); err != nil || e.Code != "server_is_overloaded" || l.got != 33 || c.Result.Outcome != Cut {
		t.Errorf("%v: %d words, told %+v, %+v", err, l.got, e, c.Result)
	}
	c.End(t.Context())
	r.settle()
	if got := r.used()["t"]; got != 8+33 {
		t.Errorf("%d tokens are charged after the late settle", got)
	}
}
