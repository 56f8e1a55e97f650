package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/internal/removed"
)

// exitIncomplete is the exit code if an export was written that lacks something.
const exitIncomplete = 3

// financeFlags are shared by the exports for accountants.
type financeFlags struct {
	usageFlags
	month, format, to string
}

func (f *financeFlags) add(c *cobra.Command, formats ...string) {
	f.usageFlags.add(c)
	p := c.Flags()
	p.StringVar(&f.month, "month", "", "the month, such as 2026-11, in UTC (default: the previous month)")
	p.StringVar(&f.format, "format", formats[0], "format: "+strings.Join(formats, " or "))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	p.StringVar(&f.to, "to", "",
		"a file, a directory (ending with /), or s3://bucket/prefix?region=... (default: standard output)")
}

func focusCommand() *cobra.Command {
	var f financeFlags
	var by, account string
	c := &cobra.Command{
		Use: "focus", Short: "Export a month in the format of FOCUS 1.2", Args: cobra.NoArgs,
		Long: "Writes one row for each day, provider, model and token class, in the columns of the FinOps Open Cost and Usage\n" +
			"Specification (FOCUS) 1.2. The costs of all rows add up to the ledger exactly.\n\n" +
			"With a directory or a bucket as --to, every org gets a file focus-ORG-MONTH.csv, which replaces an older one.\n" +
			"Exit code 3: a file was written, but the ledger no longer has all that belongs into it; the message says what.",
		Example: "  llmguard usage focus --month 2026-11 --org acme --to november.csv\n" +
			"  llmguard usage focus --by user,label:project --to exports/\n" +
			"  llmguard usage focus --to 's3://finance/llm?region=eu-west-1'",
		RunE: func(c *cobra.Command, _ []string) error {
			q := url.Values{"by": {by}, "billing_account": {account}}
			return f.export(c, "focus", q, "csv")
		},
	}
	f.add(c, "csv")
	c.Flags().StringVar(&by, "by", "", "also split by any of user, key, endpoint and label:NAME, separated by commas")
	c.Flags().StringVar(&account, "billing-account", "", "the BillingAccountId (default: the id of the provider)")
	return c
}

func statementCommand() *cobra.Command {
	var f financeFlags
	c := &cobra.Command{
		Use: "statement", Short: "Write a month's statement of an org", Args: cobra.NoArgs,
		Long: "Writes what an org spent in a month: by day, class of tokens, model, user, key and label, with corrections and average\n" +
			"prices. The HTML form is one page without scripts, to read or to print. All sums equal the ledger's exactly.\n\n" +
			"With a directory or a bucket as --to, every org gets a file statement-ORG-MONTH.html, which replaces an older one.\n" +
			"Exit code 3: a file was written, but the ledger no longer has all that belongs into it; the message says what.",
		Example: "  llmguard usage statement --org acme --month 2026-11 --to november.html\n" +
			"  llmguard usage statement --format csv --to statements/",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.export(c, "statement", url.Values{}, "html", "csv")
		},
	}
	f.add(c, "html", "csv")
	return c
}

// export fetches what the API calls `what` for each org, and stores it.
func (f *financeFlags) export(c *cobra.Command, what string, q url.Values, formats ...string) error {
	if f.format == "parquet" {
		return misused("--format: %s", removed.Parquet)
	}
	if !slices.Contains(formats, f.format) {
		return misused("--format %s: expected %s", f.format, strings.Join(formats, " or "))
	}
	q.Set("month", f.month)
	q.Set("format", f.format)
	l, err := f.open(c.Context(), true)
	if err != nil {
		return err
	}
	defer l.close()
	into, err := f.destination(c, len(l.orgs))
	if err != nil {
		return err
	}
	incomplete := false
	for _, org := range l.orgs {
		note, lacks, err := l.store(c.Context(), pathOf("orgs", org, what)+"?"+q.Encode(), into)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.ErrOrStderr(), org+": "+note)
		incomplete = incomplete || lacks
	}
	if incomplete {
		return exit(exitIncomplete)
	}
	return nil
}

// destination stores a file under the name that the API gives it.
type destination func(ctx context.Context, name string, from io.Reader) (where string, err error)

func (f *financeFlags) destination(c *cobra.Command, orgs int) (destination, error) {
	switch {
	case strings.HasPrefix(f.to, "s3://") || isDirectory(f.to):
		return toStore(c.Context(), f.to)
	case orgs > 1:
		return nil, misused("--to: %d orgs need a file each. Name a directory, ending with /, or one --org", orgs)
	case f.to == "":
		return func(_ context.Context, _ string, from io.Reader) (string, error) {
			_, err := io.Copy(c.OutOrStdout(), from)
			return "", err
		}, nil
	}
	return func(_ context.Context, _ string, from io.Reader) (string, error) {
		return f.to, intoFile(f.to, copyOf(from))
	}, nil
}

func copyOf(from io.Reader) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	}
}

func isDirectory(name string) bool {
	if strings.HasSuffix(name, "/") {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func toStore(ctx context.Context, to string) (destination, error) {
	store, err := finance.OpenStore(ctx, to)
	if err != nil {
		return nil, misused("--to: %v", err)
	}
	return func(ctx context.Context, name string, from io.Reader) (string, error) {
		return store.Put(ctx, name, copyOf(from))
	}, nil
}

// store stores a file of the API, and returns what to say about it.
func (a *adminClient) store(
	ctx context.Context, path string, into destination,
) (note string, incomplete bool, err error) {
	resp, err := a.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	_, name, ok := strings.Cut(resp.Header.Get("Content-Disposition"), `filename="`)
	name = strings.TrimSuffix(name, `"`)
	if !ok || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return "", false, errors.New("the admin listener returned no file; is it an older llmguard?")
	}
	where, err := into(ctx, name, resp.Body)
	if err != nil {
		return "", false, fmt.Errorf("%s was not written: %w", name, err)
	}
	h := resp.Header
	note = fmt.Sprintf("%s rows, $%s", h.Get("Llmguard-Rows"), h.Get("Llmguard-Total-Usd"))
	if where != "" {
		note = where + ": " + note
	}
	if h.Get("Llmguard-Provisional") != "" {
		note += ", provisional: the month is not over"
	}
	lacks := h.Get("Llmguard-Incomplete")
	if lacks != "" {
		note += ", incomplete: " + lacks
	}
	return note, lacks != "", nil
}
