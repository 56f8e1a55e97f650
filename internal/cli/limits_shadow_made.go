package cli

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/admin"
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/identity"
)

// shadowLimits are since when the limits in shadow mode are there, by org and limit: those that
// were made at runtime since their record was made, the first of each name; those of the file
// always, which is the zero time.
func (l *ledgers) shadowLimits(ctx context.Context) (map[string]map[string]time.Time, error) {
	out := map[string]map[string]time.Time{}
	every, everyMade, err := l.declared(ctx, everyOrg)
	if err != nil {
		return nil, err
	}
	for _, org := range l.orgs {
		d, made, err := l.declared(ctx, org)
		if err != nil {
			return nil, err
		}
		out[org] = map[string]time.Time{}
		for _, one := range every.Limits {
			if own := slices.ContainsFunc(d.Limits, func(o admin.DeclaredLimit) bool { return o.Name == one.Name }); !own && shadowed(one) {
				out[org][one.Name] = everyMade[one.Name]
			}
		}
		lists := [][]admin.DeclaredLimit{d.Limits}
		for _, u := range d.Users {
			lists = append(lists, u.Limits)
		}
		for _, list := range lists {
			for _, one := range list {
				if shadowed(one) {
					out[org][one.Name] = made[one.Name]
				}
			}
		}
	}
	return out, nil
}

func shadowed(l admin.DeclaredLimit) bool { return l.Mode != nil && *l.Mode == string(budget.Shadow) }

// declared is an org, or everyOrg, as it is in force, and when its recorded limits were made, by
// name.
func (l *ledgers) declared(ctx context.Context, org string) (d admin.Declaration, made map[string]time.Time, err error) {
	if err := l.ask(ctx, http.MethodGet, pathOf("orgs", org, "declaration"), nil, &d); err != nil {
		return d, nil, err
	}
	var t identity.Tenant
	if err := l.ask(ctx, http.MethodGet, pathOf("orgs", org, "records"), nil, &t); err != nil {
		return d, nil, err
	}
	made = map[string]time.Time{}
	for id, r := range t.Limits {
		_, name := identity.SplitLimitID(id)
		if at, known := made[name]; !known || r.Created.Before(at) {
			made[name] = r.Created
		}
	}
	return d, made, nil
}
