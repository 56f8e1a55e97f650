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
		Use: "export ORG", Short: "Export all data of an org as JSON lines",
		Args: cobra.ExactArgs(1),
		Long: "Every line is {\"type\": ..., \"data\": ...}. The first is a header with the schema version. Then follow the org as it is in\n" +
			"force, its users, keys, limits, overrides and credentials (without secrets or hashes), its ledger, daily sums and\n" +
			"corrections, its jobs, batches and files (without contents), and its audit entries. The last line has type \"end\" and the\n" +
			"number of lines; without it the export is incomplete.\n\n" +
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

// intoFile writes a file that only its owner can read, completely or not at all.
func intoFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	var where *fs.PathError
	if errors.As(err, &where) { // the temporary name means nothing to the user
		return fmt.Errorf("cannot write %s: %w", name, where.Err)
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
