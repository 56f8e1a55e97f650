package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
)

func exportCommand() *cobra.Command {
	var f usageFlags
	var only filter
	c := &cobra.Command{
		Use: "export", Short: "Export ledger entries, oldest first", Args: cobra.NoArgs,
		Long: "Exports the entries in Redis. To keep entries longer, set ledger.export_dir: proxies and workers then append every entry\n" +
			"to files before it is trimmed.",
		Example: "  llmguard usage export --from 2026-11 --to 2026-11 --out november.jsonl\n" +
			"  llmguard usage export -o csv --days 7 --out week.csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return exportEntries(c.Context(), &f, &only, c.OutOrStdout())
		},
	}
	f.add(c, "jsonl", "csv")
	f.period.add(c)
	only.add(c)
	return c
}

func exportEntries(ctx context.Context, f *usageFlags, only *filter, w io.Writer) error {
	l, from, to, err := f.filtered(ctx, only)
	if err != nil {
		return err
	}
	defer l.close()
	out := bufio.NewWriter(w)
	if f.output == "csv" {
		table := ledger.NewEntryCSV(out)
		err = l.Entries(ctx, from, to, func(e ledger.Entry) error { return table.Entry(&e) })
		err = cmp.Or(err, table.End())
	} else {
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		err = l.Entries(ctx, from, to, func(e ledger.Entry) error { return lines.Encode(e) })
	}
	return cmp.Or(err, out.Flush())
}
