package queue

import (
	"errors"
	"testing"

	"github.com/llmguard/llmguard/quota"
)

// A process grants its part of a pool's quota on its own and never calls Redis, which is
// not there.
func TestTakeShare(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{LocalShare: 20}, Pool{ID: "p", RPM: 20, TPM: 10_000, Concurrency: 10}, Pool{ID: "free"}, Pool{ID: "one", RPM: 4})
	_ = e.rdb.Close()
	take := func(pool string, tokens int64, reason string) *quota.Grant {
		t.Helper()
		g, err := e.TakeShare(pool, tokens)
		var busy *quota.BusyError
		if errors.As(err, &busy) != (reason != "") || busy != nil && (busy.Reason != reason || !busy.Share || busy.Never || busy.Wait <= 0) {
			t.Fatalf("%+v, %v, want %q", g, err, reason)
		}
		return g
	}
	a := take("p", 100, "")
	take("p", 2000, "tpm")
	take("p", 100, "")
	take("p", 100, "concurrency")
	for range 2 {
		if err := e.Give(t.Context(), a, false); err != nil {
			t.Fatal(err)
		}
	}
	if a.Permit() != nil {
		t.Error("a new grant is stale")
	}
	take("p", 100, "")
	take("p", 100, "concurrency") // the second Give had no effect
	if err := e.Give(t.Context(), a, true); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*quota.Grant{take("free", 1e9, "")} {
		_ = e.Give(t.Context(), g, false)
	}
	take("one", 1, "rpm") // a share of 4 that rounds down to nothing
	if _, err := e.TakeShare("nobody", 1); err == nil {
		t.Error("a share of a pool that is not there")
	}
}
