package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
)

// exit ends the program with this exit code; the messages have been printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCode prints why a command failed and returns its exit code.
func exitCode(w io.Writer, err error) int {
	var code exit
	if errors.As(err, &code) {
		return int(code)
	}
	complain(w, err)
	var wrong *mistake
	if errors.As(err, &wrong) {
		return exitMistake
	}
	return 1
}

// complain prints an error, and the page that explains its code if it has one. Each configuration error is on its
// own line that starts with the file name, as editors expect.
func complain(w io.Writer, err error) {
	var wrong config.Errors
	if errors.As(err, &wrong) {
		fmt.Fprintln(w, wrong)
		return
	}
	fmt.Fprintln(w, "llmguard:", err)
	var refused *refusal
	if errors.As(err, &refused) && refused.code != "" {
		fmt.Fprintf(w, "`llmguard docs errors#%s` explains this error\n", refused.code)
	}
	if errors.Is(err, tenants.ErrUnavailable) {
		fmt.Fprintln(w, diagnose.RedisFix(err))
	}
}

// wantFile documents what to do when the command's configuration file does not exist.
func wantFile(c *cobra.Command, path *string) {
	c.Long = cmp.Or(c.Long, c.Short) +
		"\n\nIt reads the configuration file and does not work over the network (LLMGUARD_ADMIN_URL and contexts do not apply)."
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if named, _ := c.Flags().GetString("context"); named != "" {
			return fmt.Errorf("`%s` reads the configuration file and does not work over the network; remove --context",
				c.CommandPath())
		}
		if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) {
			return noConfig{*path, c.CommandPath()}
		}
		return nil
	}
}

// noConfig is the error for a missing configuration file.
type noConfig struct{ path, command string }

func (e noConfig) Error() string {
	return fmt.Sprintf("%s not found. Use --config FILE (`llmguard dev` writes one and prints its path), or "+
		"create one with `llmguard init`. `%s` needs this file and does not work over the network", e.path, e.command)
}

// plural formats a count: "1 org", "2 orgs".
func plural(n int, thing string) string { return figures.Plural(int64(n), thing) }
