package cli

import (
	"context"
	"net/http"
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
	for _, org := range l.orgs {
		var d admin.Declaration
		if err := l.ask(ctx, http.MethodGet, pathOf("orgs", org, "declaration"), nil, &d); err != nil {
			return nil, err
		}
		var t identity.Tenant
		if err := l.ask(ctx, http.MethodGet, pathOf("orgs", org, "records"), nil, &t); err != nil {
			return nil, err
		}
		made := map[string]time.Time{}
		for id, r := range t.Limits {
			_, name := identity.SplitLimitID(id)
			if at, known := made[name]; !known || r.Created.Before(at) {
				made[name] = r.Created
			}
		}
		out[org] = map[string]time.Time{}
		lists := [][]admin.DeclaredLimit{d.Limits}
		for _, u := range d.Users {
			lists = append(lists, u.Limits)
		}
		for _, list := range lists {
			for _, one := range list {
				if one.Mode != nil && *one.Mode == string(budget.Shadow) {
					out[org][one.Name] = made[one.Name]
				}
			}
		}
	}
	return out, nil
}
