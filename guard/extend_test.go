package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// pupil is a provider that sends the next word on demand, and notices when the guard hangs
// up.
type pupil struct {
	words chan string   // one event each; closed: the stream ends normally
	gone  chan struct{} // closed when the guard has hung up
	said  atomic.Int64  // words
}

// teach makes the rig's provider a pupil for the next request.
func (r *rig) teach() *pupil {
	r.t.Helper()
	p := &pupil{words: make(chan string, 1000), gone: make(chan struct{})}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		for {
			_ = flush()
			select {
			case <-q.Context().Done():
				close(p.gone)
				return
			case word, more := <-p.words:
				if !more {
					_, _ = w.Write([]byte(event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`) + event("[DONE]")))
					return
				}
				p.said.Add(1)
				_, _ = w.Write([]byte(delta(word)))
			}
		}
	}))
	r.t.Cleanup(srv.Close)
	r.moveTo(srv.URL)
	return p
}

func delta(word string) string {
	text, _ := json.Marshal(word)
	return event(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%s}}]}`, text))
}

// word is one token of gpt-4o.
const word = " a"

// listener makes the provider send another word for each that arrives, so that nothing is
// in transit.
type listener struct {
	*httptest.ResponseRecorder
	got  int
	next func(got int)
}

func (l *listener) Write(p []byte) (int, error) {
	n, err := l.ResponseRecorder.Write(p)
	if strings.Contains(string(p), `"content"`) {
		l.got++
		l.next(l.got)
	}
	return n, err
}

// listen forwards a call to a pupil, which sends words until it is cut off or has sent
// `most` of them.
func (p *pupil) listen(ctx context.Context, c *Call, most int) (*listener, error) {
	l := &listener{ResponseRecorder: httptest.NewRecorder()}
	l.next = func(got int) {
		if got == most {
			close(p.words)
			return
		}
		p.words <- word
	}
	p.words <- word
	return l, c.Forward(ctx, l, Forwarding{})
}

// hungUp asserts that the provider was cancelled.
func (p *pupil) hungUp(t *testing.T) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(time.Minute):
		t.Error("the provider was not cancelled")
	}
}

// growing returns an org with these limits whose holds grow by `step` tokens.
func growing(t *testing.T, step int64, limits ...budget.Limit) *rig {
	r := newRig(t, limits...)
	r.org.Hold, r.org.GrowStep = "grow", step
	return r
}

const streamed = `"stream":true`

// inStream returns the error a stream ended in.
func inStream(t *testing.T, body string) wire.Error {
	t.Helper()
	i := strings.LastIndex(body, "data: ")
	var frame struct{ Error wire.Error }
	if i < 0 || json.Unmarshal([]byte(strings.TrimSpace(body[i+len("data: "):])), &frame) != nil || frame.Error.Message == "" {
		t.Fatalf("the stream does not end in an error: %q", body)
	}
	if !strings.HasSuffix(body, "}\n\n") || strings.Contains(body, "[DONE]") {
		t.Errorf("the error is not the stream's last event: %q", body)
	}
	return frame.Error
}

// TestGrows checks which calls start with less than all they can cost.
func TestGrows(t *testing.T) {
	r := growing(t, 100)
	f := func(first int64, model, extra string) {
		t.Helper()
		p := r.plan(prompt(model, "hi", extra))
		cost, err := p.ceiling(first)
		if err != nil || p.First != (budget.Amounts{Cost: cost, Tokens: p.Input + first}) {
			t.Errorf("%s %s: %+v is held at first, want %d tokens of output at %v", model, extra, p.First, first, cost)
		}
		if (p.First == p.Max) != (first == p.Output) || p.Max.Tokens != p.Input+p.Output {
			t.Errorf("%s %s: first %+v of %+v", model, extra, p.First, p.Max)
		}
	}
	f(100, "gpt-4o", streamed)
	f(300, "gpt-4o", streamed+`,"n":3`)
	f(100, "gpt-4.1-mini", streamed)
	f(16384, "gpt-4o", "")
	f(5000, "gpt-4o", streamed+`,"max_tokens":5000`)
	f(100_000, "o4-mini", streamed)
	f(16384, "gpt-4o", streamed+`,"reasoning_effort":"low"`)
	f(16384+34, "gpt-4o", streamed+`,"prediction":{"type":"content","content":"xyz"}`)
	r.org.DefaultOutputLimit = 150
	f(100, "gpt-4o", streamed)
	if p := r.plan(prompt("gpt-4o", "hi", streamed)); p.Output != 150 || !strings.Contains(string(p.Request.Rewrite(p.edits...).Bytes()), `"max_tokens":150`) {
		t.Error("the org's output limit does not bind a stream whose hold grows")
	}
	r.org.DefaultOutputLimit = 60
	f(60, "gpt-4o", streamed)
	r.org.Hold = "max"
	r.org.DefaultOutputLimit = 0
	f(16384, "gpt-4o", streamed)
	r.org.Hold, r.org.GrowStep = "grow", 0
	f(DefaultGrowStep, "gpt-4o", streamed)
}

// TestGrowBeginsAtTheMean checks that the output known from a user's calls is held from the
// start, so that most calls need no extension.
func TestGrowBeginsAtTheMean(t *testing.T) {
	l := newLearner(t)
	l.limit = 4000
	for range 20 {
		l.call(l.plan("gpt-4o", 40, ""), 1000, 3000)
	}
	l.sync()
	l.caller.Org.Hold = "grow"
	body := prompt("gpt-4o", "hi", streamed)
	r, err := wire.Scan(wire.ChatCompletions, []byte(body), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Plans.Prepare(l.caller, r)
	if want := int64(3000 + DefaultGrowStep/2); err != nil || p.First.Tokens != p.Input+want {
		t.Errorf("%+v is held at first, %v; want %d tokens of output", p.First, err, want)
	}
}

// TestGrowsToTheEnd checks that a stream within its limits is held as it grows and billed
// like any other.
func TestGrowsToTheEnd(t *testing.T) {
	r := growing(t, 20, roomy()...)
	before := r.used()
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=300 cached=-1]", streamed))
	if err != nil || c.Result.Outcome != Completed || c.Result.Estimated || c.Result.Cost != pricing.Nano(c.Result.Usage.Input*in+300*out) {
		t.Errorf("%v, %+v", err, c.Result)
	}
	if held := w.Header().Get(HeaderHeld); held != spelled(c.Plan.First.Cost) || c.Hold.Max.Cost <= c.Result.Cost || c.Hold.Max.Cost > c.Result.Cost+30*out {
		t.Errorf("%s was held at first and %v at last", held, c.Hold.Max.Cost)
	}
	r.charged(before, c)
	if list := r.entries(); len(list) != 1 || list[0].Overrun != 0 || list[0].Estimated {
		t.Errorf("ledger %+v", list)
	}
}

// TestGrowsWithoutAmounts checks that a hold also grows if no limit counts what it holds:
// nothing overruns, and a crash is charged what the hold had grown to.
func TestGrowsWithoutAmounts(t *testing.T) {
	open := budget.Limit{ID: "open", Subject: budget.User, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 5}}
	r := growing(t, 20, open)
	for _, limits := range [][]budget.Limit{{open}, nil} {
		r.org = &Org{Org: settings.Org{ID: "acme", GrowStep: 20, Hold: "grow"}, Limits: limits}
		c, _, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=300]", streamed))
		list := r.entries()
		if e := list[len(list)-1]; err != nil || e.Cost != c.Result.Cost || e.Overrun != 0 {
			t.Errorf("%v, ledger %+v", err, e)
		}
	}
}

// TestAdviceToGrow checks that a stream too large to start gets advice on an output limit
// that would fit.
func TestAdviceToGrow(t *testing.T) {
	r := growing(t, 100, tokens("t", 8+60))
	var e *Refusal
	if err := r.plan(prompt("gpt-4o", "hi", streamed)).Check(); !errors.As(err, &e) || !e.Final() || e.Requested != 8+100 || !strings.HasSuffix(e.Advice, " of 60.") {
		t.Errorf("%v", err)
	}
	r.refused(prompt("gpt-4o", "hi", streamed+`,"max_tokens":61`))
	r.begin(r.plan(prompt("gpt-4o", "hi", streamed+`,"max_tokens":60`))).End(t.Context())
}
