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

// exitBroken is the exit code for a configuration that is right and something it
// needs, or that runs by it, that is not. A wrong configuration is 1.
const exitBroken = 2

type checkOptions struct {
	path, output string
	live, strict bool
}

func checkCommand() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use: "check", Short: "Check a configuration file and, with --live, everything that it needs", Args: cobra.NoArgs,
		Long: "Reads the file, and what it needs of this machine: certificates, directories to write to, ports. Those findings are warnings,\n" +
			"because the file may be for another machine; with --live they are errors. A port that is taken by llmguard with this file is\n" +
			"in order. Without --live it connects to nothing but admin.listen, and to that only when a port is taken. With it, it also asks\n" +
			"Redis (version, eviction, persistence, memory, latency, clock) and every provider (reachable, credential, clock, prices of\n" +
			"its models); that costs nothing and changes nothing.\n\n" +
			"Exit codes: 0 all is well, perhaps with warnings; 1 the configuration is wrong or cannot be read;\n" +
			"2 the configuration is right, and something it needs is not (with --strict: or there are warnings).",
		Example: "  llmguard check -c llmguard.yaml\n" +
			"  llmguard check --live -o json | jq '.findings[] | select(.level != \"ok\")'",
	}
	configFlag(c, &o.path)
	c.Flags().BoolVar(&o.live, "live", false, "ask Redis and the providers, too")
	c.Flags().BoolVar(&o.strict, "strict", false, "warnings fail the check, too")
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
			state = "is valid, and would not work"
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

// machine looks at what this machine has. Without --live it need not be the one that the
// configuration is for, so that nothing of it is an error.
func machine(ctx context.Context, cfg *config.Config, live bool) []diagnose.Finding {
	level := diagnose.Warning
	if live {
		level = diagnose.Error
	}
	return app.CheckMachine(cfg, level, func() bool { return runs(ctx, cfg) })
}

// ownTime is what a llmguard on this machine gets to answer.
const ownTime = 2 * time.Second

// runs reports whether what answers at admin.listen is llmguard with this file.
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

// contents says in short what a configuration has.
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

// live asks what the configuration needs.
func live(ctx context.Context, cfg *config.Config, policy *guard.Policy) []diagnose.Finding {
	found := store(ctx, cfg)
	if cfg.Store.JournalDir == "" {
		found = append(found, diagnose.Finding{
			Area: "journal", Level: diagnose.Warning,
			What: "store.journal_dir is not set: ends of calls that Redis does not take are kept in memory only",
			Fix:  "Set it to a directory on a disk that outlives the process.",
		})
	}
	return append(found, diagnose.Upstreams(ctx, policy)...)
}

// storeTime is what Redis gets to answer all there is to ask.
const storeTime = 15 * time.Second

// store asks Redis.
func store(ctx context.Context, cfg *config.Config) []diagnose.Finding {
	if !cfg.Redis.Configured() {
		return []diagnose.Finding{{
			Area: "redis", Level: diagnose.Error,
			What: "none is configured, and without one nothing would be remembered", Fix: "Set redis.addresses or redis.url.",
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
