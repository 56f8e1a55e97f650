package console

import (
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

const findingsAge = 10 * time.Second

func (c *Console) newFindings() *fresh[[]diagnose.Finding] {
	return &fresh[[]diagnose.Finding]{age: findingsAge, get: func(ctx context.Context) ([]diagnose.Finding, error) {
		if c.o.Findings == nil {
			return nil, nil
		}
		return slices.DeleteFunc(c.o.Findings(ctx), func(f diagnose.Finding) bool { return f.Level == diagnose.OK }), nil
	}}
}

// detailsOf returns the page with the details of a finding; empty: none.
func detailsOf(f diagnose.Finding) string {
	switch {
	case f.Pool != "":
		return Path + "queue#pool-" + f.Pool
	case f.Org != "" && f.Target == "":
		return pathOf("orgs", f.Org)
	}
	return ""
}

// bound returns what limits let an org spend.
func (c *Console) bound(o *settings.Org) guard.Bound {
	policy, now := c.o.Policy(), c.o.Now()
	if policy.Orgs[o.ID] == nil {
		return guard.Bound{}
	}
	return policy.Bound(policy.Orgs[o.ID], o.CallerKeys(now), now)
}
