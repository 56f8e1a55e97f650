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
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
)

// withDefaults returns the file's configuration with the records of all orgs applied to its
// defaults. A record that conflicts with the file is left out, so that the file's limit of
// its name applies.
func (i *Identities) withDefaults(all *tenants.Tenant) *config.Config {
	cfg := i.cfg
	for _, name := range limitNames(all) {
		next, err := withDefault(cfg, name, all.Limits[name])
		if err != nil {
			i.log.Error("limit set for all orgs conflicts with the configuration and does not apply", "limit", name, "err",
				err)
			continue
		}
		cfg = next
	}
	return cfg
}

// limitNames returns the names of the recorded limits, sorted.
func limitNames(t *tenants.Tenant) []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.Limits))
}

// withDefault applies a record to the default limit of its id, or adds one. It may be a limit of a
// plan, which it adds as well.
func withDefault(cfg *config.Config, id string, record *tenants.Limit) (*config.Config, error) {
	out := *cfg
	out.Defaults.Limits = slices.Clone(cfg.Defaults.Limits)
	out.Defaults.Plans = slices.Clone(cfg.Defaults.Plans)
	list := &out.Defaults.Limits
	owner, name := tenants.SplitLimitID(id)
	switch kind, of := tenancy.SplitOwner(owner); kind {
	case "org":
	case "plan":
		list = &planOf(&out.Defaults.Plans, of).Limits
		*list = slices.Clone(*list)
	default:
		return nil, errors.New("a " + kind + " belongs to one org; name that org")
	}
	if err := patch(limitIn(list, owner, name, nil), record.Fields); err != nil {
		return nil, err
	}
	return &out, out.CheckDefaults()
}

// checkAll returns an error if limits cannot apply to all orgs: because one is invalid, or
// because it conflicts with an org.
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
			// Hide the org's error type: its field is not one of the limit's.
			return errors.New("org " + id + " conflicts with it: " + err.Error())
		}
	}
	return nil
}

// Defaults returns the current limits of every org.
func (i *Identities) Defaults() ([]budget.Limit, error) {
	cfg := i.Effective()
	return limits(cfg, cfg.Defaults.Limits)
}

// PlanLimits returns the limits of a plan of an org or, if there is no such org, of a plan of every
// org; none if there is no such plan.
func (i *Identities) PlanLimits(org, plan string) ([]budget.Limit, error) {
	cfg := i.Effective()
	o := cfg.Tenants().Org(org)
	if o == nil {
		o = &config.Org{}
	}
	p := cfg.Defaults.OrgPlan(o, plan)
	if p == nil {
		return nil, nil
	}
	return limits(cfg, p.Limits)
}

// bounds returns what the current orgs can spend.
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
