package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// RollupFields is the number of different lines per day; beyond it, new models are summed under
// [OtherModels].
const RollupFields = 100_000

// modelInRollup is the maximum length of model names, which callers may choose.
const modelInRollup = 128

// OtherModels is the model of a roll-up that sums the models of a user and key for which the day
// had no space left.
const OtherModels = "*"

// Sums are totals over a number of calls.
type Sums struct {
	Cost  pricing.Nano
	Calls int64
	// Input counts all input tokens; Cached and Written (to the cache) are parts of it.
	Input, Cached, Written, Output int64
	// Split is the part of Cost paid for each class of tokens, Adjusted the sum of manual
	// corrections. The rest is Unmetered.
	Split    pricing.Split
	Adjusted pricing.Nano
	// Estimated and Overrun are the parts of Cost that are our estimates and that exceeded the
	// hold.
	Estimated, Overrun pricing.Nano
}

// Unmetered is what was charged without knowing the tokens: expired holds, and calls charged their
// whole hold. Together with Split and Adjusted it adds up to Cost.
func (s Sums) Unmetered() pricing.Nano { return s.Cost - s.Split.Total() - s.Adjusted }

// Add adds other to the sums.
func (s *Sums) Add(other Sums) {
	mine, theirs := s.numbers(), other.numbers()
	for i, n := range theirs {
		*mine[i] += *n
	}
}

// Negative returns the sums with the opposite sign.
func (s Sums) Negative() Sums {
	for _, n := range s.numbers() {
		*n = -*n
	}
	return s
}

// numbers lists the sums in the order of lua/roll.lua.
func (s *Sums) numbers() [14]*int64 {
	return [14]*int64{
		(*int64)(&s.Cost), &s.Calls, &s.Input, &s.Cached, &s.Written, &s.Output,
		(*int64)(&s.Split.Input), (*int64)(&s.Split.CachedInput), (*int64)(&s.Split.CacheWrite), (*int64)(&s.Split.Output),
		(*int64)(&s.Split.Fees), (*int64)(&s.Estimated), (*int64)(&s.Overrun), (*int64)(&s.Adjusted),
	}
}

// Sums returns what the entry adds to the sums of its day and hour. Of a late settle it adds no
// call if the hold had expired with a charge, because that was counted then.
func (e *Entry) Sums() Sums {
	u := e.Usage
	s := Sums{
		Cost: e.Cost, Input: u.Input, Cached: u.CachedInput, Written: u.CacheWrite + u.CacheWrite1h, Output: u.Output,
	}
	s.Split.Input, s.Split.CachedInput, s.Split.CacheWrite = e.Costs.Input, e.Costs.CachedInput, e.Costs.CacheWrite
	s.Split.Output, s.Split.Fees = e.Costs.Output, e.Costs.Fees
	s.Overrun = e.Overrun
	switch {
	case e.Kind == KindSettle, e.Kind == KindExpire, e.Kind == KindCharge, e.Kind == KindLate && e.Cost == e.Total:
		s.Calls = 1
	case e.Kind == KindVoid:
		s.Calls = -1
	}
	switch {
	case e.Kind == KindAdjust:
		s.Adjusted = e.Cost
	case e.Estimated, e.Kind == KindExpire, e.Kind == KindVoid:
		s.Estimated = e.Cost
	case e.Kind == KindLate:
		s.Estimated = e.Cost - e.Total // the estimate that it replaces
	}
	return s
}

// Rollup is the total of one user, key, provider, endpoint and model in one UTC day or hour.
type Rollup struct {
	// Begin is the start of the day, or of the hour if Hour is set.
	Begin                                time.Time
	Hour                                 bool
	User, Key, Provider, Endpoint, Model string
	Sums
}

// Rollups returns the org's daily sums for the UTC days that overlap [from, to), sorted by day,
// user, key, model, provider and endpoint. While calls settle, each line is consistent in itself,
// but different lines may be from different instants.
func (l *Ledger) Rollups(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
	return l.rollups(ctx, org, "", from, to)
}

// UserRollups is Rollups for one user of the org. It returns nothing for ids with characters that
// Redis's patterns could interpret.
func (l *Ledger) UserRollups(ctx context.Context, org, user string, from, to time.Time) ([]Rollup, error) {
	if !ValidID(user) {
		return nil, nil
	}
	return l.rollups(ctx, org, user+"|*", from, to)
}

func (l *Ledger) rollups(ctx context.Context, org, match string, from, to time.Time) ([]Rollup, error) {
	return l.sumsOf(ctx, org, func(place string) (out []Rollup, err error) {
		for day := from.UTC().Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
			sums, err := l.rollupsOf(ctx, place, match, day)
			if err != nil {
				return nil, err
			}
			out = append(out, sums...)
		}
		return out, nil
	})
}

