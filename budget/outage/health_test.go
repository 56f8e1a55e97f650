package outage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilentServerOfOneTag checks that a decision about keys on several servers ends if one
// of them is silent, although the others answer.
func TestSilentServerOfOneTag(t *testing.T) {
	synctest.Test(t, silentServerOfOneTag)
}

func silentServerOfOneTag(t *testing.T) {
	h := NewHealth(func(ctx context.Context, tag string) error {
		if tag == "silent" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	for _, tags := range [][]string{{"silent"}, {"acme", "silent"}, {"silent", "acme"}} {
		ctx, cancel := h.Bound(t.Context(), time.Millisecond, tags...)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, ErrSilent) {
			t.Errorf("%q: ended because of %v, want %v", tags, cause, ErrSilent)
		}
		if err := h.Judge(ctx, context.Cause(ctx), tags...); !errors.Is(err, ErrSilent) {
			t.Errorf("%q: judged %v, want %v", tags, err, ErrSilent)
		}
		cancel()
	}
	time.Sleep(pingMost) // until the pings have ended
}
