package app

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
)

// Policy returns what a configuration decides calls by, for simulations. workers is the
// number of worker processes; 0 is one.
func Policy(cfg *config.Config, workers int) (simulate.Policy, error) {
	set, err := convert(cfg)
	if err != nil {
		return simulate.Policy{}, err
	}
	p := simulate.Policy{
		Name: cfg.Name, Guard: set.policy, Pools: set.pools, Workers: map[string]int{},
		Queue: queueOptions(cfg, set), HoldFor: cfg.Queue.Hold,
	}
	for pool, n := range set.workers {
		p.Workers[pool] = n * max(workers, 1)
	}
	return p, nil
}

// WithRecords returns a configuration with the records of orgs applied, as they would take
// effect with it; those of tenants.AllOrgs apply to the defaults. A key without a hash gets
// one that matches no key.
func WithRecords(cfg *config.Config, records map[string]*tenants.Tenant) (*config.Config, error) {
	all := records[tenants.AllOrgs]
	for _, name := range limitNames(all) {
		next, err := withDefault(cfg, name, all.Limits[name])
		if err != nil {
			return nil, fmt.Errorf("limit %s, set for all orgs, conflicts with %s: %w", name, cfg.Name, err)
		}
		cfg = next
	}
	out := *cfg
	out.Orgs = slices.Clone(cfg.Orgs)
	for _, id := range slices.Sorted(maps.Keys(records)) {
		file := cfg.Tenants().Org(id)
		if file == nil && records[id].Org == nil {
			continue
		}
		for key, k := range records[id].Keys {
			if k.Hash == "" {
				k.Hash = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id+"/"+key)))
			}
		}
		made, err := makeOrg(cfg, nil, id, file, records[id])
		if err != nil {
			return nil, fmt.Errorf("org %s: its runtime settings conflict with %s: %w", id, cfg.Name, err)
		}
		*tenancy.FindOrAdd(&out.Orgs, id, func() config.Org { return made.org }) = made.org
	}
	return &out, nil
}
