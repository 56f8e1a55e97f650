package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/checks"
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
			"warnings, because the file may be for another machine; with --live they are errors. A port used by this deployment\n" +
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
	load := config.LoadOperator
	if o.live {
		load = config.Load
	}
	cfg, policy, err := app.Check(o.path, load)
	if err != nil {
		if found := configFindings(err); found != nil && o.output != "table" {
			if err := render(w, o.output, newExamination(found), nil); err != nil {
				return err
			}
			return exit(1)
		}
		return err
	}
	ours := func(ctx context.Context, path string) bool { return runs(ctx, cfg, path) }
	found := checks.File(ctx, cfg, policy, o.live, ours)
	return newExamination(found).show(w, o.output, o.strict, func(r examination) string {
		state := "is valid"
		if r.Errors > 0 {
			state = "parses, but llmguard would not start"
		}
		return fmt.Sprintf("%s %s: %s", o.path, state, r.verdict())
	})
}

// ownTime is how long a local llmguard has to respond.
const ownTime = 2 * time.Second

// runs reports whether a listener of the configuration, listen or admin.listen, belongs to its own deployment, perhaps
// with an earlier file.
func runs(ctx context.Context, cfg *config.Config, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	all, err := (&doctorOptions{}).processes(ctx, cfg)
	if err != nil || all[0].Err != nil || all[0].Deployment() != cfg.Deployment() {
		return false
	}
	if path == "admin.listen" {
		return true
	}
	client, err := ownClient(cfg.TLS, ownTime)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	return diagnose.ServesCalls(ctx, client, listenerURL(cfg.Listen, cfg.TLS))
}
