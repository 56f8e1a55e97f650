package budget

import (
	"encoding/json"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Raise changes the amount of a limit until it ends; then the old amount applies again, with
// everything that was used meanwhile. It ends by the clock of the store.
type Raise struct {
	Only   string // if set, the only user, key or address it applies to
	Add    int64  // added to the amount; may be negative
	Amount int64  // replaces the amount if above 0; the last one wins
	Until  time.Time
}

// AmountFor returns the limit's amount for a call at an instant, including raises.
func (l *Limit) AmountFor(c ledger.Call, at time.Time) int64 {
	if len(l.Raises) == 0 {
		return l.Shape.Amount
	}
	own := *l
	own.Raises = l.raisesOf(c)
	n, _ := own.amountAt(at)
	return n
}

// raisesOf returns the raises that apply to the call's subject.
func (l *Limit) raisesOf(c ledger.Call) []Raise {
	var out []Raise
	for _, r := range l.Raises {
		if l.names(r.Only, c) {
			out = append(out, r)
		}
	}
	return out
}

// amountAt returns the amount at an instant, and when the first of the raises in it ends; the zero
// time if there are none. All raises must be of one subject.
func (l *Limit) amountAt(at time.Time) (amount int64, until time.Time) {
	amount = l.Shape.Amount
	var add int64
	for _, r := range l.Raises {
		if !at.Before(r.Until) {
			continue
		}
		if r.Amount > 0 {
			amount = r.Amount
		}
		add = max(-MaxAmount, min(add+r.Add, MaxAmount))
		if until.IsZero() || r.Until.Before(until) {
			until = r.Until
		}
	}
	return max(0, min(amount+add, MaxAmount)), until
}

// statusJSON is the JSON form of a Status.
type statusJSON struct {
	Limit     string     `json:"limit"`
	Subject   Subject    `json:"subject"`
	Metric    Metric     `json:"metric"`
	Unit      string     `json:"unit"` // of the amounts: nano_usd, tokens, requests or calls
	Mode      Mode       `json:"mode"`
	Amount    int64      `json:"amount"`
	Used      int64      `json:"used"`
	Held      int64      `json:"held"`
	Remaining int64      `json:"remaining"`
	Reset     *float64   `json:"reset_seconds"` // until nothing is used, without further use; null: never
	Base      int64      `json:"base_amount"`   // Amount without overrides
	Until     *time.Time `json:"override_until"`
	Closed    *time.Time `json:"closed_until,omitempty"` // after the store lost its data
}

// units are the metrics' units in JSON.
var units = map[Metric]string{Cost: "nano_usd", Tokens: "tokens", Requests: "requests", Concurrency: "calls"}

// MarshalJSON encodes the status in the form of the API.
func (s Status) MarshalJSON() ([]byte, error) {
	j := statusJSON{
		Limit: s.LimitID, Subject: s.Subject, Metric: s.Metric, Unit: units[s.Metric], Mode: s.Mode, Amount: s.Amount,
		Used: s.Used, Held: s.Held, Remaining: s.Remaining, Reset: secondsJSON(s.Reset), Base: s.Amount - s.Raised,
	}
	if !s.RaisedUntil.IsZero() {
		j.Until = &s.RaisedUntil
	}
	if !s.ClosedUntil.IsZero() {
		j.Closed = &s.ClosedUntil
	}
	return json.Marshal(j)
}
