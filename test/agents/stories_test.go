package agents

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestAgents lets each program live through stories at one deployment.
func TestAgents(t *testing.T) {
	s := newStand(t, binary)
	for _, tale := range []struct {
		name string
		tell func(*testing.T, *stand, program)
	}{
		{"text", text},
		{"tools", tools},
		{"thinking", thinking},
		{"cancel", cancel},
		{"large", large},
		{"used", used},
		{"run", run},
		{"stop", stop},
		{"broken", broken},
		{"fails", fails},
		{"overloaded", overloaded},
	} {
		t.Run(tale.name, func(t *testing.T) {
			for _, p := range programs {
				t.Run(p.name, func(t *testing.T) {
					p.need(t)
					t.Parallel()
					tale.tell(t, s, p)
				})
			}
		})
	}
	t.Run("queue", func(t *testing.T) { queue(t, s) })
}

// want compares what the program printed, and how many requests reached llmguard and the provider.
func (st *story) want(printed, part string, requests, sent int) {
	st.t.Helper()
	if !strings.Contains(printed, part) {
		st.t.Errorf("it printed %q, want %q in it", printed, part)
	}
	redistest.Eventually(st.t, "requests in the log", func() bool { return len(st.requests()) >= requests })
	if got := st.requests(); len(got) != requests {
		st.t.Errorf("got %d requests at llmguard, want %d: %v\nit printed %s", len(got), requests, got, printed)
	}
	if got := st.sent(); len(got) != sent {
		st.t.Errorf("got %d requests at the provider, want %d: %+v", len(got), sent, got)
	}
}

// billed compares the ledger with the provider's bill, to the nano-dollar.
func (st *story) billed() []ledger.Entry {
	st.t.Helper()
	sent := st.sent()
	entries := st.charged(len(sent))
	for i, e := range entries {
		if got, want := int64(e.Cost), bill(sent[i]); got != want || e.Estimated {
			st.t.Errorf("call %d: got %d nano-USD charged, want %d (estimated: %v)", i, got, want, e.Estimated)
		}
	}
	return entries
}

func text(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "text", say("The river is calm."))
	st.want(st.start(p, st.key).end(), "The river is calm.", 1, 1)
	st.billed()
}

// tools is a task of several steps: each reads the prompt of the one before from the cache.
func tools(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "tools", p.echo("one"), p.echo("two"), p.echo("three"), say("All done."))
	st.want(st.start(p, st.key).end(), "All done.", 4, 4)
	entries := st.billed()
	for _, e := range entries[1:] {
		if e.Usage.CachedInput < e.Usage.Input*9/10 || e.Cost > entries[0].Cost*2/3 {
			t.Errorf("got %d nano-USD with %d of %d tokens read from the cache, after %d; want most read, and less",
				e.Cost, e.Usage.CachedInput, e.Usage.Input, entries[0].Cost)
		}
	}
}

func thinking(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "thinking", fakeprovider.Behaviour{Tools: -1, Text: "I thought about it.", Reasoning: 3000})
	st.want(st.start(p, st.key).end(), "I thought about it.", 1, 1)
	if e := st.billed()[0]; e.Usage.Reasoning != 3000 {
		t.Errorf("got %d tokens of reasoning in the ledger, want 3000", e.Usage.Reasoning)
	}
}

// cancel kills the program in the middle of a stream: the provider is cancelled, and the charge covers what it bills.
func cancel(t *testing.T, s *stand, p program) {
	slow := fakeprovider.Behaviour{Tools: -1, Output: 4000, Gap: 50 * time.Millisecond, Reasoning: -1}
	st := s.begin(t, p, "cancel", slow)
	r := st.start(p, st.key)
	redistest.Eventually(t, "the answer begins", func() bool {
		sent := st.sent()
		return len(sent) > 0 && sent[0].Usage.Completion > 20
	})
	r.kill()
	redistest.Eventually(t, "the provider is cancelled", func() bool {
		return st.sent()[0].Outcome == fakeprovider.ClientGone
	})
	e, least := st.charged(1)[0], bill(st.sent()[0])
	if e.Outcome != "client_gone" || int64(e.Cost) < least || int64(e.Cost) > e.HeldNano {
		t.Errorf("got %d nano-USD (%s), want %d to %d", e.Cost, e.Outcome, least, e.HeldNano)
	}
}

