package simulate

import (
	"cmp"
	"slices"
)

// FillLine is how full a limit was. For a limit of each user or key, it is the fullest of them.
type FillLine struct {
	Org     string    `json:"org"` // empty for a spend cap
	Limit   string    `json:"limit"`
	Share   []float64 `json:"share"`   // by slot of the timeline; 1 is full, and limits in shadow mode can exceed it
	Fullest float64   `json:"fullest"` // the maximum of Share
}

// WaitBin is the number of calls that waited at most UpTo, and longer than the previous bin,
// and then ran.
type WaitBin struct {
	UpTo  Milliseconds `json:"up_to_ms"` // 0: unbounded
	Calls int          `json:"calls"`
}

type fillKey struct{ org, limit string }

// watch samples all limits at the start of every slot of the timeline until now.
func (e *engine) watch(now int64) {
	if e.sample == 0 {
		return
	}
	for end := e.result.begins + timeSlots*e.result.width; e.sample <= now && e.sample < end; e.sample += e.result.width {
		for _, s := range e.subjects {
			e.look(s, e.sample)
		}
	}
}

// look records how full a subject's limits are.
func (e *engine) look(s *subject, now int64) {
	if s.on == nil {
		return
	}
	for _, st := range e.budget.Peek(now, s.on.Own)[:len(s.limits)] { // without the counters of brakes
		e.result.filled(fillKey{s.org.ID, st.LimitID}, now, st.Used, st.Amount)
	}
	for i, on := range s.on.Caps {
		for _, st := range e.budget.Peek(now, on) {
			e.result.filled(fillKey{"", "cap of " + s.on.Of[i].String() + ": " + st.LimitID}, now, st.Used, st.Amount)
		}
	}
}

func (r *Result) filled(key fillKey, now, used, amount int64) {
	line := r.fill[key]
	if line == nil {
		line = new([timeSlots]float64)
		r.fill[key] = line
	}
	slot := &line[min(max((now-r.begins)/r.width, 0), timeSlots-1)]
	*slot = max(*slot, float64(used)/float64(max(amount, 1)))
}

// fillLines returns the limits, fullest first.
func (r *Result) fillLines() []FillLine {
	var out []FillLine
	for key, share := range r.fill {
		out = append(out, FillLine{Org: key.org, Limit: key.limit, Share: share[:], Fullest: slices.Max(share[:])})
	}
	slices.SortFunc(out, func(a, b FillLine) int {
		return cmp.Or(cmp.Compare(b.Fullest, a.Fullest), cmp.Compare(a.Org, b.Org), cmp.Compare(a.Limit, b.Limit))
	})
	return out
}

// waitBounds are the upper bounds of the WaitBins.
var waitBounds = [...]Milliseconds{1000, 10_000, 60_000, 300_000, 1_800_000, 0}

func (r *Result) waitBins() []WaitBin {
	out := make([]WaitBin, len(waitBounds))
	for i := range out {
		out[i].UpTo = waitBounds[i]
	}
	for i, outcome := range r.outcomes {
		if outcome != Waited {
			continue
		}
		ms := Milliseconds((r.waited[i] + 999) / 1000)
		out[slices.IndexFunc(waitBounds[:], func(b Milliseconds) bool { return b == 0 || ms <= b })].Calls++
	}
	return out
}
