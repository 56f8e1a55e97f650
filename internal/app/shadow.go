package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/identity"
)

// ShadowLimits returns since when the limits in shadow mode are there, by org and
// limit: those of Redis since their record was made, those of the file always, which
// is the zero time.
func ShadowLimits(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient) (map[string]map[string]time.Time, error) {
	ids, err := LoadIdentities(ctx, cfg, rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]time.Time{}
	tenants := ids.Store.Snapshot().Tenants
	for id, org := range ids.Policy().Orgs {
		out[id] = map[string]time.Time{}
		made := recorded(tenants[id])
		for _, name := range shadowNames(org) {
			out[id][name] = made[name]
		}
	}
	return out, nil
}

// recorded is when the limits of an org's records were made, the first of each name.
func recorded(t *identity.Tenant) map[string]time.Time {
	out := map[string]time.Time{}
	if t == nil {
		return out
	}
	for id, l := range t.Limits {
		_, name := identity.SplitLimitID(id)
		if at, known := out[name]; !known || l.Created.Before(at) {
			out[name] = l.Created
		}
	}
	return out
}

func shadowNames(org *guard.Org) (names []string) {
	lists := append(slices.Collect(maps.Values(org.UserLimits)), org.Limits)
	for _, list := range slices.AppendSeq(lists, maps.Values(org.KeyLimits)) {
		for i := range list {
			if list[i].Mode == budget.Shadow {
				names = append(names, list[i].ID)
			}
		}
	}
	return names
}
