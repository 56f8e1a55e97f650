package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// adjustTries is how often a credit is computed again because another correction was made meanwhile.
const adjustTries = 50

var errRaced = errors.New("ledger: other corrections are being made")

// refundable returns what the corrected call, if there is one, and its user were charged, with all
// corrections, and the last correction of the org before that was read.
func refundable(ctx context.Context, l *Ledger, c correcting) (*pricing.Nano, string, error) {
	call, err := l.placeFor(ctx, c, l.o.Place(c.call))
	if err != nil {
		return nil, "", err
	}
	newest, err := l.o.Redis.XRevRangeN(ctx, Key(call.Place(), "audit"), "+", "-", 1).Result()
	if err != nil {
		return nil, "", l.o.Fault("adjust", err)
	}
	last := ""
	if len(newest) > 0 {
		last = newest[0].ID
	}
	now := l.o.Now()
	days, err := l.UserRollups(ctx, call.Org, call.User, now.Add(-l.o.RollupLife), now.Add(24*time.Hour))
	if err != nil {
		return nil, "", err
	}
	var most, own pricing.Nano
	for i := range days {
		most += days[i].Cost
	}
	corrects := c.correction.Corrects
	if made, ok := IDTime(corrects); ok {
		err = l.Entries(ctx, call.Org, made.Add(-clockSkew), time.Time{}, func(e Entry) error {
			if e.ID == corrects || e.Corrects == corrects {
				own += e.Cost
			}
			return nil
		})
		most = min(most, own)
	}
	return &most, last, err
}
