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
)

// exit ends the program with a code of its own; everything was said already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCode says why a command failed, and with what the program ends.
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

// complain prints why a command failed. What is wrong in a configuration
// stands on lines of its own that begin with the file's name, where editors and
// people look for it.
func complain(w io.Writer, err error) {
	var wrong config.Errors
	if errors.As(err, &wrong) {
		fmt.Fprintln(w, wrong)
		return
	}
	fmt.Fprintln(w, "llmguard:", err)
}

// wantFile makes a command say what to do when its configuration file does not
// exist.
func wantFile(c *cobra.Command, path *string) {
	c.Long = cmp.Or(c.Long, c.Short) +
		"\n\nIt works on the configuration file, not over the network (LLMGUARD_ADMIN_URL and contexts do not apply)."
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if named, _ := c.Flags().GetString("context"); named != "" {
			return fmt.Errorf("`%s` works on the configuration file, not over the network: --context does not apply",
				c.CommandPath())
		}
		if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) {
			return noConfig{*path, c.CommandPath()}
		}
		return nil
	}
}

// noConfig says that there is no configuration file of this name, which a command works on.
type noConfig struct{ path, command string }

func (e noConfig) Error() string {
	return fmt.Sprintf("there is no configuration file %s; name yours with --config, or write one with `llmguard init` "+
		"(`llmguard dev` needs none). `%s` works on this file, not over the network", e.path, e.command)
}

// plural words a number of things: "1 org", "2 orgs".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
