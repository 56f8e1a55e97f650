package guard

import (
	"context"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// maxHolds bounds the holds of live calls under way: a burst queues here, where a caller's
// patience bounds its wait, and not at Redis, where every wait looks like an outage.
const maxHolds = 128

// Turn waits for one of the places for requests to Redis under way, which is taken then:
// receive from places to give it back. The error is a *wire.Error when patience is over,
// or the cause of ctx's end.
func Turn(ctx context.Context, places chan struct{}, patience time.Duration) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return wire.Overloaded("Too many calls are queueing on this proxy right now", time.Second)
	}
}
