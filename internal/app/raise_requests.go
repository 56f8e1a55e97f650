package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/webhook"
)

// raisesEvery is how often requests that nobody answered are looked for. Their state changes on
// time without it; only the audit and the event wait.
const raisesEvery = 15 * time.Second

// raiseClock ends the requests that nobody answered.
type raiseClock struct {
	store    *tenants.Store
	webhooks *webhook.Sender
	log      *slog.Logger
}

// run records requests for more of a limit whose time passed without an answer, until ctx ends.
// Every process with workers does it; one succeeds for each request.
func (c *raiseClock) run(ctx context.Context) error {
	tick := time.NewTicker(raisesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			expired, err := c.store.ExpireRaises(ctx, now)
			if err != nil && ctx.Err() == nil {
				c.log.Warn("expired limit requests not recorded, will retry", "err", err)
			}
			for _, r := range expired {
				if err := c.webhooks.RaiseDecided(ctx, r); err != nil {
					c.log.Warn("event of an expired limit request not sent", "request", r.ID, "err", err)
				}
			}
		}
	}
}
