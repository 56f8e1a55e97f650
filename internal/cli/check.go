package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/checks"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/escape"
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

// examination is the output of check and doctor.
type examination struct {
	OK       bool               `json:"ok"`
	Errors   int                `json:"errors"`
	Warnings int                `json:"warnings"`
	Findings []diagnose.Finding `json:"findings"`
}

func newExamination(found []diagnose.Finding) examination {
	r := examination{
		Errors: diagnose.Count(found, diagnose.Error), Warnings: diagnose.Count(found, diagnose.Warning),
		Findings: found,
	}
	r.OK = r.Errors == 0
	return r
}

func (r examination) verdict() string {
	switch {
	case r.Errors+r.Warnings == 0:
		return "no problems found"
	case r.Errors == 0:
		return plural(r.Warnings, "warning")
	case r.Warnings == 0:
		return plural(r.Errors, "error")
	}
	return plural(r.Errors, "error") + ", " + plural(r.Warnings, "warning")
}

// show prints the findings, in a table followed by a last line, and returns the exit code as an error.
func (r examination) show(w io.Writer, output string, strict bool, last func(examination) string) error {
	if err := render(w, output, r, func(w io.Writer) error {
		if err := r.table(w); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\n%s\n", last(r))
		return err
	}); err != nil {
		return err
	}
	if r.Errors > 0 || strict && r.Warnings > 0 {
		return exit(exitBroken)
	}
	return nil
}

// marks are the labels of the levels: plain, and with color for terminals.
var marks = map[diagnose.Level][2]string{
	diagnose.OK:      {"ok     ", "\x1b[32mok\x1b[0m     "},
	diagnose.Warning: {"warning", "\x1b[33mwarning\x1b[0m"},
	diagnose.Error:   {"ERROR  ", "\x1b[31;1mERROR\x1b[0m  "},
}

func (r examination) table(w io.Writer) error {
	colour, wide := 0, 0
	if coloured(w) {
		colour = 1
	}
	for _, f := range r.Findings {
		wide = max(wide, len(f.Area))
	}
	for _, f := range r.Findings {
		what := escape.Text(f.What)
		if f.Line > 0 && f.Level != diagnose.OK {
			what = fmt.Sprintf("%s:%d:%d: %s\n%s", f.File, f.Line, f.Column, what, f.Excerpt)
		}
		if _, err := fmt.Fprintf(w, "%s  %-*s  %s\n", marks[f.Level][colour], wide, f.Area, what); err != nil {
			return err
		}
		if f.Fix != "" {
			if _, err := fmt.Fprintf(w, "%s-> %s\n", strings.Repeat(" ", 11+wide), f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}

// coloured reports whether w is a terminal and the user has not disabled color.
func coloured(w io.Writer) bool {
	f, ok := behind(w).(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(f.Fd())
}

// configFindings returns the errors of a configuration as findings, or nil for any other error.
func configFindings(err error) []diagnose.Finding {
	var wrong config.Errors
	if !errors.As(err, &wrong) {
		return nil
	}
	var out []diagnose.Finding
	for _, e := range wrong {
		out = append(out, diagnose.Finding{
			Area: "config", Level: diagnose.Error, What: e.Message, File: e.File, Line: e.Line, Column: e.Column, Path: e.Path,
		})
	}
	return out
}
