package app

import (
	"fmt"
	"os"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
)

// unexported is how many times ledger.max_entries a ledger may hold while its
// export does not get on.
const unexported = 10

// LedgerLength is the bound that settling itself puts on a ledger. The exporter
// trims before that, what it has written.
func LedgerLength(c config.Ledger) int64 {
	if c.ExportDir != "" {
		return unexported * c.MaxEntries
	}
	return c.MaxEntries
}

// exporter returns what exports the ledgers, or nil when the file says nowhere.
func exporter(c *config.Config, s *budget.Store, orgs func() []string) (*budget.Exporter, error) {
	if c.Ledger.ExportDir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(c.Ledger.ExportDir, 0o750); err != nil {
		return nil, fmt.Errorf("ledger.export_dir: %w", err)
	}
	return budget.NewExporter(s.Ledger, budget.ExporterOptions{
		Dir: c.Ledger.ExportDir, Orgs: orgs, Keep: c.Ledger.MaxEntries,
	})
}

// LimitsOf returns the limits of a configuration that a call of the ledger stood
// under. Of limits per address only those of a call whose address is known.
func LimitsOf(c *config.Config, call budget.Call) ([]budget.Limit, error) {
	s, err := convert(c)
	if err != nil {
		return nil, err
	}
	org := s.policy.Orgs[call.Org]
	if org == nil {
		return nil, fmt.Errorf("the configuration has no org %s any more, so none of its limits", call.Org)
	}
	models := []string{call.Model}
	for _, p := range c.Providers {
		if to := p.ModelMap[call.Model]; p.ID == call.Provider && to != "" {
			models = append(models, to)
		}
	}
	// What the call does not say is in no limit that asks for it.
	list := guard.Applying(org.LimitsFor(call.User, call.Key), call, models...)
	return slices.DeleteFunc(slices.Clone(list), func(l budget.Limit) bool { return !l.Tells(call) }), nil
}
