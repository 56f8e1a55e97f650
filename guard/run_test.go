package guard

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestBurstWaitsForItsTurn checks that a call that finds all slots for holds taken waits
// for one as long as its caller does, and does not ask Redis before.
func TestBurstWaitsForItsTurn(t *testing.T) {
	r := newRig(t, roomy()...)
	for range maxHolds {
		r.guard.admission.holds <- struct{}{}
	}
	run := func(patience time.Duration) error {
		a := Attempt{ID: wire.NewCallID(), Number: 1, Patience: patience}
		_, err := r.guard.Run(t.Context(), r.plan(prompt("gpt-4o", "hi", "")), a, httptest.NewRecorder())
		return err
	}
	var refused *wire.Error
	if err := run(time.Millisecond); !errors.As(err, &refused) || refused.Code != "server_is_overloaded" {
		t.Errorf("got %v, want it refused as overloaded", err)
	}
	done := make(chan error, 1)
	go func() { done <- run(time.Minute) }()
	select {
	case err := <-done:
		t.Fatalf("got %v before its turn", err)
	case <-time.After(50 * time.Millisecond):
	}
	redistest.Came(t, r.guard.admission.holds)
	if err := redistest.Came(t, done); err != nil {
		t.Errorf("got %v, want it answered", err)
	}
}

// TestTurnEndsWithItsCaller checks that a caller who leaves no longer waits.
func TestTurnEndsWithItsCaller(t *testing.T) {
	places := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Turn(ctx, places, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}
