package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// policies returns the policies to replay: the baseline, if there is one, then the requested
// one.
func (f *simulateFlags) policies(ctx context.Context) ([]simulate.Policy, error) {
	path := cmp.Or(f.policy, f.trace.usage.path)
	if f.policy == "" && len(f.set) == 0 {
		return nil, misused("--policy or --set is required")
	}
	records, err := f.trace.records(ctx)
	if err != nil {
		return nil, err
	}
	var out []simulate.Policy
	add := func(path, name string, set []string) error {
		cfg, err := f.loadPolicy(path, records)
		if err != nil {
			return err
		}
		for _, one := range set {
			if err := setLimitOf(cfg, one); err != nil {
				return err
			}
		}
		cfg.Name, f.shadow = name, findLimit(cfg, nil).shadow
		p, err := app.Policy(cfg, f.workers)
		out = append(out, p)
		return err
	}
	switch {
	case f.baseline != "":
		err = add(f.baseline, f.baseline, nil)
	case len(f.set) > 0:
		err = add(path, path, nil)
	}
	if err != nil {
		return nil, err
	}
	return out, add(path, strings.Join(append([]string{path}, f.set...), ", "), f.set)
}

// loadPolicy loads a configuration and applies runtime records. A file with only orgs replaces them in the
// configuration of --config, and in the records, as `apply` would.
func (f *simulateFlags) loadPolicy(path string, records map[string]*tenants.Tenant) (*config.Config, error) {
	cfg, err := config.LoadPolicy(path)
	if base := f.trace.usage.path; err != nil && path != base {
		if whole, failed := f.loadPolicy(base, records); failed == nil {
			cfg, failed = whole.WithOrgs(path)
			if cfg != nil || failed != nil {
				return cfg, failed
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s not found. Name a configuration with --policy or --config: pools, prices and "+
			"caps are not in Redis", path)
	}
	if err != nil {
		return nil, err
	}
	return app.WithRecords(cfg, records)
}

// records returns the runtime records of the orgs; none for calls from files.
func (f *traceFlags) records(ctx context.Context) (map[string]*tenants.Tenant, error) {
	if len(f.logs) > 0 {
		return nil, nil
	}
	l, err := f.usage.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer l.close()
	orgs, err := list[admin.Org](ctx, l.adminClient, "/orgs")
	if err != nil {
		return nil, err
	}
	out := map[string]*tenants.Tenant{}
	read := func(id, as string) error {
		var t tenants.Tenant
		out[as] = &t
		return l.ask(ctx, http.MethodGet, pathOf("orgs", id, "records"), nil, &t)
	}
	every := tenants.AllOrgs
	for _, o := range orgs {
		if err := read(o.ID, o.ID); err != nil {
			return nil, err
		}
		if o.ID == everyOrg { // an org named "all" hides the records of all orgs
			every = o.ID
		}
	}
	return out, read(everyOrg, every)
}

// everyOrg stands for all orgs in references to limits.
const everyOrg = "all"

// setLimitOf changes a limit: "acme/daily: $5", "acme/alice/daily: $5" for one user, "all/daily: $5" for every org
// that does not override it, or "acme/group:research/team: $5" and "all/plan:free/daily: $5". In place of an amount,
// there may be a mode, or {fields} as in the file, which can also add a limit.
func setLimitOf(cfg *config.Config, text string) error {
	before, fields, _ := strings.Cut(text, "{")
	at := strings.LastIndex(before, ":")
	parts := strings.Split(strings.TrimSpace(text[:max(at, 0)]), "/")
	value := strings.TrimSpace(text[at+1:])
	if at < 0 || value == "" || len(parts) < 2 || len(parts) > 3 {
		return misused("--set %s: expected ORG/LIMIT: AMOUNT, such as 'acme/daily: $5', ORG/LIMIT: enforce, or "+
			"ORG/LIMIT: {FIELDS}", text)
	}
	found := findLimit(cfg, parts)
	if found.limit == nil && found.list != nil && fields != "" {
		*found.list = append(*found.list, config.NewLimit(strings.Join(parts[1:len(parts)-1], ""), parts[len(parts)-1]))
		found.limit = &(*found.list)[len(*found.list)-1]
	}
	switch {
	case found.limit == nil:
		return fmt.Errorf("--set %s: no such limit%s. To add one, write its fields: "+
			"'acme/daily: {subject: user, amount: $5, window: 1d}'", text,
			settings.Hint(strings.Join(parts, "/"), found.known))
	case fields != "":
	case value == string(budget.Enforce) || value == string(budget.Shadow):
		value = "{mode: " + value + "}"
	case found.limit.Bucket.Capacity.N > 0:
		value = "{bucket: {capacity: " + strconv.Quote(value) + "}}"
	default:
		value = "{amount: " + strconv.Quote(value) + "}"
	}
	if err := config.Patch(found.limit, []byte(value)); err != nil {
		return misused("--set %s: %w", text, err)
	}
	err := cfg.CheckDefaults()
	if i := slices.IndexFunc(cfg.Orgs, func(o config.Org) bool { return o.ID == parts[0] }); i >= 0 {
		err = cfg.CheckOrg(&cfg.Orgs[i])
	}
	if err != nil {
		return misused("--set %s: %w", text, err)
	}
	return nil
}

type foundLimit struct {
	limit         *config.Limit   // nil: it does not exist
	list          *[]config.Limit // of its org, user, group or plan; nil: that does not exist
	known, shadow []string        // all limits, and those in shadow mode
}

// findLimit finds a limit by org and name, or org, user and name, in copies of the configuration's lists.
func findLimit(cfg *config.Config, parts []string) (found foundLimit) {
	of, last := strings.Join(parts, "/"), max(len(parts)-1, 0)
	search := func(list *[]config.Limit, owner string) {
		*list = slices.Clone(*list)
		if owner == strings.Join(parts[:last], "/") {
			found.list = list
		}
		for i := range *list {
			name := owner + "/" + (*list)[i].Name
			found.known = append(found.known, name)
			if (*list)[i].Mode == string(budget.Shadow) {
				found.shadow = append(found.shadow, name)
			}
			if name == of {
				found.limit = &(*list)[i]
			}
		}
	}
	defaults := cfg.Defaults.Limits
	search(&cfg.Defaults.Limits, everyOrg)
	plans := func(list *[]config.Plan, org string) {
		*list = slices.Clone(*list)
		for i := range *list {
			search(&(*list)[i].Limits, org+"/"+settings.Owner("plan", (*list)[i].ID))
		}
	}
	plans(&cfg.Defaults.Plans, everyOrg)
	cfg.Orgs = slices.Clone(cfg.Orgs)
	for i := range cfg.Orgs {
		o := &cfg.Orgs[i]
		j := slices.IndexFunc(defaults, func(l config.Limit) bool { return o.ID+"/"+l.Name == strings.Join(parts, "/") })
		if j >= 0 && !slices.ContainsFunc(o.Limits, func(l config.Limit) bool { return l.Name == defaults[j].Name }) {
			o.Limits = append(slices.Clip(o.Limits), defaults[j]) // copied so that it changes for this org only
		}
		search(&o.Limits, o.ID)
		plans(&o.Plans, o.ID)
		o.Groups = slices.Clone(o.Groups)
		for k := range o.Groups {
			search(&o.Groups[k].Limits, o.ID+"/"+settings.Owner("group", o.Groups[k].ID))
		}
		o.Users = slices.Clone(o.Users)
		for k := range o.Users {
			search(&o.Users[k].Limits, o.ID+"/"+o.Users[k].ID)
		}
	}
	return found
}
