package budget

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/pricing"
)

// OpenHold is a call that has not ended, and what it holds.
type OpenHold struct {
	Call Call
	Held Amounts
}

// HoldsKey returns the key of an org's open holds.
func HoldsKey(org string) string { return key(org, "holds") }

var errEnoughHolds = errors.New("enough")

// OpenHolds returns the org's open holds of all processes, at most the given number, and whether
// the list is complete.
func (l *Ledger) OpenHolds(ctx context.Context, org string, most int) (out []OpenHold, all bool, err error) {
	err = l.pages.each(ctx, HoldsKey(org), "", func(id, record string) error {
		if len(out) == most {
			return errEnoughHolds
		}
		h, ok := decodeRecord(org, id, record)
		n := strings.Split(strings.SplitN(record, "|", 2)[0], ",") // at, cost, expected, tokens, expected
		if !ok || len(n) < 4 {
			return nil
		}
		cost, _ := strconv.ParseInt(n[1], 10, 64)
		tokens, _ := strconv.ParseInt(n[3], 10, 64)
		out = append(out, OpenHold{h.Call, Amounts{Cost: pricing.Nano(cost), Tokens: tokens}})
		return nil
	})
	if errors.Is(err, errEnoughHolds) {
		return out, false, nil
	}
	return out, true, err
}
