package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// rollupFields is how many different lines a day has before new models are
// summed under [OtherModels].
const rollupFields = 100_000

// modelInRollup cuts the names of models, which callers may choose.
const modelInRollup = 128

// OtherModels is the model of a roll-up that sums those of a user and key that
// the day had no more room for.
const OtherModels = "*"

// Sums is what a number of calls came to.
type Sums struct {
	Cost  pricing.Nano
	Calls int64
	// Input counts all input tokens, Cached and Written (to the cache) are parts
	// of it.
	Input, Cached, Written, Output int64
	// Split is what of Cost was paid for which class of tokens, Adjusted what was
	// corrected by hand. The rest is Unmetered.
	Split    pricing.Split
	Adjusted pricing.Nano
	// Estimated and Overrun are the parts of Cost that are our estimate, and
	// that lay above the hold.
	Estimated, Overrun pricing.Nano
}

// Unmetered is what was charged without knowing the tokens: expired holds, and
// calls charged their whole hold. With Split and Adjusted it is the Cost.
func (s Sums) Unmetered() pricing.Nano { return s.Cost - s.Split.Total() - s.Adjusted }

// Add adds other to the sums.
func (s *Sums) Add(other Sums) {
	mine, theirs := s.numbers(), other.numbers()
	for i, n := range theirs {
		*mine[i] += *n
	}
}

// numbers lists the sums in the order of lua/roll.lua.
func (s *Sums) numbers() [14]*int64 {
	return [14]*int64{
		(*int64)(&s.Cost), &s.Calls, &s.Input, &s.Cached, &s.Written, &s.Output,
		(*int64)(&s.Split.Input), (*int64)(&s.Split.CachedInput), (*int64)(&s.Split.CacheWrite), (*int64)(&s.Split.Output),
		(*int64)(&s.Split.Fees), (*int64)(&s.Estimated), (*int64)(&s.Overrun), (*int64)(&s.Adjusted),
	}
}

// Rollup is what one user spent through one key on one model of a provider, at
// one endpoint, in one UTC day or hour.
type Rollup struct {
	// Begin is when the day begins, or the hour when Hour is set.
	Begin                                time.Time
	Hour                                 bool
	User, Key, Provider, Endpoint, Model string
	Sums
}

// Rollups returns the org's daily sums for the UTC days that [from, to) touches,
// by day, then user, key, model, provider and endpoint. While calls settle, each
// line is as of one instant, and different lines may be of different ones.
func (l *Ledger) Rollups(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
	return l.rollups(ctx, org, "", from, to)
}

// UserRollups is Rollups for one user of the org, whose id has no character that
// Redis's patterns know.
func (l *Ledger) UserRollups(ctx context.Context, org, user string, from, to time.Time) ([]Rollup, error) {
	if !validID(user) {
		return nil, nil
	}
	return l.rollups(ctx, org, user+"|*", from, to)
}

func (l *Ledger) rollups(ctx context.Context, org, match string, from, to time.Time) ([]Rollup, error) {
	var out []Rollup
	for day := from.UTC().Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
		sums, err := l.rollupsOf(ctx, org, match, day)
		if err != nil {
			return nil, err
		}
		out = append(out, sums...)
	}
	return out, nil
}

// rollupsOf reads one day.
func (l *Ledger) rollupsOf(ctx context.Context, org, match string, day time.Time) ([]Rollup, error) {
	var out []Rollup
	err := l.pages.each(ctx, key(org, rollupKey(day.Unix()/86400)), match, func(field, text string) error {
		r, err := decodeRollup(day, field, text)
		out = append(out, r)
		return err
	})
	slices.SortFunc(out, compareRollups)
	return out, err
}

func compareRollups(a, b Rollup) int {
	return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Model, b.Model), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Endpoint, b.Endpoint))
}

func decodeRollup(day time.Time, field, text string) (Rollup, error) {
	names := strings.SplitN(field, "|", 5)
	n, err := integers(text)
	if err != nil || len(names) != 5 || len(n) != 14 {
		return Rollup{}, fmt.Errorf("budget: roll-up field %q = %q is not understood", field, text)
	}
	r := Rollup{Begin: day, User: names[0], Key: names[1], Provider: names[2], Endpoint: names[3], Model: names[4]}
	for i, to := range r.numbers() {
		*to = n[i]
	}
	return r, nil
}

// rollupField names a call's line in a day. Only the model may contain a bar.
func rollupField(c Call) string {
	model := c.Model
	if len(model) > modelInRollup {
		model = strings.ToValidUTF8(model[:modelInRollup], "")
	}
	return c.User + "|" + c.Key + "|" + c.Provider + "|" + c.Endpoint + "|" + model
}

// rollupKey names the sums of a UTC day, given as days since 1970.
func rollupKey(day int64) string {
	return "sums:" + dayText(day)
}

// hoursKey names the sums of the hours of a UTC day.
func hoursKey(day int64) string { return "sums-by-hour:" + dayText(day) }

// dayText is a UTC day, given as days since 1970, in the names of keys.
func dayText(day int64) string {
	return time.Unix(day*86400, 0).UTC().Format("20060102")
}
