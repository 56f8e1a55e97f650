package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

func newStore(t *testing.T) (*Store, *redistest.Server) {
	srv := redistest.Start(t)
	return New(srv.DB(), Options{Log: slog.New(slog.DiscardHandler)}), srv
}

// lapse expires a record's lease, as if its holder had died.
func lapse(t *testing.T, s *Store, k *Key) {
	t.Helper()
	if err := s.rdb.HSet(t.Context(), k.record, "until", "1").Err(); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) want(t *testing.T, scope, body, holder string, want Found) *Key {
	t.Helper()
	k, found, err := s.Open(t.Context(), "acme", Fingerprint(scope), Fingerprint(body), holder)
	if err != nil || found != want || (k == nil) != (want.Answer != "") {
		t.Fatalf("open %s for %s: %v, %+v, %v; want %+v", scope, holder, k, found, err, want)
	}
	return k
}

func (s *Store) refused(t *testing.T, scope, body, holder string, want error) {
	t.Helper()
	_, _, err := s.Open(t.Context(), "acme", Fingerprint(scope), Fingerprint(body), holder)
	var held *HeldError
	if !errors.Is(err, want) && !(want == nil && errors.As(err, &held) && held.Left > 0) {
		t.Errorf("open %s for %s: %v", scope, holder, err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// TestKeyLive: one holder at a time, one body, and finally the response.
func TestKeyLive(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	k := s.want(t, "a", "b1", "h1", Found{})
	s.want(t, "a", "b1", "h1", Found{}) // repeated after a lost reply
	s.refused(t, "a", "b1", "h2", nil)
	s.refused(t, "a", "b2", "h2", ErrOther)
	s.want(t, "other scope", "b2", "h2", Found{})
	ok(t, k.Done(ctx, "call1", time.Hour))
	s.want(t, "a", "b1", "h3", Found{Answer: "call1"})
	s.refused(t, "a", "b2", "h3", ErrOther)
	if err := k.Free(ctx); !errors.Is(err, ErrLost) {
		t.Errorf("an ended key was freed: %v", err)
	}

	f := s.want(t, "failed", "b1", "h1", Found{})
	ok(t, f.Free(ctx))
	s.want(t, "failed", "b2", "h2", Found{}) // another body: the key is free
}

// TestKeyCrash: a holder that does not renew loses the key, and cannot end it afterwards.
func TestKeyCrash(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	dead := s.want(t, "a", "b1", "h1", Found{})
	lapse(t, s, dead)
	s.want(t, "a", "b2", "h2", Found{}) // the first request had no result
	for _, err := range []error{dead.Free(ctx), dead.Leave(ctx), dead.Bind(ctx, "job_1", time.Hour), dead.Done(ctx, "x", time.Hour)} {
		if !errors.Is(err, ErrLost) {
			t.Errorf("the dead holder: %v", err)
		}
	}
	s.refused(t, "a", "b2", "h3", nil)
	if ttl := s.rdb.PTTL(ctx, dead.record).Val(); ttl <= 0 || ttl > s.lease {
		t.Errorf("an open key lives for %s", ttl)
	}
}

// TestKeyJob: a bound key leads back to its job, for whoever connects first.
func TestKeyJob(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	k := s.want(t, "a", "b1", "h1", Found{})
	ok(t, k.Bind(ctx, "job_1", time.Hour))
	s.refused(t, "a", "b1", "h2", nil)
	lapse(t, s, k)
	k2 := s.want(t, "a", "b1", "h2", Found{Job: "job_1"})
	s.refused(t, "a", "b1", "h3", nil)
	ok(t, k2.Leave(ctx))
	s.refused(t, "a", "b2", "h3", ErrOther)
	k3 := s.want(t, "a", "b1", "h3", Found{Job: "job_1"})
	if ttl := s.rdb.PTTL(ctx, k.record).Val(); ttl < 50*time.Minute {
		t.Errorf("a bound key lives for %s", ttl)
	}
	ok(t, k3.Bind(ctx, "job_2", time.Hour)) // job_1 was dead
	ok(t, k3.Leave(ctx))
	s.want(t, "a", "b1", "h4", Found{Job: "job_2"})
}

// TestKeyRenewal: Run extends a key's lease repeatedly.
func TestKeyRenewal(t *testing.T) {
	s, _ := newStore(t)
	s.every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { ok(t, s.Run(ctx)) })
	k := s.want(t, "a", "b1", "h1", Found{})
	left := func() time.Duration { return s.rdb.PTTL(t.Context(), k.record).Val() }
	for range 2 {
		for least := left(); left() <= least; time.Sleep(5 * time.Millisecond) {
			if least = min(least, left()); least < 0 {
				t.Fatal("the key was not renewed before its lease ended")
			}
		}
	}
	s.refused(t, "a", "b1", "h2", nil)
	ok(t, k.Free(t.Context()))
	cancel()
	redistest.Wait(t, wg.Wait)
	if len(s.held) != 0 {
		t.Error("an ended key is still renewed")
	}
}

// TestKeyRace: of many concurrent requests with a key, one holds it.
func TestKeyRace(t *testing.T) {
	s, _ := newStore(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for i := range 50 {
		wg.Go(func() {
			k, _, err := s.Open(t.Context(), "acme", "a", "b", string(rune('A'+i)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil && k != nil {
				n++
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	if n != 1 {
		t.Errorf("%d holders", n)
	}
}

// TestPlaces: each place is taken once, by its own org and fingerprint, until it expires.
func TestPlaces(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	take := func(org string, p Fingerprint) string {
		t.Helper()
		job, err := s.Take(ctx, org, p)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	ok(t, s.Keep(ctx, "acme", "p", "job_1", time.Minute))
	ok(t, s.Keep(ctx, "acme", "p", "job_2", 2*time.Minute))
	ok(t, s.Keep(ctx, "acme", "p", "job_2", 2*time.Minute)) // kept twice, stored once
	if take("other", "p") != "" || take("acme", "q") != "" {
		t.Error("a stranger took a place")
	}
	if got := []string{take("acme", "p"), take("acme", "p"), take("acme", "p")}; !slices.Equal(got, []string{"job_1", "job_2", ""}) {
		t.Errorf("took %q", got)
	}
	ok(t, s.Keep(ctx, "acme", "p", "job_3", time.Millisecond))
	time.Sleep(10 * time.Millisecond)
	if got := take("acme", "p"); got != "" {
		t.Errorf("took %q after its time", got)
	}
}

// TestPrintOf: moving bytes between parts changes the fingerprint.
func TestPrintOf(t *testing.T) {
	if FingerprintOf([]byte("ab"), []byte("c")) == FingerprintOf([]byte("a"), []byte("bc")) {
		t.Error("prints collide")
	}
}
