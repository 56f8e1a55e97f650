package budget

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Is is a limit with its shape, as one that is changed is another one to reports about it.
func (l *Limit) Is() string {
	s := l.Shape
	return fmt.Sprintf("%s %s %s %s %d %d %d %d %s %s", l.ID, l.Subject, l.Metric, s.Kind, s.Amount,
		s.Window.Milliseconds(), s.Refill, s.Per.Milliseconds(), s.Calendar, s.zone())
}

// NoteShadow notes that these limits of an org, as Limit.Is has them, are in shadow mode. Those that
// were noted before stay as they are.
func (s *Store) NoteShadow(ctx context.Context, org string, limits []string) error {
	args := []any{s.clock.given()}
	for _, l := range limits {
		args = append(args, l)
	}
	_, err := s.runner.run(ctx, s.runner.scripts.shadowSince, []string{key(org, "shadow_since"), key(org, "ledger")}, args)
	return err
}

// ShadowSince is since when limits of an org are in shadow mode with the shape that they have, by
// Limit.Is. One that is not there was not noted, or longer ago than anything was.
func (s *Store) ShadowSince(ctx context.Context, org string) (map[string]time.Time, error) {
	noted, err := s.rdb.HGetAll(ctx, key(org, "shadow_since")).Result()
	if err != nil {
		return nil, storeError("shadow_since", err)
	}
	delete(noted, "noted") // when the first was
	out := map[string]time.Time{}
	for limit, text := range noted {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 {
			out[limit] = time.UnixMilli(ms).UTC()
		}
	}
	return out, nil
}
