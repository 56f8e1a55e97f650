package guard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// TestLargeEventsTakeRoom checks that an incomplete event counts while it is buffered, in a
// stream that is relayed, translated, or fetched again.
func TestLargeEventsTakeRoom(t *testing.T) {
	const size = 256 << 10
	for name, chatOnly := range map[string]bool{"relayed": false, "translated": true, "fetched": false} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "data: {%s", strings.Repeat(" ", size))
				w.(http.Flusher).Flush()
				redistest.Came(t, seen)
				_, _ = fmt.Fprint(w, "}\n\n")
			}))
			t.Cleanup(s.Close)
			r := newRig(t, roomy()...)
			r.moveTo(s.URL)
			r.guard.Policy().Providers.Get("openai").ChatOnly = chatOnly
			room := spool.New(spool.Options{Memory: 1 << 30})
			r.guard.spool, r.guard.Passthrough.spool = room, room
			done := make(chan struct{})
			go func() {
				defer close(done)
				if name == "fetched" {
					_, _ = r.guard.Passthrough.Relay(t.Context(), httptest.NewRecorder(), Fetch{Org: r.org, Note: ownership.Note{Provider: "openai"}, Request: providers.Request{Path: "/responses/r"}})
					return
				}
				req, err := wire.Scan(wire.Responses, []byte(`{"model":"gpt-4o","input":"hi","stream":true,"max_output_tokens":9}`), wire.Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				plan, err := r.guard.Plans.Prepare(r.caller(), req)
				if err != nil {
					t.Error(err)
					return
				}
				c := r.begin(plan)
				_ = c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Header: http.Header{}})
				c.End(t.Context())
			}()
			for end := time.Now().Add(30 * time.Second); room.Memory.Used() < size-spool.SmallEvent; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("an event of %d bytes takes %d of memory", size, room.Memory.Used())
					break
				}
			}
			close(seen)
			redistest.Came(t, done)
			if n := room.Memory.Used(); n != 0 {
				t.Errorf("%d bytes are left", n)
			}
		})
	}
}
