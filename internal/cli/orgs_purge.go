package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/identity"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/orgdata"
	"github.com/llmguard/llmguard/top"
)

type purgeFlags struct {
	path, reason string
	yes, ledger  bool
}

func orgsPurgeCommand() *cobra.Command {
	var f purgeFlags
	c := &cobra.Command{
		Use: "purge ORG", Short: "Remove everything that is kept of a disabled org", Args: cobra.ExactArgs(1),
		Long: "Removes the org's users, keys, limits with their use, overrides and credentials, its jobs, batches, files and stored\n" +
			"responses, and the org itself. Its ledger, daily sums and corrections stay, unless --ledger is said; what administrators\n" +
			"did with it stays in the audit. It is refused while the org stands in the configuration file or is not disabled, and while\n" +
			"calls, jobs or batches of it have not ended. Cut off in the middle it is finished by the same command. Without --yes it\n" +
			"only says what there is. `orgs export` first keeps what goes. Needs the configuration file, and works on its Redis and\n" +
			"files.store itself.",
		Example: "  llmguard orgs disable acme\n  llmguard orgs export acme --out acme.jsonl\n  llmguard orgs purge acme --yes --reason 'contract ended'",
		RunE: func(c *cobra.Command, args []string) error {
			return purgeOrg(c.Context(), &f, args[0], c.OutOrStdout())
		},
	}
	configFlag(c, &f.path)
	c.Flags().BoolVar(&f.yes, "yes", false, "really")
	c.Flags().BoolVar(&f.ledger, "ledger", false, "the ledger, daily sums and corrections too")
	c.Flags().StringVar(&f.reason, "reason", "", "why; one line, kept in the audit")
	return c
}

func purgeOrg(ctx context.Context, f *purgeFlags, org string, w io.Writer) error {
	cfg, err := config.Load(f.path)
	if err != nil {
		return err
	}
	if !cfg.Redis.Configured() {
		return app.ErrNoStore
	}
	if !identity.ValidID(org) {
		return fmt.Errorf("%s is no id of an org", top.Printable(org))
	}
	if slices.ContainsFunc(cfg.Orgs, func(o config.Org) bool { return o.ID == org }) {
		return fmt.Errorf("org %s stands in %s: take it out of the file, and reload, first", org, f.path)
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	ids := identity.New(rdb, identity.Options{Log: slog.New(slog.DiscardHandler)})
	if err := ids.Load(ctx); err != nil {
		return err
	}
	if t := ids.Snapshot().Tenants[org]; t != nil && t.Org != nil && (t.Org.Disabled == nil || !*t.Org.Disabled) {
		return fmt.Errorf("org %s is not disabled: `llmguard orgs disable %s` first", org, org)
	}
	p := &orgdata.Purge{Redis: rdb, Identity: ids, Org: org, Ledger: f.ledger}
	if p.Blobs = app.Blobs(ctx, cfg, rdb); p.Blobs != nil {
		defer p.Blobs.Close()
	}
	return f.run(ctx, p, w)
}

func (f *purgeFlags) run(ctx context.Context, p *orgdata.Purge, w io.Writer) error {
	found, err := p.Look(ctx)
	if err != nil {
		return err
	}
	kept := ""
	if !f.ledger {
		kept = "; what there is of its ledger stays (--ledger)"
	}
	if !found.Any() {
		fmt.Fprintf(w, "nothing is left of org %s%s\n", p.Org, kept)
		return nil
	}
	what := fmt.Sprintf("%d records, %d jobs, %d batches, %d files, %d keys of Redis", found.Records, found.Jobs, found.Batches, found.Files, found.Keys)
	if !f.yes {
		return fmt.Errorf("this removes org %s for good: %s%s; say --yes if you mean it", p.Org, what, kept)
	}
	if err := p.Run(ctx, identity.AuditEntry{Actor: "local:" + (&who{}).name(), Reason: f.reason}, found); err != nil {
		return fmt.Errorf("org %s is not removed completely; the same command goes on: %w", p.Org, err)
	}
	fmt.Fprintf(w, "removed org %s: %s%s\n", p.Org, what, kept)
	return nil
}
