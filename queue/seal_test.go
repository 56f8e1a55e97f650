package queue

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

func sealing(t *testing.T, ids ...string) *seal.Ring {
	t.Helper()
	var keys []seal.Key
	for _, id := range ids {
		keys = append(keys, seal.Key{ID: id, Secret: "the secret of the key " + id})
	}
	r, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answered runs a job that answers with its own body and returns what a watcher and a later
// reader get.
func (e *env) answered(body string) string {
	e.t.Helper()
	j := e.job("p", "acme", "ann", Async, 1)
	if err := e.Put(e.t.Context(), j, []byte(body)); err != nil {
		e.t.Fatal(err)
	}
	w := e.Watch(e.t.Context(), j)
	defer w.Close()
	var got strings.Builder
	for {
		event, err := w.Next(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		got.Write(event.Data)
		if event.Kind == Changed && event.State.Terminal() {
			return string(event.State) + " " + got.String()
		}
	}
}

func echo(_ context.Context, c *Claim) Verdict {
	if err := c.Start(c.ctx); err != nil {
		return Verdict{Kind: Requeue}
	}
	_, _ = c.Output().Write(append([]byte("echo of "), c.Body...))
	return Verdict{Kind: Done, Status: http.StatusOK}
}

// everything returns all that Redis holds, as text.
func (e *env) everything() string {
	e.t.Helper()
	var all strings.Builder
	for _, key := range e.rdb.Keys(e.t.Context(), "*").Val() {
		all.WriteString(e.rdb.Dump(e.t.Context(), key).Val())
	}
	return all.String()
}

// TestSealed checks that with keys nothing that tenants send or receive is readable in
// Redis, and that tenants can still read everything, even after the keys have changed.
func TestSealed(t *testing.T) {
	t.Parallel()
	const canary = "canary-7c1f"
	e := newEnv(t, Options{Seal: sealing(t, "old")}, Pool{ID: "p"})
	stop := e.run(echo, WorkerOptions{})
	if got := e.answered(`{"prompt":"` + canary + `"}`); got != `succeeded echo of {"prompt":"`+canary+`"}` {
		t.Errorf("a watcher got %q, want the echo of its prompt", got)
	}
	stop()
	waiting := e.job("p", "acme", "ann", Async, 1)
	if err := e.Put(t.Context(), waiting, []byte(canary)); err != nil {
		t.Fatal(err)
	}
	kept := Answer{Status: 200, Header: http.Header{}, Body: []byte(canary)}
	if err := e.KeepAnswer(t.Context(), "acme", "call", kept, time.Minute); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(e.everything(), canary) {
		t.Error("a prompt or an answer is readable in Redis")
	}

	read := func(name string, ring *seal.Ring, want error) {
		q := envOn(t, e.srv, Options{Seal: ring}, Pool{ID: "p"})
		body, err := q.Body(t.Context(), waiting)
		if !errors.Is(err, want) || (err == nil) != (string(body) == canary) {
			t.Errorf("%s: body %q, %v", name, body, err)
		}
		a, err := q.Answer(t.Context(), "acme", "call")
		if !errors.Is(err, want) || (err == nil) != (string(a.Body) == canary) {
			t.Errorf("%s: answer %q, %v", name, a.Body, err)
		}
		if _, err := q.Answer(t.Context(), "other", "call"); err == nil {
			t.Errorf("%s: another org opens the answer", name)
		}
	}
	read("rotated", sealing(t, "new", "old"), nil)
	read("key gone", sealing(t, "new"), seal.ErrNoKey)
	read("no keys", nil, seal.ErrNoKey)
}

// TestSealedLater checks that what was stored before there were keys stays readable.
func TestSealedLater(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.put(e.job("p", "acme", "ann", Async, 1))
	q := envOn(t, e.srv, Options{Seal: sealing(t, "k")}, Pool{ID: "p"})
	if body, err := q.Body(t.Context(), j); err != nil || string(body) != `{"n":1}` {
		t.Errorf("the body is %q, %v; want what was put", body, err)
	}
	if c := q.claimOne("p", j); string(c.Body) != `{"n":1}` {
		t.Errorf("the claim has body %q, want what was put", c.Body)
	}
}
