package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Dimensions are what a report can be grouped by.
var Dimensions = []string{"org", "user", "key", "model"}

// Report is what would have happened to a trace under one policy.
type Report struct {
	Policy   string         `json:"policy"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Total    Line           `json:"total"`
	By       []string       `json:"by"`
	Lines    []Line         `json:"lines"` // highest spend first
	Limits   []LimitLine    `json:"limits"`
	Shadow   []ShadowLine   `json:"shadow,omitempty"`
	Brakes   []Firing       `json:"brakes,omitempty"`  // that would have fired, in order
	Skipped  map[string]int `json:"skipped,omitempty"` // calls not decided, by reason
	Timeline []Slot         `json:"timeline"`
	Waits    []WaitBin      `json:"waits"`
	Fill     []FillLine     `json:"fill,omitempty"` // fullest first; see [Options.Fill]
}

// Line is what happened to the calls of one org, user, key or model. Waits are those of calls
// that waited and ran.
type Line struct {
	Org      string       `json:"org,omitempty"`
	User     string       `json:"user,omitempty"`
	Key      string       `json:"key,omitempty"`
	Model    string       `json:"model,omitempty"`
	Calls    int          `json:"calls"`
	AtOnce   int          `json:"at_once"`
	Waited   int          `json:"waited"`
	WaitP50  Milliseconds `json:"wait_p50_ms"`
	WaitP95  Milliseconds `json:"wait_p95_ms"`
	WaitP99  Milliseconds `json:"wait_p99_ms"`
	WaitMax  Milliseconds `json:"wait_max_ms"`
	GaveUp   int          `json:"gave_up"`
	Refused  int          `json:"refused"`
	Spend    pricing.Nano `json:"spend_nano"`     // of the calls that ran
	Recorded pricing.Nano `json:"recorded_nano"`  // charge of all calls when recorded
	Unspent  pricing.Nano `json:"not_spent_nano"` // cost of the calls that did not run

	waits []int64
}

// LimitLine is what one limit, cap, quota or queue did.
type LimitLine struct {
	Limit   string       `json:"limit"`
	Waited  int          `json:"waited"` // calls that it delayed first, and that ran
	WaitP95 Milliseconds `json:"wait_p95_ms"`
	GaveUp  int          `json:"gave_up"`
	Refused int          `json:"refused"`

	waits []int64
}

// ShadowLine is what a limit in shadow mode would have done to a user's calls that ran. No call
// waits for it, so it counts more than it would if it were enforced.
type ShadowLine struct {
	Limit   string       `json:"limit"`
	Org     string       `json:"org"`
	User    string       `json:"user"`
	Waited  int          `json:"would_wait"`
	WaitP50 Milliseconds `json:"wait_p50_ms"`
	WaitP95 Milliseconds `json:"wait_p95_ms"`
	WaitMax Milliseconds `json:"wait_max_ms"`
	Refused int          `json:"would_refuse"`
}

// Slot is a period of the timeline.
type Slot struct {
	At      time.Time    `json:"at"`
	Came    int          `json:"came"`
	Waiting int          `json:"waiting"` // maximum at any time
	Refused int          `json:"refused"` // includes calls that gave up
	Spend   pricing.Nano `json:"spend_nano"`
}

// Report groups a result by any of Dimensions, with a line for each combination.
func (r *Result) Report(by []string) (Report, error) {
	for _, d := range by {
		if !slices.Contains(Dimensions, d) {
			return Report{}, fmt.Errorf("simulate: cannot group by %q; expected any of %v", d, Dimensions)
		}
	}
	from, to := r.trace.Span()
	out := Report{Policy: r.policy, From: from.UTC(), To: to.UTC(), By: by, Skipped: maps.Clone(r.trace.Skipped)}
	lines, limits := map[who]*Line{}, map[uint16]*LimitLine{}
	for i := range r.trace.calls {
		if r.outcomes[i] == Skipped {
			out.Skipped[r.why[r.reasons[i]]]++
			continue
		}
		key := r.trace.calls[i].who.only(by)
		if lines[key] == nil {
			name := func(id uint32) string { return r.trace.names[id] }
			lines[key] = &Line{Org: name(key.org), User: name(key.user), Key: name(key.key), Model: name(key.model)}
		}
		r.count(lines[key], i)
		r.count(&out.Total, i)
		if id := r.reasons[i]; id != 0 {
			if limits[id] == nil {
				limits[id] = &LimitLine{Limit: r.why[id]}
			}
			r.countLimit(limits[id], i)
		}
	}
	out.Total.finish()
	out.Lines, out.Limits = finished(lines), finishedLimits(limits)
	out.Shadow, out.Timeline = r.shadowLines(), r.timeline()
	out.Brakes = r.firings
	out.Waits, out.Fill = r.waitBins(), r.fillLines()
	return out, nil
}

func (w who) only(by []string) who {
	var out who
	for _, d := range by {
		switch d {
		case "org":
			out.org = w.org
		case "user":
			out.org, out.user = w.org, w.user
		case "key":
			out.org = w.org
			out.user = w.user
			out.key = w.key
		case "model":
			out.model = w.model
		}
	}
	return out
}

func (r *Result) count(l *Line, i int) {
	c := &r.trace.calls[i]
	l.Calls++
	if !c.refused {
		l.Recorded += pricing.Nano(c.cost)
	}
	switch r.outcomes[i] {
	case AtOnce:
		l.AtOnce++
	case Waited:
		l.Waited++
		l.waits = append(l.waits, r.waited[i])
	case GaveUp:
		l.GaveUp++
	case Refused:
		l.Refused++
	}
	if r.outcomes[i] == AtOnce || r.outcomes[i] == Waited {
		l.Spend += pricing.Nano(c.cost)
	} else {
		l.Unspent += pricing.Nano(c.cost)
	}
}

func (r *Result) countLimit(l *LimitLine, i int) {
	switch r.outcomes[i] {
	case Waited:
		l.Waited++
		l.waits = append(l.waits, r.waited[i])
	case GaveUp:
		l.GaveUp++
	case Refused:
		l.Refused++
	}
}

func (l *Line) finish() {
	slices.Sort(l.waits)
	l.WaitP50 = percentile(l.waits, 50)
	l.WaitP95 = percentile(l.waits, 95)
	l.WaitP99 = percentile(l.waits, 99)
	l.WaitMax = percentile(l.waits, 100)
	l.waits = nil
}

// percentile returns a percentile of sorted microseconds.
func percentile(sorted []int64, p int) Milliseconds {
	return Milliseconds((rank(sorted, p) + 999) / 1000)
}

func finished(lines map[who]*Line) []Line {
	out := make([]Line, 0, len(lines))
	for _, l := range lines {
		l.finish()
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Spend, a.Spend), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Org, b.Org),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Model, b.Model))
	})
	return out
}

func finishedLimits(limits map[uint16]*LimitLine) []LimitLine {
	out := make([]LimitLine, 0, len(limits))
	for _, l := range limits {
		slices.Sort(l.waits)
		l.WaitP95, l.waits = percentile(l.waits, 95), nil
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b LimitLine) int {
		return cmp.Or(cmp.Compare(b.Refused+b.GaveUp, a.Refused+a.GaveUp), cmp.Compare(b.Waited, a.Waited),
			cmp.Compare(a.Limit, b.Limit))
	})
	return out
}

func (r *Result) shadowLines() []ShadowLine {
	var out []ShadowLine
	for key, s := range r.shadow {
		out = append(out, newShadowLine(key.limit, r.trace.names[key.org], r.trace.names[key.user], s))
	}
	sortShadow(out)
	return out
}

func (r *Result) timeline() []Slot {
	out := make([]Slot, len(r.slots))
	for i, s := range r.slots {
		out[i] = Slot{
			At: time.UnixMicro(r.begins + int64(i)*r.width).UTC(), Came: s.came, Waiting: s.deepest, Refused: s.refused,
			Spend: pricing.Nano(s.spend),
		}
	}
	return out
}
