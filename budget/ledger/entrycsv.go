package ledger

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// CellText escapes text for spreadsheets, where =, + and the like start a formula.
func CellText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// EntryCSV writes ledger entries as CSV. Amounts are exact decimals in USD.
type EntryCSV struct{ escape.CSV }

// NewEntryCSV writes the head of the table.
func NewEntryCSV(w io.Writer) *EntryCSV {
	out := &EntryCSV{escape.NewCSV(w)}
	_ = out.Write([]string{
		"ledger_id", "time", "org", "user", "key", "model", "provider", "endpoint", "kind", "id", "attempt", "corrects",
		"cost_usd", "total_usd", "overrun_usd", "estimated", "outcome", "status", "service_tier",
		"input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
		"input_usd", "cached_input_usd", "cache_write_usd", "output_usd", "fees_usd",
		"price", "job", "upstream_id", "by", "reason",
		"ip", "held_usd", "held_tokens", "held_us", "quota_tokens", "waited_ms", "took_ms", "class", "stream", "labels",
		"request", "run",
	})
	return out
}

// Entry writes an entry.
func (w *EntryCSV) Entry(e *Entry) error {
	u, c := e.Usage, e.Costs
	return w.Write([]string{
		e.LedgerID, e.At.UTC().Format(time.RFC3339Nano), e.Org, CellText(e.User), CellText(e.Key), CellText(e.Model),
		CellText(e.Provider),
		e.Endpoint,
		e.Kind, e.ID, strconv.Itoa(e.Attempt), e.Corrects,
		e.Cost.Decimal(), e.Total.Decimal(), e.Overrun.Decimal(), strconv.FormatBool(e.Estimated), e.Outcome,
		strconv.Itoa(e.Status), CellText(e.ServiceTier),
		whole(u.Input), whole(u.CachedInput), whole(u.CacheWrite + u.CacheWrite1h), whole(u.Output), whole(u.Reasoning),
		c.Input.Decimal(), c.CachedInput.Decimal(), c.CacheWrite.Decimal(), c.Output.Decimal(), c.Fees.Decimal(),
		CellText(e.PriceVersion), e.JobID, CellText(e.UpstreamID), CellText(e.By), CellText(e.Reason),
		e.IP, pricing.Nano(e.HeldNano).Decimal(), whole(e.HeldTokens), whole(e.HeldUS), whole(e.QuotaTokens),
		whole(e.WaitedMS), whole(e.TookMS),
		e.Class, strconv.FormatBool(e.Stream), string(e.Labels), e.Request, string(e.Run),
	})
}

// End flushes the writer and returns its error.
func (w *EntryCSV) End() error {
	w.Flush()
	return w.Error()
}
