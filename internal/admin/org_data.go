package admin

import (
	stdjson "encoding/json"
	"errors"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Purged counts the data of an org.
type Purged struct {
	Records int `json:"records"` // of the org, its users, keys, limits, overrides and credentials
	Keys    int `json:"keys"`    // in Redis, including what is counted below
	Jobs    int `json:"jobs"`
	Batches int `json:"batches"`
	Files   int `json:"files"`
}

type purge struct {
	// Ledger also removes the ledger, daily sums and corrections.
	Ledger bool   `json:"ledger,omitempty" help:"also delete the ledger, daily sums and corrections"`
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason,omitempty"`
}

type orgDataHandler struct {
	base
	jobs  *jobHandler
	org   handler
	lists []ofOrg // what the export has of an org, besides the org itself
}

// ofOrg is a list of things of an org.
type ofOrg struct {
	kind string
	list handler
}

func (h *orgDataHandler) exportOrg(c *call) (any, error) {
	org := c.r.PathValue("org")
	x := &orgdata.Export{
		Org: org, Budget: h.opts.Budget, Tenants: h.opts.Tenants, Files: h.opts.Files, Batches: h.opts.Batches,
		Names:      h.opts.Names,
		Queue:      func() (*queue.Queue, error) { return h.jobs.queue(c) },
		Identities: func(line func(string, any) error) error { return h.identities(c, line) },
		Job:        func(j *queue.Job) any { return JobLineOf(j) },
	}
	return streamed(func(line func(any) error) error {
		err := x.Write(c.r.Context(), func(one orgdata.ExportLine) error { return line(one) })
		if errors.Is(err, orgdata.ErrNoBatches) {
			return noWork("batches")
		}
		return err
	}), nil
}

// identities exports records as their own routes show them, without secrets.
func (h *orgDataHandler) identities(c *call, line func(kind string, data any) error) error {
	org, err := h.org(c)
	if err != nil {
		return err
	}
	if err := line("org", org); err != nil {
		return err
	}
	for _, of := range h.lists {
		if err := each(c, of.list, func(one stdjson.RawMessage) error { return line(of.kind, one) }); err != nil {
			return err
		}
	}
	return nil
}

func each(c *call, list handler, fn func(one stdjson.RawMessage) error) error {
	answer, err := list(c)
	if err != nil {
		return err
	}
	text, err := stdjson.Marshal(answer)
	if err != nil {
		return err
	}
	var page struct{ Data []stdjson.RawMessage }
	if err := stdjson.Unmarshal(text, &page); err != nil {
		return err
	}
	for _, one := range page.Data {
		if err := fn(one); err != nil {
			return err
		}
	}
	return nil
}

// purgeOrg deletes the data of a disabled org that is no longer in the file.
func (h *orgDataHandler) purgeOrg(c *call) (any, error) {
	n, org := body[purge](c), c.r.PathValue("org")
	if err := newID("org", org); err != nil {
		return nil, err
	}
	p, done := h.opts.Purge(c.r.Context(), org)
	defer done()
	p.Declared, p.Ledger = h.opts.File().Org(org) != nil, n.Ledger
	if err := purgeError(p.Allowed(), org); err != nil {
		return nil, err
	}
	found, err := p.Look(c.r.Context())
	if err != nil {
		return nil, purgeError(err, org)
	}
	if !n.DryRun && found.Any() {
		if err := p.Run(c.r.Context(), c.entry(org, org), found); err != nil {
			const text = " was removed only in part. Repeat the command to continue"
			return nil, wire.ServiceUnavailable("Org "+org+text, time.Second, err)
		}
	}
	if !n.DryRun {
		h.opts.Applied()
	}
	return Purged(found), nil
}

// purgeError explains why an org cannot be purged.
func purgeError(err error, org string) error {
	switch {
	case errors.Is(err, orgdata.ErrDeclared):
		return conflict("org_in_file",
			"Org "+org+" is in the configuration file. Remove it from the file and reload, then purge it")
	case errors.Is(err, orgdata.ErrEnabled):
		return conflict("org_not_disabled", "Org "+org+" is not disabled: `llmguard orgs disable "+org+"` first")
	case errors.Is(err, orgdata.ErrOpen):
		return conflict("org_in_use", err.Error())
	}
	return err
}
