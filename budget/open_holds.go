package budget

import (
	"context"
	"errors"
	"strings"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/pricing"
)

// OpenHold is a call that has not ended, and what it holds.
type OpenHold struct {
	Call ledger.Call
	Held Amounts
}

// HoldsKey returns the key of the open holds in a place of an org (Places).
func HoldsKey(place string) string { return ledger.Key(place, "holds") }

// Places returns the hash tags of all keys that the org's money may have in Redis.
func Places(ctx context.Context, rdb redisconn.DB, org string) ([]string, error) {
	return (&places{rdb: rdb}).ever(ctx, org)
}

// OpenHolds returns the org's open holds of all processes, at most the given number, and whether
// the list is complete.
func (s *Store) OpenHolds(ctx context.Context, org string, most int) (out []OpenHold, all bool, err error) {
	places, err := s.places.ever(ctx, org)
	for _, place := range places {
		err = errors.Join(err, s.openHoldsIn(ctx, place, most, &out))
	}
	if errors.Is(err, ledger.ErrEnough) {
		return out, false, nil
	}
	return out, true, err
}

func (s *Store) openHoldsIn(ctx context.Context, place string, most int, out *[]OpenHold) error {
	return s.pages.Each(ctx, ledger.Key(place, "holds"), "", func(id, record string) error {
		if len(*out) == most {
			return ledger.ErrEnough
		}
		h, ok := decodeRecord(place, id, record)
		n, err := integers(strings.SplitN(record, "|", 2)[0]) // at, cost, expected, tokens, expected
		if ok && err == nil && len(n) >= 4 {
			*out = append(*out, OpenHold{h.Call, Amounts{Cost: pricing.Nano(n[1]), Tokens: n[3]}})
		}
		return nil
	})
}
