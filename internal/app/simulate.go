package app

import (
	"fmt"
	"os"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/simulate"
)

// Policy is what a configuration decides calls by, for simulations. Workers is
// how many worker processes there are; 0 is one.
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

// notSet stands in for what the environment does not have. It is long enough for a
// secret, and an address for a store that nobody asks.
const notSet = "redis://not-set-in-this-environment"

// LoadPolicy reads a configuration whose secrets need not be at hand: nothing is
// connected to.
func LoadPolicy(path string) (*config.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return config.Parse(path, data, func(name string) (string, bool) {
		if value := os.Getenv(name); value != "" {
			return value, true
		}
		return notSet, true
	})
}
