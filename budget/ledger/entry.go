package ledger

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// Kinds of ledger entries.
const (
	KindSettle = "settle" // a call that was settled
	KindExpire = "expire" // a hold whose process died; always estimated
	KindLate   = "late"   // a settle after the hold had expired, was voided or lost
	KindVoid   = "void"   // an expired hold whose charge was reversed
	KindAdjust = "adjust" // a manual correction with its own ID
	KindCharge = "charge" // a charge from the reconciliation list, made manually
)

// Entry is one line of an org's ledger. The sum of Cost over all entries is what the org was
// charged: entries never change; later ones correct earlier ones.
type Entry struct {
	// LedgerID is the entry's position in the org's ledger, "<Unix ms>-<n>". It increases from
	// entry to entry. If the org is spread, "<Unix ms>-<n>.<part>", and increases in each part.
	LedgerID string `json:"ledger_id,omitempty"`
	Call
	Details
	Correction

	Kind    string       `json:"kind"`
	At      time.Time    `json:"at"`
	Cost    pricing.Nano `json:"cost_nano"`    // what this entry adds to the bill; negative for a correction
	Total   pricing.Nano `json:"total_nano"`   // total charge for the call
	Overrun pricing.Nano `json:"overrun_nano"` // the part of Total above the hold

	listed string // text on the reconciliation list
}

// Details describe how a call went, as known to its holder.
type Details struct {
	Estimated   bool   `json:"estimated,omitempty"`
	Outcome     string `json:"outcome,omitempty"`
	Status      int    `json:"status,omitempty"`
	UpstreamID  string `json:"upstream_id,omitempty"` // the provider's x-request-id
	AnswerID    string `json:"answer_id,omitempty"`   // the id in the answer, such as chatcmpl-...
	ServiceTier string `json:"service_tier,omitempty"`
	WaitedMS    int64  `json:"waited_ms,omitempty"`
	TookMS      int64  `json:"took_ms,omitempty"`
	// HeldNano and HeldTokens are what the limits finally held for the call, and HeldUS when that
	// began, in Unix microseconds of Redis's clock. QuotaTokens is what was booked on the
	// provider's quota, if that is not HeldTokens.
	HeldNano    int64 `json:"held_nano,omitempty"`
	HeldTokens  int64 `json:"held_tokens,omitempty"`
	HeldUS      int64 `json:"held_us,omitempty"`
	QuotaTokens int64 `json:"quota_tokens,omitempty"`
	// Class is async or batch for such jobs; empty for calls whose caller waits.
	Class  string `json:"class,omitempty"`
	Stream bool   `json:"stream,omitempty"`
	// Shadow lists the limits in shadow mode that would have refused the call.
	Shadow []Shadowed `json:"shadow,omitempty"`
	Usage  Usage      `json:"usage,omitzero"`
	Costs  Costs      `json:"costs_nano,omitzero"`
}

// Shadowed is what a limit in shadow mode would have done to a call.
type Shadowed struct {
	Limit string `json:"limit"`
	// Cap is set for a limit of a spend cap: the cap's String.
	Cap string `json:"cap,omitempty"`
	// WaitMS is how long the call would have waited if no other call had taken the capacity. Never
	// means that it would have been refused, because waiting does not help.
	WaitMS int64 `json:"wait_ms,omitempty"`
	Never  bool  `json:"never,omitempty"`
}

// Usage is [pricing.Usage] with JSON names.
type Usage struct {
	Input        int64 `json:"input,omitempty"`
	CachedInput  int64 `json:"cached_input,omitempty"`
	CacheWrite   int64 `json:"cache_write,omitempty"`
	CacheWrite1h int64 `json:"cache_write_1h,omitempty"`
	AudioIn      int64 `json:"audio_in,omitempty"`
	ImageIn      int64 `json:"image_in,omitempty"`
	Output       int64 `json:"output,omitempty"`
	Reasoning    int64 `json:"reasoning,omitempty"`
	AudioOut     int64 `json:"audio_out,omitempty"`
	ImageOut     int64 `json:"image_out,omitempty"`
	Requests     int64 `json:"requests,omitempty"`
	ToolCalls    int64 `json:"tool_calls,omitempty"`
	Images       int64 `json:"images,omitempty"`
	Characters   int64 `json:"characters,omitempty"`
	AudioMillis  int64 `json:"audio_ms,omitempty"`
	CachedAudio  int64 `json:"cached_audio_in,omitempty"`
	SearchUnits  int64 `json:"search_units,omitempty"`
}

// Costs is [pricing.Split] with JSON names: the parts of Entry.Total by class of tokens. It is zero
// if that is not known.
type Costs struct {
	Input       pricing.Nano `json:"input,omitempty"`
	CachedInput pricing.Nano `json:"cached_input,omitempty"`
	CacheWrite  pricing.Nano `json:"cache_write,omitempty"`
	Output      pricing.Nano `json:"output,omitempty"`
	Fees        pricing.Nano `json:"fees,omitempty"`
}

func decodeEntry(text string) (Entry, error) {
	var stored struct {
		Entry
		AtUS int64 `json:"at_us"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return Entry{}, fmt.Errorf("ledger: ledger entry %.200q: %w", text, err)
	}
	stored.At = time.UnixMicro(stored.AtUS)
	return stored.Entry, nil
}

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
