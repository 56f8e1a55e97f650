package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// gated is the text of calls that the provider answers only when the gate is released. A fixed
// delay would never be right on a slow machine.
const gated = "[gated]"

// gate holds gated calls at the provider.
type gate struct {
	t          *testing.T // its end releases all calls
	held, open chan struct{}
	once       bool     // hold only the first call of each text
	seen       sync.Map // texts seen so far
}

// gate returns a gate for calls of all models. Other calls are answered by otherwise, which may
// be nil.
func (s *stack) gate(otherwise func(*fakeprovider.Request) fakeprovider.Behaviour) *gate {
	g := s.newGate()
	s.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		g.hold(q.UserText)
		if otherwise == nil {
			return fakeprovider.Behaviour{}
		}
		return otherwise(q)
	})
	return g
}

// gates returns a gate for each of the models.
func (s *stack) gates(models ...string) map[string]*gate {
	gates := map[string]*gate{}
	for _, model := range models {
		gates[model] = s.newGate()
	}
	s.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		if g := gates[q.Model]; g != nil {
			g.hold(q.UserText)
		}
		return fakeprovider.Behaviour{}
	})
	return gates
}

func (s *stack) newGate() *gate {
	return &gate{t: s.t, held: make(chan struct{}), open: make(chan struct{})}
}

// hold blocks until a call of this text may pass.
func (g *gate) hold(text string) {
	if !g.holds(text) {
		return
	}
	for _, step := range []chan struct{}{g.held, g.open} {
		select {
		case step <- struct{}{}:
		case <-g.t.Context().Done():
		}
	}
}

// holds reports whether a call of this text is held.
func (g *gate) holds(text string) bool {
	_, again := g.seen.LoadOrStore(text, true)
	return strings.Contains(text, gated) && !(again && g.once)
}

// awaitHeld waits until another call has reached the gate.
func (g *gate) awaitHeld() { g.t.Helper(); redistest.Came(g.t, g.held) }

// release lets a call through.
func (g *gate) release() { g.t.Helper(); redistest.Came(g.t, g.open) }

// serve exposes awaitHeld and release to other programs, as /held and /release.
func (g *gate) serve(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		step := g.open
		if r.URL.Path == "/held" {
			step = g.held
		}
		select { // or until the client disconnects
		case <-step:
		case <-g.t.Context().Done():
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
