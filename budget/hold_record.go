package budget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/pricing"
)

func validateCall(c ledger.Call) error {
	if !ledger.ValidOrg(c.Org) {
		return fmt.Errorf("budget: org id %q is empty or has braces or #", c.Org)
	}
	if _, ok := ledger.IDTime(c.ID); !ok {
		return fmt.Errorf("budget: call id %.40q does not begin with a time", c.ID)
	}
	for _, text := range []string{
		c.User, c.Key, c.IP, c.Model, c.Provider, c.Endpoint, c.PriceVersion, c.JobID, c.Batch, string(c.Labels), c.Request,
		string(c.Run),
	} {
		if strings.Contains(text, fieldSep) {
			return fmt.Errorf("budget: call %s: %q has a control character", c.ID, text)
		}
	}
	return nil
}

// Amounts is how much a call takes from limits, by metric; every call counts as one request.
type Amounts struct {
	Cost   pricing.Nano
	Tokens int64
}

func (a Amounts) validate(what string) error {
	if a.Cost < 0 || a.Cost > MaxAmount || a.Tokens < 0 || a.Tokens > MaxAmount {
		return fmt.Errorf("budget: %s of %d nano-USD and %d tokens is not in 0..%d", what, a.Cost, a.Tokens, int64(MaxAmount))
	}
	return nil
}

func (a Amounts) add(b Amounts) Amounts {
	return Amounts{Cost: a.Cost + b.Cost, Tokens: a.Tokens + b.Tokens}
}

// Hold is what a call has taken from its limits until it ends. It must not be used by more than one
// goroutine at a time.
type Hold struct {
	ID            string // call id / attempt
	Call          ledger.Call
	Max, Expected Amounts // grown by Extend
	At            time.Time
	Ends          time.Time // of the lease of a hold with Terms.Life
	Statuses      []Status  // of the limits after the hold, or after the last Extend
	Counters      []Status  // of the counters of brakes after the hold, in the order of the terms

	limits []Limit
	states []state

	without bool           // admitted without the store
	asked   time.Time      // when the store may first have received the end of such a call
	taken   []outage.Taken // of limits, from this process's shares; nil once returned

	caps   []*Hold  // holds of the spend caps for the call
	scopes []string // of the spend caps that have to admit it

	shadow []ledger.Shadowed // what limits in shadow mode would have done
}

// bare returns the hold without what its end does not need.
func (h *Hold) bare() *Hold {
	out := &Hold{ID: h.ID, Call: h.Call, Max: h.Max, Expected: h.Expected, At: h.At, states: h.states}
	for _, part := range h.caps {
		out.caps = append(out.caps, part.bare())
	}
	return out
}

// fieldSep separates the fields in the last part of a record; no id contains it.
const fieldSep = "\x1f"

// labelsMark separates the job from the labels, which share a field so that versions without labels
// can decode the record.
const labelsMark = "\x1e"

// batchMark separates the job from its batch in the same field.
const batchMark = "\x1c"

// runMark separates the run from what precedes it in the same field.
const runMark = "\x1d"

// about describes the hold for the process that has to expire it: the call without its id and org,
// then the states of its limits, then the scopes of the caps that have to admit it. Scopes are
// encoded as states without a kind, five fields each.
func (h *Hold) about() string {
	c := &h.Call
	b := make([]byte, 0, 256)
	b = append(b, c.User...)
	for _, text := range [...]string{c.Key, c.IP, c.Model, c.Provider, c.Endpoint, c.PriceVersion, c.JobID} {
		b = append(append(b, fieldSep...), text...)
	}
	if c.Batch != "" {
		b = append(append(b, batchMark...), c.Batch...)
	}
	if c.Labels != "" {
		b = append(append(b, labelsMark...), c.Labels...)
	}
	if c.Run != "" {
		b = append(append(b, runMark...), c.Run...)
	}
	for i := range h.states {
		st := &h.states[i]
		for _, text := range [...]string{st.Key, st.Kind, string(st.Metric), st.P1, st.P2} {
			b = append(append(b, fieldSep...), text...)
		}
	}
	for _, scope := range h.scopes {
		b = append(append(append(b, fieldSep...), scope...), strings.Repeat(fieldSep, 4)...)
	}
	return string(b)
}

// decodeRecord decodes a hold from its id and "<amounts>|<limits>|<about>", which is a record or
// the tombstone of an expired hold: the call, its states and the scopes of its caps.
func decodeRecord(place, id, record string) (*Hold, bool) {
	callID, attempt, ok := strings.Cut(id, "/")
	n, err := strconv.Atoi(attempt)
	parts := strings.SplitN(record, "|", 3)
	if !ok || err != nil || len(parts) < 3 {
		return nil, false
	}
	f := strings.Split(parts[2], fieldSep)
	if len(f) < 8 || (len(f)-8)%5 != 0 {
		return nil, false
	}
	org, part := ledger.SplitPlace(place)
	h := &Hold{ID: id, Call: ledger.Call{
		ID: callID, Attempt: n, Org: org, Part: part, User: f[0], Key: f[1], IP: f[2], Model: f[3], Provider: f[4],
		Endpoint: f[5], PriceVersion: f[6],
	}}
	about, run, _ := strings.Cut(f[7], runMark)
	job, labels, _ := strings.Cut(about, labelsMark)
	h.Call.JobID, h.Call.Batch, _ = strings.Cut(job, batchMark)
	h.Call.Labels = ledger.Labels(labels)
	h.Call.Run = ledger.RunPath(run)
	for f = f[8:]; len(f) > 0; f = f[5:] {
		if f[1] == "" {
			h.scopes = append(h.scopes, f[0])
			continue
		}
		h.states = append(h.states, state{Key: f[0], Kind: f[1], Metric: Metric(f[2]), P1: f[3], P2: f[4]})
	}
	return h, true
}

// chunkOf names the key for the tombstones of all call ids of the same ten minutes.
func chunkOf(c ledger.Call) string {
	return "done:" + strconv.FormatInt(chunkNumber(c), 10)
}

func chunkNumber(c ledger.Call) int64 {
	at, _ := ledger.IDTime(c.ID)
	return at.Unix() / int64(chunkSpan/time.Second)
}

// amountsText is the part of the record that scripts read.
func amountsText(max, expected Amounts) string {
	b := strconv.AppendInt(make([]byte, 0, 68), int64(max.Cost), 10)
	for _, n := range [...]int64{int64(expected.Cost), max.Tokens, expected.Tokens} {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	return string(b)
}
