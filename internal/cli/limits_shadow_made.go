package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/tenants"
)

// shadowLimits returns, by org and limit name, since when each limit in shadow mode has
// existed: since its present form was first recorded, or else since its runtime record was
// created. For limits of the same name the first counts. The zero time means earlier than any
// record.
func (l *ledgers) shadowLimits(ctx context.Context) (map[string]map[string]time.Time, error) {
	every, err := l.recorded(ctx, everyOrg)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]time.Time{}
	for _, org := range l.orgs {
		out[org], err = l.shadowOf(ctx, org, every)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// shadowOf is shadowLimits for one org. every holds the creation times of limits that apply to
// all orgs.
func (l *ledgers) shadowOf(ctx context.Context, org string, every map[string]time.Time) (map[string]time.Time, error) {
	d, err := get[admin.Declaration](ctx, l.adminClient, pathOf("orgs", org, "declaration"))
	if err != nil {
		return nil, err
	}
	own, err := l.recorded(ctx, org)
	if err != nil {
		return nil, err
	}
	made := maps.Clone(every)
	maps.Copy(made, own)
	out := map[string]time.Time{}
	if err := l.shadowIn(ctx, pathOf("orgs", org, "limits"), made, out); err != nil {
		return nil, err
	}
	for _, u := range d.Users {
		if !slices.ContainsFunc(u.Limits, shadowed) {
			continue
		}
		if err := l.shadowIn(ctx, pathOf("orgs", org, "limits")+"?"+query("user", u.ID), made, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func shadowed(l admin.DeclaredLimit) bool { return l.Fields.Text("mode") == string(budget.Shadow) }

// shadowIn adds the shadow-mode limits of one list.
func (l *ledgers) shadowIn(ctx context.Context, path string, made, out map[string]time.Time) error {
	limits, err := list[admin.Limit](ctx, l.adminClient, path)
	if err != nil {
		return err
	}
	for _, one := range limits {
		if one.Mode != string(budget.Shadow) {
			continue
		}
		since := made[one.Name]
		if one.ShadowSince != nil {
			since = *one.ShadowSince
		}
		if known, there := out[one.Name]; !there || since.Before(known) {
			out[one.Name] = since
		}
	}
	return nil
}

// recorded returns when the runtime limits of an org, or of everyOrg, were created, the first
// of each name.
func (l *ledgers) recorded(ctx context.Context, org string) (map[string]time.Time, error) {
	t, err := get[tenants.Tenant](ctx, l.adminClient, pathOf("orgs", org, "records"))
	if err != nil {
		return nil, err
	}
	made := map[string]time.Time{}
	for id, r := range t.Limits {
		_, name := tenants.SplitLimitID(id)
		if at, known := made[name]; !known || r.Created.Before(at) {
			made[name] = r.Created
		}
	}
	return made, nil
}