// sumsOf adds up what read returns for the places of an org.
func (l *Ledger) sumsOf(
	ctx context.Context, org string, read func(place string) ([]Rollup, error),
) ([]Rollup, error) {
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return nil, err
	}
	var all []Rollup
	for _, place := range places {
		sums, err := read(place)
		if err != nil {
			return nil, err
		}
		all = append(all, sums...)
	}
	if len(places) == 1 {
		return all, nil
	}
	slices.SortStableFunc(all, compareRollups)
	out := all[:0]
	for _, r := range all {
		last := len(out) - 1
		if last >= 0 && out[last].Hour == r.Hour && compareRollups(out[last], r) == 0 {
			out[last].Add(r.Sums)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

func (l *Ledger) rollupsOf(ctx context.Context, place, match string, day time.Time) ([]Rollup, error) {
	var out []Rollup
	err := l.o.Pages.Each(ctx, Key(place, rollupKey(day.Unix()/86400)), match, func(field, text string) error {
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
	sums, ok := decodeSums(text)
	if !ok || len(names) != 5 {
		return Rollup{}, fmt.Errorf("ledger: roll-up field %q = %q is not understood", field, text)
	}
	return Rollup{
		Begin: day, User: names[0], Key: names[1], Provider: names[2], Endpoint: names[3], Model: names[4], Sums: sums,
	}, nil
}

// decodeSums decodes what lua/roll.lua writes.
func decodeSums(text string) (s Sums, ok bool) {
	to, i := s.numbers(), 0
	for number := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || i == len(to) {
			return s, false
		}
		*to[i] = n
		i++
	}
	return s, i == len(to)
}

// RollupField returns the field of a call in a day's hash. Only the model may contain a bar.
func RollupField(c Call) string {
	return c.User + "|" + c.Key + "|" + c.Provider + "|" + c.Endpoint + "|" + RollupModel(c.Model)
}

// RollupModel returns the name under which the calls of a model are summed; long names are cut off.
func RollupModel(model string) string {
	if len(model) > modelInRollup {
		return strings.ToValidUTF8(model[:modelInRollup], "")
	}
	return model
}

// SumNames returns the names of the sums of three UTC days in a row, of their hours and by label; first is in days
// since 1970.
func SumNames(first int64) (days, hours, labels [3]string) {
	for i := range 3 {
		day := first + int64(i)
		days[i], hours[i], labels[i] = rollupKey(day), hoursKey(day), labelsKey(day)
	}
	return days, hours, labels
}

// rollupKey returns the key of a UTC day's sums; day is in days since 1970.
func rollupKey(day int64) string {
	return "sums:" + DayText(day)
}

func hoursKey(day int64) string { return "sums-by-hour:" + DayText(day) }

// DayText formats a UTC day, in days since 1970, for key names.
func DayText(day int64) string {
	return time.Unix(day*86400, 0).UTC().Format("20060102")
}

// ClassSums is what was paid for one class of tokens, or for none: Cost, and the tokens of the
// class in Input, or in Output for the output class.
type ClassSums struct {
	Class string
	Sums
}

// ByClass splits sums by what was paid for; the costs of the parts add up to the total exactly.
// Parts with neither tokens nor cost are left out.
func (s Sums) ByClass() []ClassSums {
	part := func(class string, tokens int64, cost pricing.Nano) ClassSums {
		return ClassSums{class, Sums{Input: tokens, Cost: cost}}
	}
	all := []ClassSums{
		part("input", s.Input-s.Cached-s.Written, s.Split.Input),
		part("cached_input", s.Cached, s.Split.CachedInput),
		part("cache_write", s.Written, s.Split.CacheWrite),
		{"output", Sums{Output: s.Output, Cost: s.Split.Output}},
		part("fees", 0, s.Split.Fees),
		part("unmetered", 0, s.Unmetered()),
		part("adjusted", 0, s.Adjusted),
	}
	return slices.DeleteFunc(all, func(p ClassSums) bool { return p.Input == 0 && p.Output == 0 && p.Cost == 0 })
}

// HourRollups returns the org's hourly sums for the UTC hours that overlap [from, to), as Rollups
// does for days. A day without complete hourly sums, because it is more than 14 days ago or was
// written by a version without them, is returned as a whole day if the period includes all of it;
// otherwise only the known hours are returned.
func (l *Ledger) HourRollups(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
	return l.sumsOf(ctx, org, func(place string) ([]Rollup, error) { return l.hourRollups(ctx, place, from, to) })
}

func (l *Ledger) hourRollups(ctx context.Context, place string, from, to time.Time) ([]Rollup, error) {
	var out []Rollup
	from = from.UTC().Truncate(time.Hour)
	for day := from.Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
		sums, err := l.rollupsOf(ctx, place, "", day)
		if err != nil {
			return nil, err
		}
		if len(sums) == 0 {
			continue
		}
		hours, err := l.hoursOf(ctx, place, day)
		if err != nil {
			return nil, err
		}
		whole := !day.Before(from) && !day.Add(24*time.Hour).After(to)
		if whole && callsOf(hours) < callsOf(sums) { // read after the day, so complete hours have no less
			out = append(out, sums...)
			continue
		}
		out = append(out, slices.DeleteFunc(hours, func(r Rollup) bool {
			return r.Begin.Before(from) || !r.Begin.Before(to)
		})...)
	}
	return out, nil
}

func callsOf(list []Rollup) (n int64) {
	for i := range list {
		n += list[i].Calls
	}
	return n
}

func (l *Ledger) hoursOf(ctx context.Context, place string, day time.Time) ([]Rollup, error) {
	var out []Rollup
	err := l.o.Pages.Each(ctx, Key(place, hoursKey(day.Unix()/86400)), "", func(field, text string) error {
		hour, rest, _ := strings.Cut(field, "|")
		n, err := strconv.Atoi(hour)
		if err != nil {
			return fmt.Errorf("ledger: roll-up field %q is not understood", field)
		}
		r, err := decodeRollup(day.Add(time.Duration(n)*time.Hour), rest, text)
		r.Hour = true
		out = append(out, r)
		return err
	})
	slices.SortFunc(out, compareRollups)
	return out, err
}
