package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// stalled accepts the first bytes of an answer and no more, until its connection is reset.
type stalled struct {
	http.ResponseWriter
	reset <-chan struct{}
	once  sync.Once
	began chan struct{}
	t     *testing.T
}

func (s *stalled) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	redistest.Came(s.t, s.reset)
	return len(p), errors.New("connection reset by peer")
}

func (s *stalled) Flush() {}

// flood is a provider that generates a long answer immediately and does not end it.
func flood(t *testing.T, chunks int) (url string, sent <-chan struct{}) {
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range chunks {
			_, _ = fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":" word"}}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		close(done)
		<-q.Context().Done()
	}))
	t.Cleanup(srv.Close)
	return srv.URL, done
}

// TestStalledReaderPaysForWhatWasGenerated checks that a caller who stops reading and then
// resets its connection is charged for everything the provider had sent by then.
func TestStalledReaderPaysForWhatWasGenerated(t *testing.T) {
	const chunks = 4000
	r := newRig(t, roomy()...)
	url, sent := flood(t, chunks)
	r.moveTo(url)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	reset := make(chan struct{})
	w := &stalled{ResponseWriter: httptest.NewRecorder(), reset: reset, began: make(chan struct{}), t: t}
	c := r.begin(r.plan(prompt("gpt-4o", "hi", `"max_completion_tokens":16000,"stream":true`)))
	go func() {
		redistest.Came(t, w.began)
		redistest.Came(t, sent)
		time.Sleep(2 * behindAfter) // the test is about such a long stall
		leave()
		close(reset)
	}()
	if err := c.Forward(ctx, w, Forwarding{Header: http.Header{}}); !errors.Is(err, ErrGone) {
		t.Fatalf("got %v, want %v", err, ErrGone)
	}
	c.End(ctx)
	r.settle()
	res := c.Result
	if res.Outcome != ClientGone || !res.Estimated || res.Usage.Output < chunks || res.Cost > c.Plan.Max.Cost {
		t.Errorf("%s: %d tokens charged at %v of %v, estimated %v; the provider sent %d",
			res.Outcome, res.Usage.Output, res.Cost, c.Plan.Max.Cost, res.Estimated, chunks)
	}
	if res.Usage.Output > chunks+10 {
		t.Errorf("%d tokens charged for the %d that came", res.Usage.Output, chunks)
	}
}
