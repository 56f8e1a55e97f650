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
	found := checks.File(ctx, cfg, policy, o.live, func(ctx context.Context) bool { return runs(ctx, cfg) })
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

// runs reports whether the process listening at admin.listen is llmguard running this file.
func runs(ctx context.Context, cfg *config.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, ownTime)
	defer cancel()
	all, err := (&doctorOptions{}).processes(ctx, cfg)
	return err == nil && all[0].Err == nil && all[0].Hash() == cfg.Hash()
}
