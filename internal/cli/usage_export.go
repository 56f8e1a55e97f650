package cli

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
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
	if err := only.check(); err != nil {
		return err
	}
	from, to, err := f.period.bounds(time.Now())
	if err != nil {
		return err
	}
	l, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	out := bufio.NewWriter(w)
	lines, table := json.NewEncoder(out), (*entryCSV)(nil)
	lines.SetEscapeHTML(false)
	if f.output == "csv" {
		table = newEntryCSV(out)
	}
	for _, org := range l.orgs {
		err := l.Entries(ctx, org, from, to, func(e budget.Entry) error {
			switch {
			case !only.fits(e):
				return nil
			case table != nil:
				return table.write(e)
			default:
				return lines.Encode(e)
			}
		})
		if err != nil {
			return err
		}
	}
	if table != nil {
		if err := table.flush(); err != nil {
			return err
		}
	}
	return out.Flush()
}

// entryCSV writes ledger entries as CSV. Amounts are exact decimals in USD.
type entryCSV struct{ *csv.Writer }

func newEntryCSV(w io.Writer) *entryCSV {
	out := &entryCSV{csv.NewWriter(w)}
	_ = out.Write([]string{
		"ledger_id", "time", "org", "user", "key", "model", "provider", "endpoint", "kind", "id", "attempt", "corrects",
		"cost_usd", "total_usd", "overrun_usd", "estimated", "outcome", "status", "service_tier",
		"input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
		"input_usd", "cached_input_usd", "cache_write_usd", "output_usd", "fees_usd",
		"price", "job", "upstream_id", "by", "reason",
		"ip", "held_usd", "held_tokens", "held_us", "quota_tokens", "waited_ms", "took_ms", "class", "stream", "labels", "request",
	})
	return out
}

func (w *entryCSV) write(e budget.Entry) error {
	u, c := e.Usage, e.Costs
	return w.Write([]string{
		e.LedgerID, e.At.UTC().Format(time.RFC3339Nano), e.Org, cell(e.User), cell(e.Key), cell(e.Model), cell(e.Provider),
		e.Endpoint,
		e.Kind, e.ID, strconv.Itoa(e.Attempt), e.Corrects,
		plainUSD(e.Cost), plainUSD(e.Total), plainUSD(e.Overrun), strconv.FormatBool(e.Estimated), e.Outcome,
		strconv.Itoa(e.Status), cell(e.ServiceTier),
		whole(u.Input), whole(u.CachedInput), whole(u.CacheWrite + u.CacheWrite1h), whole(u.Output), whole(u.Reasoning),
		plainUSD(c.Input), plainUSD(c.CachedInput), plainUSD(c.CacheWrite), plainUSD(c.Output), plainUSD(c.Fees),
		cell(e.PriceVersion), e.JobID, cell(e.UpstreamID), cell(e.By), cell(e.Reason),
		e.IP, plainUSD(pricing.Nano(e.HeldNano)), whole(e.HeldTokens), whole(e.HeldUS), whole(e.QuotaTokens),
		whole(e.WaitedMS), whole(e.TookMS),
		e.Class, strconv.FormatBool(e.Stream), string(e.Labels), e.Request,
	})
}

// flush flushes the writer and returns its error.
func (w *entryCSV) flush() error {
	w.Flush()
	return w.Error()
}
