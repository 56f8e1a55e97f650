package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// exitBroken is the exit code for a valid configuration when something it depends on fails, or
// a process that runs it. An invalid configuration exits with 1.
const exitBroken = 2

type checkOptions struct {
	path, output string
	live, strict bool
}

func checkCommand() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use: "check", Short: "Check a configuration file and, with --live, Redis and the providers", Args: cobra.NoArgs,
		Long: "Checks the file and what it needs on this machine: certificates, writable directories, free ports. These findings are\n" +
			"warnings, because the file may be for another machine; with --live they are errors. A port used by llmguard with this file\n" +
			"is fine.\n\n" +
			"--live also tests Redis (version, eviction, persistence, memory, latency, clock) and every provider (reachability,\n" +
			"credential, clock, prices of its models). It costs nothing and changes nothing. Without --live, the only connection is to\n" +
			"admin.listen, if a port is in use.\n\n" +
			"Exit codes: 0 no errors; 1 the configuration is invalid or cannot be read; 2 the configuration is valid, but something\n" +
			"that it needs has failed (with --strict: or there are warnings).",
		Example: "  llmguard check -c llmguard.yaml\n" +
			"  llmguard check --live -o json | jq '.findings[] | select(.level != \"ok\")'",
	}
	configFlag(c, &o.path)
	c.Flags().BoolVar(&o.live, "live", false, "also test Redis and the providers")
	c.Flags().BoolVar(&o.strict, "strict", false, "treat warnings as errors")
	formatFlag(c, &o.output, plainFormats...)
	c.RunE = func(c *cobra.Command, _ []string) error { return runCheck(c.Context(), o, c.OutOrStdout()) }
	return c
}

func runCheck(ctx context.Context, o checkOptions, w io.Writer) error {
	cfg, policy, err := app.Check(o.path)
	if err != nil {
		if found := configFindings(err); found != nil && o.output != "table" {
			if err := render(w, o.output, newExamination(found), nil); err != nil {
				return err
			}
			return exit(1)
		}
		return err
	}
	found := []diagnose.Finding{{Area: "config", Level: diagnose.OK, What: contents(cfg)}}
	found = append(found, app.CheckExposure(cfg)...)
	found = append(found, app.CheckPrices(cfg, policy, time.Now())...)
	found = append(found, app.CheckMistakes(cfg, policy, time.Now())...)
	found = append(found, app.CheckBounds(cfg, policy, time.Now())...)
	found = append(found, machine(ctx, cfg, o.live)...)
	if o.live {
		found = append(found, live(ctx, cfg, policy)...)
	}
	app.LocateFindings(cfg, found)
	r := newExamination(found)
	if err := render(w, o.output, r, func(w io.Writer) error {
		if err := r.table(w); err != nil {
			return err
		}
		state := "is valid"
		if r.Errors > 0 {
			state = "parses, but llmguard would not start"
		}
		_, err := fmt.Fprintf(w, "\n%s %s: %s\n", o.path, state, r.verdict())
		return err
	}); err != nil {
		return err
	}
	if r.Errors > 0 || o.strict && r.Warnings > 0 {
		return exit(exitBroken)
	}
	return nil
}

// machine checks this machine. Without --live, its findings are at most warnings, because the
// configuration may be meant for another machine.
func machine(ctx context.Context, cfg *config.Config, live bool) []diagnose.Finding {
	level := diagnose.Warning
	if live {
		level = diagnose.Error
	}
	return app.CheckMachine(cfg, level, func() bool { return runs(ctx, cfg) })
}

// ownTime is how long a local llmguard has to respond.
const ownTime = 2 * time.Second

// runs reports whether the process listening at admin.listen is llmguard running this file.
func runs(ctx context.Context, cfg *config.Config) bool {
	urls, client, err := (&doctorOptions{}).listeners(cfg)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	p, err := diagnose.Ask(ctx, client, urls[0], cfg.Admin.MetricsToken.Reveal())
	return err == nil && p.Hash() == cfg.Hash()
}

// contents summarizes a configuration.
func contents(cfg *config.Config) string {
	users := 0
	keys := 0
	limits := 0
	for _, o := range cfg.Orgs {
		users, limits = users+len(o.Users), limits+len(o.Limits)
		for _, u := range o.Users {
			keys, limits = keys+len(u.Keys), limits+len(u.Limits)
		}
	}
	return fmt.Sprintf("%s, %s, %s, %s, %s", plural(len(cfg.Providers), "provider"), plural(len(cfg.Orgs), "org"),
		plural(users, "user"), plural(keys, "key"), plural(limits, "limit"))
}

// live checks the services that the configuration uses.
func live(ctx context.Context, cfg *config.Config, policy *guard.Policy) []diagnose.Finding {
	found := store(ctx, cfg)
	if cfg.Store.JournalDir == "" {
		found = append(found, diagnose.Finding{
			Area: "journal", Level: diagnose.Warning,
			What: "store.journal_dir is not set: if Redis is down, charges of finished calls live in memory and are lost " +
				"on exit",
			Fix: "Set it to a directory on persistent storage.",
		})
	}
	return append(found, diagnose.Upstreams(ctx, policy)...)
}

// storeTime is how long Redis has to answer all questions.
const storeTime = 15 * time.Second

// store checks Redis.
func store(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	if !cfg.Redis.Configured() {
		return []diagnose.Finding{{
			Area: "redis", Level: diagnose.Error,
			What: "no Redis configured; it stores limits, jobs and the ledger", Fix: "Set redis.addresses or redis.url.",
		}}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return []diagnose.Finding{{Area: "redis", Level: diagnose.Error, What: err.Error()}}
	}
	defer rdb.Close()
	found, facts := diagnose.Store(ctx, rdb)
	if facts == nil {
		return found
	}
	found = append(found, diagnose.Durability(cfg.Store.Durability, facts)...)
	return append(found, diagnose.StoreMore(ctx, rdb, facts, cfg.Store.Deadline)...)
}
