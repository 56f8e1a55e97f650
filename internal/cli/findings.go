package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/escape"
)

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

// verdict summarizes the counts.
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

// table prints findings, each followed by its fix.
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
