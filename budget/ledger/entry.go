package ledger

import (
	"encoding/json"
	"fmt"
	"time"

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
