package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// gated is the text of calls that the provider answers when it is told to, and
// not after some time, which on a slow machine is never the right one.
const gated = "[gated]"

// gate holds gated calls at the provider.
type gate struct {
	held, open chan struct{}
	done       <-chan struct{} // closed at the test's end, which opens it for all
}

// gate makes one; other calls are answered by otherwise, which may be nil.
func (s *stack) gate(otherwise func(*fakeprovider.Request) fakeprovider.Behaviour) *gate {
	done := make(chan struct{})
	g := &gate{held: make(chan struct{}), open: make(chan struct{}), done: done}
	s.t.Cleanup(func() { close(done) })
	s.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		if strings.Contains(q.UserText, gated) {
			for _, step := range []chan struct{}{g.held, g.open} {
				select {
				case step <- struct{}{}:
				case <-g.done:
				}
			}
		}
		if otherwise == nil {
			return fakeprovider.Behaviour{}
		}
		return otherwise(q)
	})
	return g
}

// awaitHeld returns when another call has come to the gate.
func (g *gate) awaitHeld() { g.pass(g.held) }

// release lets a call through.
func (g *gate) release() { g.pass(g.open) }

func (g *gate) pass(step chan struct{}) {
	select {
	case <-step:
	case <-g.done:
	}
}

// serve offers awaitHeld and release to other programs, as /held and /release.
func (g *gate) serve(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			g.awaitHeld()
			return
		}
		g.release()
	}))
	t.Cleanup(server.Close)
	return server.URL
}
