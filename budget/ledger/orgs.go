package ledger

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// OrgsKey is the ZSET of orgs by the Unix ms of their last calls, which remains when an org is deleted.
const OrgsKey = "lg:ledger-orgs"

// orgsLife is for how long an org is known after its last call.
const orgsLife = 400 * 24 * time.Hour

const maxOrgs = 10_000

// NoteOrg records the org of a place in a batch of commands, and forgets those without sums.
func NoteOrg(ctx context.Context, pipe redisconn.Pipe, place string, now time.Time) {
	org := OrgOf(place)
	if strings.Contains(org, ":") { // a spend cap or a limiter
		return
	}
	pipe.ZAdd(ctx, OrgsKey, redisconn.Z{Score: float64(now.UnixMilli()), Member: org})
	pipe.ZRemRangeByScore(ctx, OrgsKey, "-inf", strconv.FormatInt(now.Add(-orgsLife).UnixMilli(), 10))
	pipe.PExpire(ctx, OrgsKey, orgsLife)
}

// Orgs returns the orgs that made calls in the last 400 days, deleted ones too: at most 10,000, the most
// recent first.
func (l *Ledger) Orgs(ctx context.Context) ([]string, error) {
	orgs, err := l.o.Redis.ZRevRange(ctx, OrgsKey, 0, maxOrgs-1).Result()
	if err != nil {
		return nil, l.o.Fault("list orgs with a ledger", err)
	}
	return orgs, nil
}
