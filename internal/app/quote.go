package app

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/calibration"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// learnTime bounds reading the calibration from Redis.
const learnTime = 3 * time.Second

// Quoting returns what batch.Estimate needs to price requests of an org and user under a
// configuration, including what Redis has learned about outputs and tokenizers; away is why
// that is unavailable. Without a configuration the built-in prices apply, and any model
// name is accepted.
func Quoting(ctx context.Context, cfg *config.Config, org, user string) (_ *batch.QuoteOptions, away, err error) {
	if cfg == nil {
		o, err := plainQuoting()
		return o, nil, err
	}
	set, err := convert(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer set.policy.Providers.Close()
	learned, away := readLearned(ctx, cfg)
	o := &batch.QuoteOptions{
		Plans: guard.NewPlanner(set.policy, learned),
		Scan:  ScanLimits(cfg), MaxLine: int(cfg.Requests.MaxBody),
	}
	o.Caller, err = set.policy.Caller(org, user, "", "")
	if err != nil {
		return nil, nil, fmt.Errorf("there is no org %q in the configuration", org)
	}
	return o, away, nil
}

// plainQuoting knows only the built-in prices.
func plainQuoting() (*batch.QuoteOptions, error) {
	catalogue, err := pricing.Embedded()
	if err != nil {
		return nil, err
	}
	set, err := providers.NewSet([]*providers.Provider{{
		ID: "any", BaseURL: &url.URL{Scheme: "https", Host: "any.invalid"},
		Pools: []providers.Pool{{ID: "any"}},
	}})
	if err != nil {
		return nil, err
	}
	org := &guard.Org{Org: tenancy.Org{ID: "any"}}
	policy := &guard.Policy{Orgs: map[string]*guard.Org{org.ID: org}, Catalogue: catalogue, Providers: set}
	return &batch.QuoteOptions{Plans: guard.NewPlanner(policy, nil), Caller: guard.Caller{Org: org}}, nil
}

// readLearned reads the calibration once. Without Redis there is none.
func readLearned(ctx context.Context, cfg *config.Config) (*calibration.Calibration, error) {
	if !cfg.Redis.Configured() {
		return nil, ErrNoStore
	}
	rdb, err := Connect(cfg.Redis)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	learned := calibration.New(rdb, calibration.Options{})
	if err := learned.Sync(ctx); err != nil {
		return nil, err
	}
	return learned, nil
}
