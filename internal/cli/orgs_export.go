package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func orgsExportCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "export ORG", Short: "Write everything that is kept of an org, as one stream of JSON lines",
		Args: cobra.ExactArgs(1),
		Long: "Every line is {\"type\": ..., \"data\": ...}: first a header with the schema's version, then the org as it is in force, its users,\n" +
			"keys, limits, overrides and credentials (never a secret or a hash), its ledger, daily sums and corrections, jobs, batches\n" +
			"and files without their contents, and what the audit says of it; at last a line \"end\" with how many lines there were.\n" +
			"A stream without it is not complete.\n\n" +
			adminHelp,
		Example: "  llmguard orgs export acme --out acme.jsonl\n" +
			"  llmguard orgs export acme | jq -c 'select(.type == \"key\").data'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			w := bufio.NewWriterSize(c.OutOrStdout(), 1<<16)
			err := a.lines(c.Context(), pathOf("orgs", args[0], "export"), func(line json.RawMessage) error {
				_, err := w.Write(append(line, '\n'))
				return err
			})
			return errors.Join(err, w.Flush())
		})
	}
	f.add(c, "jsonl")
	return c
}

// intoFile writes a file that only its owner reads, all of it or nothing.
func intoFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	var where *fs.PathError
	if errors.As(err, &where) { // the name of the part file means nothing to the user
		return fmt.Errorf("%s cannot be written: %w", name, where.Err)
	}
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed when all went well
	w := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
