package budget

import (
	"context"
	"errors"
	"sync"
)

// Step is one round of all that Run does: it renews and expires holds as far as they are
// due, writes what Later keeps, and what a failover lost. It is for those who drive a
// Store by a clock of their own, as simulations do, instead of Run.
func (s *Store) Step(ctx context.Context) error {
	parts := []func(context.Context) error{
		s.renewDue, s.sweepDue,
		func(ctx context.Context) error { _, err := s.Replay(ctx); return err },
		func(ctx context.Context) error { s.watchOnce(ctx); return nil },
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
