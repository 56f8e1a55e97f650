package outage

import (
	"context"
	"errors"
	"fmt"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	// ErrUnavailable means that the store did not answer in time or cannot accept the write now.
	// The operation may have been applied.
	ErrUnavailable = errors.New("budget: the store is unavailable")
	// ErrFull is an ErrUnavailable from a store that does answer: its memory or disk is full, and
	// the write was not applied. Code that waits for an unreachable store has to distinguish the
	// two, because callers can fill a store but cannot make it unreachable.
	ErrFull = fmt.Errorf("%w: its memory or disk is full", ErrUnavailable)
)

// Fault wraps err in ErrUnavailable if the store could not be reached or could not serve, and
// in ErrFull if its memory or disk is full. Any other error is a bug of ours or the caller's
// cancellation.
func Fault(what string, err error) error {
	if lua.Full(err) {
		return fmt.Errorf("%w: %s: %w", ErrFull, what, err)
	}
	if Unreachable(err) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
	}
	return fmt.Errorf("budget: %s: %w", what, err)
}

// Unreachable reports whether an error means that the store could not be reached or could not serve.
func Unreachable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var reply redisconn.Error
	return lua.Unavailable(err) || !errors.As(err, &reply) // otherwise a broken connection in some other form
}
