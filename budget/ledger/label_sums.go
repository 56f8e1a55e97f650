package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// SummedLabels are the labels by which the ledger keeps sums.
type SummedLabels struct{ names atomic.Pointer[[]string] }

// Set replaces the labels.
func (l *SummedLabels) Set(names []string) {
	own := slices.Clone(names)
	l.names.Store(&own)
}

// SummedBy reports whether the sums of days are kept by a label.
func (l *Ledger) SummedBy(label string) bool {
	names := l.o.Labels.names.Load()
	return label == GroupLabel || names != nil && slices.Contains(*names, label)
}

// Fields returns the call's fields in the sums by label, each followed by a comma.
func (l *SummedLabels) Fields(c Call) string {
	var b strings.Builder
	if names := l.names.Load(); names != nil {
		for _, name := range *names {
			b.WriteString(name + "|" + c.Labels.Get(name) + labelSep)
		}
	}
	if group := c.Labels.Get(GroupLabel); group != "" { // most orgs have no groups
		b.WriteString(GroupLabel + "|" + group + labelSep)
	}
	return b.String()
}

// labelsKey returns the key of a UTC day's sums by label; day is in days since 1970.
func labelsKey(day int64) string { return "sums-by-label:" + DayText(day) }

// LabelRollup is the total of one value of a label in one UTC day.
type LabelRollup struct {
	Begin time.Time
	Value string // empty for calls without the label, OtherLabel for those beyond its maximum
	Sums
}

// LabelRollups returns the org's daily sums by the value of a label for the UTC days that overlap
// [from, to), sorted by day and value. Days before the label was summed are missing. By GroupLabel, the
// sums of users without a group are what remains of the day's total.
func (l *Ledger) LabelRollups(ctx context.Context, org, label string, from, to time.Time) ([]LabelRollup, error) {
	if !ValidLabelName(label) {
		return nil, fmt.Errorf("ledger: %.40q cannot name a label", label)
	}
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return nil, err
	}
	var all []LabelRollup
	for _, place := range places {
		for day := from.UTC().Truncate(24 * time.Hour); day.Before(to); day = day.Add(24 * time.Hour) {
			sums, err := l.labelSums(ctx, place, label, day)
			if err != nil {
				return nil, err
			}
			if label == GroupLabel {
				sums, err = l.withUngrouped(ctx, place, sums, day)
				if err != nil {
					return nil, err
				}
			}
			all = append(all, sums...)
		}
	}
	slices.SortFunc(all, func(a, b LabelRollup) int {
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.Value, b.Value))
	})
	out := all[:0]
	for _, r := range all {
		if last := len(out) - 1; last >= 0 && out[last].Begin.Equal(r.Begin) && out[last].Value == r.Value {
			out[last].Add(r.Sums) // of another part
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// Span is the time from one instant to, but without, another.
type Span struct{ From, To time.Time }

// SummedSince returns the end of the last UTC day of a span whose sums by a label are not those of
// all its calls, because the label was not in the list; zero if there is none. sums are LabelRollups of the span.
func (l *Ledger) SummedSince(
	ctx context.Context, org, label string, of Span, sums []LabelRollup,
) (since time.Time, err error) {
	known := map[time.Time]bool{}
	for i := range sums {
		known[sums[i].Begin] = true
	}
	before := false // the day before has complete sums, so that the label was in the list all day
	for day := of.From.UTC().Truncate(24 * time.Hour); day.Before(of.To); day = day.Add(24 * time.Hour) {
		lacks := false
		switch {
		case !known[day]:
			lacks, err = l.hasSums(ctx, org, day)
		case !before:
			lacks, err = l.labelBegan(ctx, org, label, day)
		}
		if err != nil {
			return since, err
		}
		if lacks {
			since = day.Add(24 * time.Hour)
		}
		before = known[day] && !lacks
	}
	return since, nil
}

func (l *Ledger) hasSums(ctx context.Context, org string, day time.Time) (bool, error) {
	places, err := l.o.Places(ctx, org)
	if err != nil {
		return false, err
	}
	for _, place := range places {
		n, err := l.o.Redis.Exists(ctx, Key(place, rollupKey(day.Unix()/86400))).Result()
		if err != nil {
			return false, l.o.Fault("read sums", err)
		}
		if n > 0 {
			return true, nil
		}
	}
	return false, nil
}

// labelBegan reports whether the sums of a day by a label lack calls. They are read last, because calls
// settle meanwhile.
func (l *Ledger) labelBegan(ctx context.Context, org, label string, day time.Time) (bool, error) {
	all, err := l.Rollups(ctx, org, day, day.Add(1))
	if err != nil {
		return false, err
	}
	labelled, err := l.LabelRollups(ctx, org, label, day, day.Add(1))
	var calls int64
	for i := range all {
		calls += all[i].Calls
	}
	for i := range labelled {
		calls -= labelled[i].Calls
	}
	return calls > 0, err
}

// withUngrouped adds the sums of users without a group to those of groups. Most orgs have no groups,
// so these sums are not stored.
func (l *Ledger) withUngrouped(
	ctx context.Context, place string, groups []LabelRollup, day time.Time,
) ([]LabelRollup, error) {
	all, err := l.rollupsOf(ctx, place, "", day) // read last: calls settle meanwhile
	if err != nil {
		return nil, err
	}
	rest := LabelRollup{Begin: day}
	for i := range all {
		rest.Add(all[i].Sums)
	}
	for i := range groups {
		rest.Add(groups[i].Negative())
	}
	if rest.Sums == (Sums{}) {
		return groups, nil
	}
	return append(groups, rest), nil
}

func (l *Ledger) labelSums(ctx context.Context, place, label string, day time.Time) (out []LabelRollup, err error) {
	name := Key(place, labelsKey(day.Unix()/86400))
	err = l.o.Pages.Each(ctx, name, label+"|*", func(field, text string) error {
		r := LabelRollup{Begin: day}
		_, r.Value, _ = strings.Cut(field, "|")
		var ok bool
		r.Sums, ok = decodeSums(text)
		if !ok {
			return fmt.Errorf("ledger: roll-up field %q = %q is not understood", field, text)
		}
		out = append(out, r)
		return nil
	})
	return out, err
}
