package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// TestOpenCallsAreRemembered checks that every write to a pool's open calls extends their
// key: if the key is about to expire, an hour of nothing but jobs must not free the slots
// of those that run.
func TestOpenCallsAreRemembered(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 5})
	ctx, p := t.Context(), e.settings.pools()["p"]
	e.at(simStart)
	for range 4 {
		e.put(e.job("p", "acme", "bob", Batch, 10))
	}
	g, err := e.Take(ctx, "p", wire.NewCallID(), Flow{"acme", "ann"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var claims []*Claim
	for _, writer := range []struct {
		name string
		do   func() error
	}{
		{"acquire", func() error { claims = e.claim("p", 2); return nil }},
		{"start", func() error {
			e.at(simStart + 15*time.Second) // it renews the leases of old claims
			return claims[0].Start(ctx)
		}},
		{"renewal of a claim", func() error { _, err := e.scripts.renew(ctx, p, []any{claims[0].id, claims[0].token}); return err }},
		{"renewal of a live call", func() error { e.Quota().Step(ctx); return nil }},
		{"take", func() error { _, err := e.Take(ctx, "p", wire.NewCallID(), Flow{"acme", "ann"}, 1); return err }},
	} {
		e.rdb.PExpire(ctx, p.keys[1], 5*time.Minute)
		if err := writer.do(); err != nil {
			t.Fatalf("%s: %v", writer.name, err)
		}
		if left := e.rdb.PTTL(ctx, p.keys[1]).Val(); left <= 5*time.Minute {
			t.Errorf("after %s the open calls are remembered for %s", writer.name, left)
		}
	}
	if err := e.Give(ctx, g, false); err != nil {
		t.Fatal(err)
	}
}

// TestLostPlacesAreTold checks that the number of open calls is derived from the claims of
// jobs if the slots in use are lost.
func TestLostPlacesAreTold(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 3})
	ctx, p := t.Context(), e.settings.pools()["p"]
	for range 6 {
		e.put(e.job("p", "acme", "bob", Batch, 10))
	}
	running := e.claim("p", 5)
	if len(running) != 3 {
		t.Fatalf("%d claims under a concurrency of 3", len(running))
	}
	e.rdb.Del(ctx, p.keys[1])
	var busy *quota.BusyError
	if _, err := e.Take(ctx, "p", "c1", Flow{"acme", "ann"}, 1); !errors.As(err, &busy) || busy.Reason != "concurrency" {
		t.Errorf("a live call beside three jobs: %v", err)
	}
	e.rdb.Del(ctx, p.keys[1])
	if n := len(e.claim("p", 5)); n > 0 {
		t.Errorf("%d more jobs beside three", n)
	}
	if err := running[0].finish(ctx, Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	if n := len(e.claim("p", 5)); n != 1 {
		t.Errorf("%d jobs for the place that is free", n)
	}
}
