package checks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/internal/removed"
	"github.com/llmguard/llmguard/internal/tenants"
)

func redisSettings(ctx context.Context, e *examination, r *diagnose.Report) {
	e.server.Settings(ctx, r)
}

func durability(_ context.Context, e *examination, r *diagnose.Report) {
	e.server.Durability(r, e.cfg.Store.Durability)
}

func redisCondition(ctx context.Context, e *examination, r *diagnose.Report) {
	e.server.Condition(ctx, r, e.cfg.Store.Deadline)
}

// noJournal checks that charges are on disk while Redis is down.
func noJournal(_ context.Context, e *examination, r *diagnose.Report) {
	if e.cfg.Store.JournalDir == "" {
		r.Add(diagnose.Warning, "store.journal_dir is not set: if Redis is down, charges of finished calls live in memory "+
			"and are lost on exit", "Set it to a directory on persistent storage.")
	}
}

func providersAnswer(ctx context.Context, e *examination, r *diagnose.Report) {
	diagnose.Upstreams(ctx, r, e.policy)
}

// runningProcesses checks what running processes report.
func runningProcesses(_ context.Context, e *examination, r *diagnose.Report) {
	quotas := map[string]diagnose.Quota{}
	for _, p := range e.cfg.Providers {
		for _, pool := range p.Pools {
			quotas[pool.ID] = diagnose.Quota{
				"rpm": pool.RPM, "tpm": pool.TPM, "itpm": pool.ITPM, "otpm": pool.OTPM,
			}
		}
	}
	for _, p := range e.processes {
		p.Look(r, quotas)
	}
}

func sameFile(_ context.Context, e *examination, r *diagnose.Report) {
	diagnose.SameFile(r, e.processes)
}

// stopped lists what spending is stopped.
func stopped(_ context.Context, e *examination, r *diagnose.Report) {
	if e.cfg.KillSwitch == "stop" {
		r.Add(diagnose.Warning, "kill_switch: stop is set: all calls get 403 spending_stopped",
			"Set kill_switch: off and reload every process.")
	}
	for _, org := range slices.Sorted(maps.Keys(e.stops)) {
		resume := "llmguard resume"
		if org != tenants.AllOrgs {
			resume += " --org " + org
		}
		r.Add(diagnose.Warning, "stopped: "+e.stops[org].Text(org), "End it with `"+resume+"` when the cause is fixed.")
	}
}

// heldTooLong is how long a hold may remain after its lease has ended. Processes that could not
// reach Redis grant each hold one extra lease, which is added separately.
const heldTooLong = time.Minute

// heldMoney checks the holds and late charges of every org.
func heldMoney(ctx context.Context, e *examination, r *diagnose.Report) {
	orgs := e.orgs.Orgs
	s := budget.New(e.rdb, budget.Options{})
	lost, err := s.DataLoss.At(ctx)
	if err == nil && !lost.IsZero() {
		r.Add(diagnose.Warning, "redis lost its data at "+figures.Minute(lost)+
			": every limit is closed for the length of its window from then on",
			"Restore a backup, or accept the loss with `llmguard limits reopen --all`.")
	}
	for i := 0; i < len(orgs) && err == nil; i++ {
		err = e.heldOf(ctx, r, s, orgs[i].ID)
	}
	if err != nil {
		r.Findings = nil
		r.Add(diagnose.Error, "cannot be checked: "+err.Error(), "")
	}
	if len(r.Findings) == 0 {
		r.Add(diagnose.OK, "no hold is overdue in "+figures.Plural(int64(len(orgs)), "org"), "")
	}
}

func (e *examination) heldOf(ctx context.Context, r *diagnose.Report, s *budget.Store, org string) error {
	n, err := s.Expiry.Overdue(ctx, org, e.cfg.Store.HoldLease+heldTooLong)
	if err != nil {
		return err
	}
	if n > 0 {
		r.Add(diagnose.Error, fmt.Sprintf("org %s: %s not released a minute after expiry", org,
			figures.Plural(int64(n), "hold")), "Start a proxy or worker, which releases them, and check that the clocks agree.")
	}
	late, err := s.Ledger.Reconcile(ctx, org, ledger.MostReconcile)
	if len(late) > 0 {
		r.Add(diagnose.Warning, fmt.Sprintf("org %s: %s arrived too late to be booked automatically", org,
			figures.Plural(int64(len(late)), "charge")),
			"List them with `llmguard usage reconcile`, then charge or drop each.")
	}
	return err
}

// leftovers names the files of features that this version does not have. A directory or bucket
// that cannot be listed has none: a credential for exports may only write.
func leftovers(ctx context.Context, e *examination, r *diagnose.Report) {
	old, err := finance.Leftovers(ctx, e.cfg.Finance.Export.To)
	if err == nil && len(old) > 0 {
		r.Add(diagnose.Warning, fmt.Sprintf("finance.export.to: Parquet files that are no longer updated: %d, such as %s",
			len(old), old[0]), "Let their readers use the CSV files, and delete them: "+removed.Parquet+".")
	}
}
