package admin

import (
	"github.com/llmguard/llmguard/internal/tenants"
)

// PurgeOrder says what of an org is removed.
type PurgeOrder struct {
	Org string
	// Ledger removes the ledger, daily sums and corrections, too.
	Ledger bool
	// DryRun only counts.
	DryRun bool
	Audit  tenants.AuditEntry
}

// Purged is what there was of an org, in numbers.
type Purged struct {
	Records int `json:"records"` // of the org, its users, keys, limits, overrides and credentials
	Keys    int `json:"keys"`    // of Redis, with what is counted below
	Jobs    int `json:"jobs"`
	Batches int `json:"batches"`
	Files   int `json:"files"`
}

type purge struct {
	// Ledger removes the ledger, daily sums and corrections, too.
	Ledger bool   `json:"ledger,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// purgeOrg removes what is kept of a disabled org that is no longer in the file.
func (c *call) purgeOrg() (any, error) {
	var p purge
	if err := c.read(&p); err != nil {
		return nil, err
	}
	org := c.r.PathValue("org")
	if err := newID("org", org); err != nil {
		return nil, err
	}
	if c.o.File().Org(org) != nil {
		return nil, conflict("org_in_file", "Org "+org+" is in the configuration file. Remove it from the file and reload, then purge it")
	}
	if r := c.records(org); r.Org != nil && (r.Org.Disabled == nil || !*r.Org.Disabled) {
		return nil, conflict("org_not_disabled", "Org "+org+" is not disabled: `llmguard orgs disable "+org+"` first")
	}
	e := c.entry("org.purge", org, org)
	var err error
	if e.Reason, err = c.reason(p.Reason); err != nil {
		return nil, err
	}
	found, err := c.o.Purge(c.r.Context(), PurgeOrder{Org: org, Ledger: p.Ledger, DryRun: p.DryRun, Audit: e})
	if err != nil {
		return nil, err
	}
	if !p.DryRun {
		c.o.Applied()
	}
	return found, nil
}
