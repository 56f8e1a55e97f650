package app

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants"
)

// withDefaults is the file's configuration with the records of all orgs over its defaults. A
// record that does not go with the file is left out, so that the file's limit of its name applies.
func (i *Identities) withDefaults(all *tenants.Tenant) *config.Config {
	cfg := i.cfg
	for _, name := range limitNames(all) {
		next, err := withDefault(cfg, name, all.Limits[name])
		if err != nil {
			i.log.Error("a limit set for all orgs conflicts with the configuration and does not apply", "limit", name, "err",
				err)
			continue
		}
		cfg = next
	}
	return cfg
}

// limitNames are the names of the limits that are recorded, in order.
func limitNames(t *tenants.Tenant) []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.Limits))
}

// withDefault puts a record over the default limit of its name, or adds one.
func withDefault(cfg *config.Config, name string, record *tenants.Limit) (*config.Config, error) {
	out := *cfg
	out.Defaults.Limits = slices.Clone(cfg.Defaults.Limits)
	at := slices.IndexFunc(out.Defaults.Limits, func(l config.Limit) bool { return l.Name == name })
	if at < 0 {
		out.Defaults.Limits = append(out.Defaults.Limits, config.NewLimit("", name))
		at = len(out.Defaults.Limits) - 1
	}
	if err := patch(&out.Defaults.Limits[at], record.LimitSpec); err != nil {
		return nil, err
	}
	return &out, out.CheckDefaults()
}

// checkAll reports what makes limits unusable for all orgs: one wrong in itself, or one that an
// org cannot have.
func (i *Identities) checkAll(all *tenants.Tenant) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	cfg := i.cfg
	for _, name := range limitNames(all) {
		next, err := withDefault(cfg, name, all.Limits[name])
		if err != nil {
			return err
		}
		cfg = next
	}
	for id, o := range i.orgs {
		if _, err := i.makeOrg(cfg, id, o.file, o.record); err != nil {
			return errors.New("org " + id + " cannot have it: " + err.Error()) // its field is not one of the limit's
		}
	}
	return nil
}

// Defaults are the limits of every org in force.
func (i *Identities) Defaults() ([]budget.Limit, error) {
	cfg := i.Effective()
	return limits(cfg, cfg.Defaults.Limits, "")
}

// bounds are what the orgs in force can spend.
func (i *Identities) bounds() map[string]guard.Bound {
	cfg, policy, now := i.Effective(), i.Policy(), time.Now()
	out := make(map[string]guard.Bound, len(cfg.Orgs))
	for n := range cfg.Orgs {
		o := &cfg.Orgs[n]
		if in := policy.Orgs[o.ID]; in != nil {
			out[o.ID] = policy.Bound(in, o.CallerKeys(now), now)
		}
	}
	return out
}
