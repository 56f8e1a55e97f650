package budget

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Is returns an identifier of the limit including its shape, because a changed limit counts as a
// different one in reports.
func (l *Limit) Is() string {
	s := l.Shape
	calendar := s.Calendar
	if s.Starts != "" {
		calendar += "@" + s.Starts
	}
	return fmt.Sprintf("%s %s %s %s %d %d %d %d %s %s", l.ID, l.Subject, l.Metric, s.Kind, s.Amount,
		s.Window.Milliseconds(), s.Refill, s.Per.Milliseconds(), calendar, s.zone())
}

// NoteShadow records that these limits of an org, identified by Limit.Is, are in shadow mode.
// Limits that are already recorded keep their time.
func (s *Store) NoteShadow(ctx context.Context, org string, limits []string) error {
	args := []any{s.clock.given()}
	for _, l := range limits {
		args = append(args, l)
	}
	keys := []string{ledger.Key(org, "shadow_since"), ledger.Key(org, "ledger")}
	_, err := s.runner.run(ctx, s.runner.scripts.shadowSince, keys, args)
	return err
}

// ShadowSince returns since when limits of an org have been in shadow mode with their current
// shape, by Limit.Is. A missing limit was not recorded, or was already in shadow mode before
// recording began.
func (s *Store) ShadowSince(ctx context.Context, org string) (map[string]time.Time, error) {
	noted, err := s.rdb.HGetAll(ctx, ledger.Key(org, "shadow_since")).Result()
	if err != nil {
		return nil, storeError("shadow_since", err)
	}
	delete(noted, "noted") // when the first was recorded
	out := map[string]time.Time{}
	for limit, text := range noted {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 {
			out[limit] = time.UnixMilli(ms).UTC()
		}
	}
	return out, nil
}