// large is a call that no window of its limit ever allows.
func large(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "large", say("Never."))
	st.want(st.start(p, st.key).end(), `larger than limit "day" of this user`, 1+p.again, 0)
	st.charged(0)
}

// used is a limit that a task has used up, and that allows more tomorrow.
func used(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "used", p.echo("one"), say("Never."))
	part := `Limit reached for limit "day" of this user`
	if p.name == "claude" {
		part = "Rate limit" + part[len("Limit"):]
	}
	st.want(st.start(p, st.key).end(), part, 2+p.again, 1)
	st.billed()
}

// run is a task with a budget of its own.
func run(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "run", p.echo("one"), say("Never."))
	status, body, err := st.post("/keys/children", `{"amount": "`+p.few+`"}`)
	var child struct{ Key string }
	if err == nil {
		err = json.Unmarshal([]byte(body), &child)
	}
	if err != nil || status != http.StatusOK {
		t.Fatalf("%v, status %d: %s", err, status, body)
	}
	st.want(st.start(p, child.Key).end(), "has reached its budget", 2+p.again, 1)
	st.billed()
}

func stop(t *testing.T, s *stand, p program) {
	st := s.begin(t, p, "stop", say("Never."))
	s.llmguard(t, "stop", "--org", st.org, "--reason", "test")
	part := "An operator has stopped all spending"
	if p.name == "claude" { // with a 403 it would speak of authentication
		part = "API Error: 402 " + part
	}
	st.want(st.start(p, st.key).end(), part, 1+p.again, 0)
	st.charged(0)
}

// broken is a stream that the provider breaks off. Claude Code gets a text that says so, and does not repeat
// the call.
func broken(t *testing.T, s *stand, p program) {
	half := fakeprovider.Behaviour{Tools: -1, Output: 60, Cut: "reset", After: 20, Reasoning: -1}
	st := s.begin(t, p, "broken", half, say("Second time."))
	part, calls := "Second time.", 2
	if p.name == "claude" {
		part, calls = "llmguard: The provider's stream was interrupted", 1
	}
	st.want(st.start(p, st.key).end(), part, calls, calls)
	sent, entries := st.sent(), st.charged(calls)
	e, least := entries[0], bill(sent[0])
	if int64(e.Cost) < least || int64(e.Cost) > e.HeldNano || e.Outcome != "broken" {
		t.Errorf("got %d nano-USD (%s), want %d to %d", e.Cost, e.Outcome, least, e.HeldNano)
	}
	if calls > 1 && int64(entries[1].Cost) != bill(sent[1]) {
		t.Errorf("second call: got %d nano-USD, want %d", entries[1].Cost, bill(sent[1]))
	}
}

// fails is a provider that fails before it answers, which costs nothing. The program repeats the request.
func fails(t *testing.T, s *stand, p program) {
	failure := fakeprovider.Behaviour{Status: http.StatusInternalServerError}
	repeated(s.begin(t, p, "fails", failure, say("Second time.")), p, 2)
}

// overloaded is a provider that has no capacity. llmguard repeats the request.
func overloaded(t *testing.T, s *stand, p program) {
	repeated(s.begin(t, p, "overloaded", fakeprovider.Behaviour{Status: 529}, say("Second time.")), p, 1)
}

func repeated(st *story, p program, requests int) {
	st.want(st.start(p, st.key).end(), "Second time.", requests, 2)
	if e := st.charged(1)[0]; int64(e.Cost) != bill(st.sent()[1]) {
		st.t.Errorf("got %d nano-USD, want %d", e.Cost, bill(st.sent()[1]))
	}
}
