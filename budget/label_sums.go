package budget

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
)

// summedLabels are the labels by which the ledger keeps sums.
type summedLabels struct{ names atomic.Pointer[[]string] }

// SumLabels sets the labels by which the sums of a day are kept, in addition to those of Rollups.
// Calls without a label count under the empty value, so that the sums by a label add up to those
// of all calls since it is in the list. Sums by group are always kept.
func (s *Store) SumLabels(names []string) {
	own := slices.Clone(names)
	s.settler.labels.names.Store(&own)
}

// SummedBy reports whether the sums of days are kept by a label.
func (l *Ledger) SummedBy(label string) bool {
	names := l.labels.names.Load()
	return label == GroupLabel || names != nil && slices.Contains(*names, label)
}

// fields returns the call's fields in the sums by label, each followed by a comma.
func (l *summedLabels) fields(c Call) string {
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
func labelsKey(day int64) string { return "sums-by-label:" + dayText(day) }

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
		return nil, fmt.Errorf("budget: %.40q cannot name a label", label)
	}
	places, err := l.places.ever(ctx, org)
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

// hasSums reports whether a day has sums.
func (l *Ledger) hasSums(ctx context.Context, org string, day time.Time) (bool, error) {
	places, err := l.places.ever(ctx, org)
	if err != nil {
		return false, err
	}
	for _, place := range places {
		n, err := l.rdb.Exists(ctx, key(place, rollupKey(day.Unix()/86400))).Result()
		if err != nil {
			return false, storeError("read sums", err)
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

// labelSums reads the sums of one day in one place.
func (l *Ledger) labelSums(ctx context.Context, place, label string, day time.Time) (out []LabelRollup, err error) {
	name := key(place, labelsKey(day.Unix()/86400))
	err = l.pages.each(ctx, name, label+"|*", func(field, text string) error {
		r := LabelRollup{Begin: day}
		_, r.Value, _ = strings.Cut(field, "|")
		n, err := integers(text)
		if err != nil || len(n) != len(r.numbers()) {
			return fmt.Errorf("budget: roll-up field %q = %q is not understood", field, text)
		}
		for i, to := range r.numbers() {
			*to = n[i]
		}
		out = append(out, r)
		return nil
	})
	return out, err
}

// labelValues counts the different values of labels, by org, label and UTC day.
type labelValues struct {
	runner *runner

	mu    sync.Mutex
	day   int64
	known map[[sha256.Size]byte]bool // whether values are counted today, so that Redis is asked once
}

// labelValueBytes is about what Redis needs for a value: its place in the set, and the states of limits by it.
const labelValueBytes = 512

// knownValues bounds the memory for values that are counted already.
const knownValues = 100_000

func newLabelValues(r *runner) *labelValues {
	return &labelValues{runner: r, known: map[[sha256.Size]byte]bool{}}
}

// CountLabel reports whether the value is among the first `most` different values that a label of
// the org has had since midnight UTC, and counts it. A value for which the org has no memory left is
// not counted. It asks Redis only for values that are new to this process. The error is ErrUnavailable.
func (s *Store) CountLabel(ctx context.Context, org, label, value string, most int) (bool, error) {
	v, at := s.values, s.clock.now()
	day := at.Unix() / 86400
	sum := sha256.Sum256([]byte(org + " " + label + " " + value))
	asked := sha256.Sum256([]byte(strconv.Itoa(most) + " " + string(sum[:]))) // another maximum asks again
	if counted, known := v.has(day, asked); known {
		return counted, nil
	}
	err := s.opts.Memory.Admit(ctx, org, labelValueBytes, 25*time.Hour)
	if capacity.IsFull(err) {
		return false, nil
	}
	if err != nil {
		return false, storeError("admit the value of a label", err)
	}
	keys := []string{key(org, "label-values:"+label+":"+dayText(day))}
	reply, err := v.runner.run(ctx, v.runner.scripts.labelValue, keys,
		[]any{base64.RawStdEncoding.EncodeToString(sum[:9]), most, (day*86400 + 90_000) * 1000})
	if err != nil {
		return false, err
	}
	v.add(day, asked, reply == "1")
	return reply == "1", nil
}

func (v *labelValues) has(day int64, sum [sha256.Size]byte) (counted, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.day != day {
		return false, false
	}
	counted, known = v.known[sum]
	return counted, known
}

func (v *labelValues) add(day int64, sum [sha256.Size]byte, counted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.day != day || len(v.known) >= knownValues {
		v.day, v.known = day, map[[sha256.Size]byte]bool{}
	}
	v.known[sum] = counted
}
