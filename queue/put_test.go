package queue

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// Jobs put by one script call are judged separately and in order: the same id twice is one
// job, and a job over the bound is the only one refused.
func TestJobsPutTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 50}, Pool{ID: "p", MaxJobs: 4})
	p := e.settings.pools()["p"]
	first, second, third := e.NewID("p"), e.NewID("p"), e.NewID("p")
	enter := func(id, org, tokens string) *scriptCall {
		return &scriptCall{ctx: t.Context(), q: e.Queue, p: p, key: jobKey("p", id), args: []any{id, 2, org, "ann", tokens, 5, 1e9, "kkkmmm", 0, "model", "m"}, done: make(chan struct{})}
	}
	batch := []*scriptCall{
		enter(first, "acme", "10"), enter(first, "acme", "10"), enter(second, "acme", "20"), enter(e.NewID("p"), "acme", "40"), enter(third, "zeta", "80"),
	}
	for range 2 { // the second time as after a lost reply
		p.puts.run(batch)
		for i, want := range []string{"ok ", "ok ", "ok ", "full org_jobs 2 ", "ok "} {
			if b := batch[i]; b.err != nil || !strings.HasPrefix(b.line, want) {
				t.Errorf("job %d: %q %v, want %q", i, b.line, b.err, want)
			}
			batch[i].done = make(chan struct{})
		}
		d, err := e.Depth(t.Context(), "p")
		if err != nil || d.Jobs != 3 || d.Bytes != 15 || d.Waiting[Async] != 3 || d.WaitingTokens[Async] != 110 {
			t.Fatalf("depth %+v, %v", d, err)
		}
	}
	for _, want := range []string{first, third, second} {
		e.claimOne("p", &Job{ID: want})
	}
}

// calls returns a function that counts the notifications to workers of a pool since its
// last call.
func (e *env) calls(pool string) func() int {
	e.t.Helper()
	sub := e.rdb.Subscribe(e.t.Context(), workChannel(pool))
	e.t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(e.t.Context()); err != nil { // the subscription
		e.t.Fatal(err)
	}
	return func() (n int) {
		e.t.Helper()
		if err := e.rdb.Publish(e.t.Context(), workChannel(pool), "end").Err(); err != nil {
			e.t.Fatal(err)
		}
		for ; ; n++ {
			m, err := sub.ReceiveMessage(e.t.Context())
			if err != nil {
				e.t.Fatal(err)
			}
			if m.Payload == "end" {
				return n
			}
		}
	}
}

// Jobs put by one script call notify the workers once, and one notification starts as many
// handlers as there is work for.
func TestOneCallWakesAll(t *testing.T) {
	t.Parallel()
	const handlers = 32
	e := newEnv(t, Options{}, Pool{ID: "p"})
	calls, p := e.calls("p"), e.settings.pools()["p"]
	var batch []*scriptCall
	for range handlers {
		id := e.NewID("p")
		args := []any{id, 2, "acme", "ann", 1, 5, 1e9, "kkkmmm", 0, "model", "m"}
		batch = append(batch, &scriptCall{ctx: t.Context(), q: e.Queue, p: p, key: jobKey("p", id), args: args, done: make(chan struct{})})
	}
	p.puts.run(batch)
	if n := calls(); n != 1 {
		t.Errorf("%d calls for jobs put together, want 1", n)
	}
	pc := newPacer(e.Queue, p, handlers)
	called := make(chan string, 1)
	pc.called = called
	var wg sync.WaitGroup
	running := 0
	all := make(chan struct{})
	pc.give = func(*Claim) {
		running++
		if running == handlers {
			close(all)
		}
	}
	called <- ""
	wg.Go(func() { pc.run(t.Context()) })
	redistest.Came(t, all)
	pc.halt()
	redistest.Wait(t, wg.Wait)
}

// A job put while handlers stay for it sends no notification; one put after they have gone
// does.
func TestNoCallWhileHandlersAreAwake(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	calls := e.calls("p")
	pc := newPacer(e.Queue, e.settings.pools()["p"], 4)
	for _, c := range []struct {
		stay time.Duration
		want int
	}{{time.Hour, 0}, {0, 1}} {
		pc.stay = c.stay
		if _, err := pc.acquire(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		e.put(e.job("p", "acme", "ann", Async, 10))
		if n := calls(); n != c.want {
			t.Errorf("handlers stay for %s: %d calls, want %d", c.stay, n, c.want)
		}
	}
}
