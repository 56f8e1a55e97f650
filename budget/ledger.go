package budget

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Kinds of ledger entries.
const (
	KindSettle = "settle" // a call that was settled
	KindExpire = "expire" // a hold whose holder died; always estimated
	KindLate   = "late"   // a settle after the hold had expired, was voided or lost
	KindVoid   = "void"   // an expired hold whose charge was taken back
)

// Entry is one line of an org's ledger. The sum of Cost over all entries is what
// the org was charged: entries never change, later ones correct them.
type Entry struct {
	Call
	Details

	Kind    string       `json:"kind"`
	At      time.Time    `json:"at"`
	Cost    pricing.Nano `json:"cost_nano"`    // what this entry adds to the bill; negative when it corrects
	Total   pricing.Nano `json:"total_nano"`   // what the call is charged in all
	Overrun pricing.Nano `json:"overrun_nano"` // the part of Total above the hold
}

// Details is what the holder knows of how a call went.
type Details struct {
	Estimated   bool   `json:"estimated,omitempty"`
	Outcome     string `json:"outcome,omitempty"`
	Status      int    `json:"status,omitempty"`
	UpstreamID  string `json:"upstream_id,omitempty"`
	ServiceTier string `json:"service_tier,omitempty"`
	WaitedMS    int64  `json:"waited_ms,omitempty"`
	TookMS      int64  `json:"took_ms,omitempty"`
	Usage       Usage  `json:"usage,omitzero"`
}

// Usage is [pricing.Usage] with names for JSON.
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
}

func (st Settlement) details() Details {
	return Details{
		Estimated: st.Estimated, Outcome: st.Outcome, Status: st.Status, UpstreamID: st.UpstreamID,
		ServiceTier: st.ServiceTier, WaitedMS: st.Waited.Milliseconds(), TookMS: st.Took.Milliseconds(),
		Usage: Usage(st.Usage),
	}
}

// openEntry encodes the caller's part of an entry without its closing brace: the
// script adds what it decides.
func openEntry(c Call, d Details) (string, error) {
	text, err := json.Marshal(struct {
		Call
		Details
	}{c, d})
	if err != nil {
		return "", fmt.Errorf("budget: encode ledger entry: %w", err)
	}
	return strings.TrimSuffix(string(text), "}"), nil
}

func decodeEntry(text string) (Entry, error) {
	var stored struct {
		Entry
		AtUS int64 `json:"at_us"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return Entry{}, fmt.Errorf("budget: ledger entry %.200q: %w", text, err)
	}
	stored.At = time.UnixMicro(stored.AtUS)
	return stored.Entry, nil
}

// Entries calls fn for the org's ledger entries written in [from, to), oldest
// first, until fn returns an error. A zero time is no bound. The stream is
// bounded (Options.LedgerLength): what was trimmed is gone.
func (s *Store) Entries(ctx context.Context, org string, from, to time.Time, fn func(Entry) error) error {
	const page = 1000
	start, end := "-", "+"
	if !from.IsZero() {
		start = strconv.FormatInt(from.UnixMilli(), 10)
	}
	if !to.IsZero() {
		end = "(" + strconv.FormatInt(to.UnixMilli(), 10)
	}
	for {
		list, err := s.rdb.XRangeN(ctx, key(org, "ledger"), start, end, page).Result()
		if err != nil {
			return storeError("read ledger", err)
		}
		for _, m := range list {
			text, _ := m.Values["e"].(string)
			e, err := decodeEntry(text)
			if err != nil {
				return err
			}
			if err := fn(e); err != nil {
				return err
			}
			start = "(" + m.ID
		}
		if len(list) < page {
			return nil
		}
	}
}

// Rollup is what one user spent through one key on one model in one UTC day.
type Rollup struct {
	Day                   time.Time
	User, Key, Model      string
	Cost                  pricing.Nano
	Estimated, Overrun    pricing.Nano // parts of Cost
	Calls                 int64
	Input, Cached, Output int64 // tokens; Cached is a part of Input
}

// Rollups returns the org's daily sums for the UTC days that [from, to) touches,
// by day, then user, key and model.
func (s *Store) Rollups(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
	var out []Rollup
	for day := from.UTC().Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
		fields, err := s.rdb.HGetAll(ctx, key(org, "day:"+dayName(day.Unix()/86400))).Result()
		if err != nil {
			return nil, storeError("read roll-ups", err)
		}
		sums, err := rollupsOf(day, fields)
		if err != nil {
			return nil, err
		}
		out = append(out, sums...)
	}
	return out, nil
}

// rollupsOf decodes the fields "user|key|model|measure" of one day. Only the
// model may contain a bar.
func rollupsOf(day time.Time, fields map[string]string) ([]Rollup, error) {
	found := map[[3]string]*Rollup{}
	for field, text := range fields {
		n, err := strconv.ParseInt(text, 10, 64)
		user, rest, ok1 := strings.Cut(field, "|")
		keyID, rest, ok2 := strings.Cut(rest, "|")
		at := strings.LastIndexByte(rest, '|')
		if err != nil || !ok1 || !ok2 || at < 0 {
			return nil, fmt.Errorf("budget: roll-up field %q = %q is not understood", field, text)
		}
		id := [3]string{user, keyID, rest[:at]}
		if found[id] == nil {
			found[id] = &Rollup{Day: day, User: user, Key: keyID, Model: rest[:at]}
		}
		found[id].set(rest[at+1:], n)
	}
	out := make([]Rollup, 0, len(found))
	for _, r := range found {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Rollup) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Model, b.Model))
	})
	return out, nil
}

func (r *Rollup) set(measure string, n int64) {
	switch measure {
	case "cost":
		r.Cost = pricing.Nano(n)
	case "estimated":
		r.Estimated = pricing.Nano(n)
	case "overrun":
		r.Overrun = pricing.Nano(n)
	case "calls":
		r.Calls = n
	case "input":
		r.Input = n
	case "cached":
		r.Cached = n
	case "output":
		r.Output = n
	}
}

func rollupPrefix(c Call) string { return c.User + "|" + c.Key + "|" + c.Model + "|" }

// dayName returns the name of a UTC day given as days since 1970.
func dayName(day int64) string {
	return time.Unix(day*86400, 0).UTC().Format("20060102")
}

// Reconcile returns up to n of the org's charges that came too late to be told
// from replays, oldest first, as entries without a kind.
func (s *Store) Reconcile(ctx context.Context, org string, n int) ([]Entry, error) {
	list, err := s.rdb.LRange(ctx, key(org, "reconcile"), 0, int64(n)-1).Result()
	if err != nil {
		return nil, storeError("read reconciliation list", err)
	}
	out := make([]Entry, 0, len(list))
	for _, text := range list {
		e, err := decodeEntry(text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}
