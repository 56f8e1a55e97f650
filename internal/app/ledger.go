package app

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
)

// unexported is how many times ledger.max_entries a ledger may hold while its export makes
// no progress.
const unexported = 10

// LedgerLength returns the maximum length of a ledger when settling. The exporter trims
// what it has written before that.
func LedgerLength(c config.Ledger) int64 {
	if c.ExportDir != "" {
		return unexported * c.MaxEntries
	}
	return c.MaxEntries
}

// ledgerOrgs lists the orgs whose money is exported: those in effect, and deleted ones, whose ledger
// remains. If Redis is unavailable, it has only the former.
func ledgerOrgs(a *App) func(context.Context) []string {
	return func(ctx context.Context) []string {
		all, err := a.budget.Ledger.Orgs(ctx)
		if err != nil {
			a.log.WarnContext(ctx, "deleted orgs not exported, will retry", "err", err)
		}
		orgs := append(a.ids.orgIDs(), all...)
		slices.Sort(orgs)
		return slices.Compact(orgs)
	}
}

// exporter returns the exporter of the ledgers, or nil if no directory is configured.
func exporter(c *config.Config, s *budget.Store, orgs func(context.Context) []string) (*ledger.Exporter, error) {
	if c.Ledger.ExportDir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.Ledger.ExportDir, 0o750); err != nil {
		return nil, fmt.Errorf("ledger.export_dir: %w", err)
	}
	return ledger.NewExporter(s.Ledger, ledger.ExporterOptions{
		Dir: c.Ledger.ExportDir, Orgs: orgs, Keep: c.Ledger.MaxEntries,
	})
}

// LimitsOf returns the limits of a configuration that applied to a call in the ledger.
// Limits per address are included only if the call's address is known.
func LimitsOf(c *config.Config, call ledger.Call) ([]budget.Limit, error) {
	s, err := convert(c)
	if err != nil {
		return nil, err
	}
	org := s.policy.Orgs[call.Org]
	if org == nil {
		return nil, fmt.Errorf("org %s is no longer configured, so its limits are unknown", call.Org)
	}
	models := []string{call.Model}
	for _, p := range c.Providers {
		if to := p.ModelMap[call.Model]; p.ID == call.Provider && to != "" {
			models = append(models, to)
		}
	}
	// Omit limits that ask for what the call does not say.
	list := guard.Applying(org.LimitsFor(call.User, call.Key), call, models...)
	return slices.DeleteFunc(slices.Clone(list), func(l budget.Limit) bool { return !l.Tells(call) }), nil
}

// SpreadOf returns how the money of an org is spread by the current policy, which may be nil.
func SpreadOf(policy func() *guard.Policy) func(org string) budget.Spread {
	return func(org string) budget.Spread {
		if p := policy(); p != nil && p.Orgs[org] != nil {
			return p.Orgs[org].Spread
		}
		return budget.Spread{}
	}
}
