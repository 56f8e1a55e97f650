package budget

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Run renews the open holds of this process every third of a lease, expires those of dead
// processes, and writes the endings that Later keeps and those that a failover lost, until ctx
// ends. Every process that holds must run it.
func (s *Store) Run(ctx context.Context) error {
	var work sync.WaitGroup
	work.Go(func() { s.Deferred.Run(ctx) })
	work.Go(func() { s.watcher.Run(ctx) })
	work.Go(func() { s.Refusals.run(ctx) })
	work.Go(func() { s.every(ctx, "sweep of expired holds", s.Expiry.sweepDue) })
	s.every(ctx, "renewal of holds", s.leases.renewDue)
	work.Wait()
	return ctx.Err()
}

// Step is one round of everything that Run does: it renews and expires the holds that are due, and
// writes the endings that Later keeps and those that a failover lost. Use it instead of Run to
// drive a Store by another clock, as simulations do.
func (s *Store) Step(ctx context.Context) error {
	parts := []func(context.Context) error{
		s.leases.renewDue, s.Expiry.sweepDue,
		func(ctx context.Context) error { _, err := s.Deferred.Replay(ctx); return err },
		func(ctx context.Context) error { s.watcher.Step(ctx); return nil },
	}
	errs := make([]error, len(parts))
	var work sync.WaitGroup
	for i, part := range parts {
		work.Go(func() {
			once, cancel := context.WithTimeout(ctx, s.opts.Lease/4)
			defer cancel()
			errs[i] = part(once)
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// every runs a part of Run every twentieth of a lease, until ctx ends.
func (s *Store) every(ctx context.Context, what string, part func(context.Context) error) {
	tick := time.NewTicker(max(s.opts.Lease/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, cancel := context.WithTimeout(ctx, max(s.opts.Lease/4, 50*time.Millisecond))
		err := part(once)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("hold maintenance failed, will retry", "what", what, "err", err)
		}
	}
}
