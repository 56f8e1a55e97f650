package budget

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// LedgerOrgs is the ZSET of orgs by the Unix ms of their last calls, which remains when an org is deleted.
const LedgerOrgs = "lg:ledger-orgs"

// maxLedgerOrgs is how many orgs Orgs returns.
const maxLedgerOrgs = 10_000

// noteLedger records the org of a place in a batch of commands, and forgets those without sums.
func noteLedger(ctx context.Context, pipe redis.Pipeliner, place string, now time.Time) {
	org := OrgOf(place)
	if strings.Contains(org, ":") { // a spend cap or a limiter
		return
	}
	pipe.ZAdd(ctx, LedgerOrgs, redis.Z{Score: float64(now.UnixMilli()), Member: org})
	pipe.ZRemRangeByScore(ctx, LedgerOrgs, "-inf", strconv.FormatInt(now.Add(-epochLife).UnixMilli(), 10))
	pipe.PExpire(ctx, LedgerOrgs, epochLife)
}

// Orgs returns the orgs that made calls in the last 400 days, deleted ones too: at most 10,000, the most
// recent first.
func (l *Ledger) Orgs(ctx context.Context) ([]string, error) {
	orgs, err := l.rdb.ZRevRange(ctx, LedgerOrgs, 0, maxLedgerOrgs-1).Result()
	if err != nil {
		return nil, storeError("list orgs with a ledger", err)
	}
	return orgs, nil
}
