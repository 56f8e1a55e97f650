package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/finance"
)

// startExports starts what writes the ledger to files.
func startExports(ctx context.Context, a *App, start func(func() error)) {
	if a.exporter != nil {
		start(func() error { return quiet(a.exporter.Run(ctx)) })
	}
	x := &financeExports{
		ledger: a.budget.Ledger, config: a.Config, orgs: ledgerOrgs(a), named: a.ids.Effective,
		policy: a.guard.Policy, owner: rand.Text(), done: map[string]string{}, log: a.log,
	}
	start(func() error { return x.run(ctx) })
}

const (
	financeEvery = time.Minute      // between looks for exports that are due
	financeLease = 10 * time.Minute // how long others wait for a process that dies during an export
)

// financeExports writes the FOCUS files of finance.export, as configured at the moment.
type financeExports struct {
	ledger *ledger.Ledger
	config func() *config.Config
	orgs   func(context.Context) []string
	named  func() *config.Config // with what is recorded in Redis
	policy func() *guard.Policy
	owner  string
	done   map[string]string // by org: the position that is known to be written
	log    *slog.Logger
}

// run writes files that are due, until ctx ends.
func (x *financeExports) run(ctx context.Context) error {
	tick := time.NewTicker(financeEvery)
	defer tick.Stop()
	for {
		if e := x.config().Finance.Export; e.Every != "" {
			if err := x.round(ctx, e, time.Now()); err != nil && ctx.Err() == nil {
				x.log.ErrorContext(ctx, "finance export failed, will retry", "to", bareURL(e.To), "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// bareURL returns a URL without its query.
func bareURL(to string) string {
	bare, _, _ := strings.Cut(to, "?")
	return bare
}

// round writes the files of all orgs that are due.
func (x *financeExports) round(ctx context.Context, e config.FinanceExport, now time.Time) error {
	var to *finance.Store
	var errs []error
	for _, org := range x.orgs(ctx) {
		if months, _ := finance.Due(e.Every, x.done[org], now); len(months) == 0 {
			continue
		}
		if to == nil {
			var err error
			to, err = finance.OpenStore(ctx, e.To)
			if err != nil {
				return fmt.Errorf("finance.export.to: %w", err)
			}
			defer to.Close() //nolint:errcheck // every file is complete
		}
		if err := x.export(ctx, e, org, to, now); err != nil {
			errs = append(errs, fmt.Errorf("org %s: %w", org, err))
		}
	}
	return errors.Join(errs...)
}

// export writes the files of an org, unless another process does or did.
func (x *financeExports) export(
	ctx context.Context, e config.FinanceExport, org string, to *finance.Store, now time.Time,
) error {
	lease := ledger.ExportLease{Org: org, Owner: x.owner, For: financeLease}
	done, mine, err := x.ledger.Lease(ctx, lease)
	if err != nil || !mine {
		return err
	}
	months, done := finance.Due(e.Every, done, now)
	lease.For = 0
	for _, month := range months {
		if err := x.write(ctx, e, org, to, month); err != nil {
			_, _, release := x.ledger.Lease(ctx, lease)
			return errors.Join(err, release)
		}
		lease.Done = min(month.End().AddDate(0, 0, -1).Format(time.DateOnly), done) // earlier than done if a month follows
	}
	_, _, err = x.ledger.Lease(ctx, lease)
	if err == nil {
		x.done[org] = done
	}
	return err
}

func (x *financeExports) write(
	ctx context.Context, e config.FinanceExport, org string, to *finance.Store, month finance.Month,
) error {
	o := finance.FocusOptions{
		Org: org, OrgName: x.nameOf(org), Month: month, BillingAccount: e.BillingAccount, Now: time.Now(),
		Vendor: func(id string) string {
			if p := x.policy().Providers.Get(id); p != nil {
				return finance.Vendor(p)
			}
			return id
		},
	}
	var err error
	o.By, err = finance.ParseBy(strings.Join(e.By, ","))
	if err != nil {
		return fmt.Errorf("finance.export.by: %w", err)
	}
	f, err := finance.ReadFocus(ctx, x.ledger, o)
	if err != nil {
		return err
	}
	where, err := to.Put(ctx, o.FileName(e.Format), f.WriteCSV)
	if err != nil {
		return err
	}
	x.log.InfoContext(ctx, "finance export written", "org", org, "file", where, "rows", f.Rows())
	if lacks := f.Incomplete(); lacks != "" {
		x.log.WarnContext(ctx, "finance export is incomplete", "org", org, "month", month.String(), "why", lacks)
	}
	return nil
}

// nameOf returns the name of an org; empty if it is deleted.
func (x *financeExports) nameOf(org string) string {
	if o := x.named().Tenants().Org(org); o != nil {
		return o.Name
	}
	return ""
}
