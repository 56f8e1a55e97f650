package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/budget/ledger"
)

// Shadow adds up from the ledger what limits in shadow mode would have done. The zero value is
// ready to use. It is not safe for concurrent use.
type Shadow struct {
	// Made is when each limit was created, by org and limit. Entries about an earlier limit of
	// the same name are ignored, and so are calls made before an org's first limit in shadow
	// mode. The zero time means always. For orgs that are missing everything counts.
	Made map[string]map[string]time.Time

	calls, held int
	lines       map[[3]string]*shadowed // by limit, org, user
}

// ShadowReport is what each limit in shadow mode would have done, on its own, to the calls of a
// ledger.
type ShadowReport struct {
	Calls    int          `json:"calls"`     // calls in the ledger since there is such a limit
	HeldBack int          `json:"held_back"` // calls that a limit in shadow mode would have held back
	Limits   []ShadowLine `json:"limits"`    // summed over users
	Lines    []ShadowLine `json:"lines"`     // one line per limit and user
}

// Entry counts a ledger entry.
func (s *Shadow) Entry(e ledger.Entry) error {
	if e.Kind == ledger.KindSettle || e.Kind == ledger.KindExpire {
		s.count(e.Org, e.User, e.At, e.Shadow)
	}
	return nil
}

// counts reports whether a limit existed at a time.
func (s *Shadow) counts(org, limit string, at time.Time) bool {
	made, known := s.Made[org][limit]
	return !known || !at.Before(made)
}

// any reports whether any of an org's limits existed at a time.
func (s *Shadow) any(org string, at time.Time) bool {
	limits := s.Made[org]
	for limit := range limits {
		if s.counts(org, limit, at) {
			return true
		}
	}
	return len(limits) == 0
}

func (s *Shadow) count(org, user string, at time.Time, list []ledger.Shadowed) {
	list = slices.DeleteFunc(slices.Clone(list), func(one ledger.Shadowed) bool {
		return one.Cap == "" && !s.counts(org, one.Limit, at)
	})
	if len(list) == 0 {
		if s.any(org, at) {
			s.calls++
		}
		return
	}
	s.calls++
	s.held++
	if s.lines == nil {
		s.lines = map[[3]string]*shadowed{}
	}
	for _, one := range list {
		limit := one.Limit
		if one.Cap != "" {
			limit = "cap of " + one.Cap + ": " + limit
		}
		key := [3]string{limit, org, user}
		line := s.lines[key]
		if line == nil {
			line = &shadowed{}
			s.lines[key] = line
		}
		if one.Never {
			line.never++
		} else {
			line.waits = append(line.waits, one.WaitMS)
		}
	}
}

// Read counts a ledger export of JSON lines. It skips lines of access logs.
func (s *Shadow) Read(ctx context.Context, name string, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		if n%lotLines == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		var e struct {
			Org    string            `json:"org"`
			User   string            `json:"user"`
			Kind   string            `json:"kind"`
			At     time.Time         `json:"at"`
			Shadow []ledger.Shadowed `json:"shadow"`
		}
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		if e.Kind == ledger.KindSettle || e.Kind == ledger.KindExpire {
			s.count(e.Org, e.User, e.At, e.Shadow)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Report returns the totals.
func (s *Shadow) Report() ShadowReport {
	out := ShadowReport{Calls: s.calls, HeldBack: s.held, Limits: []ShadowLine{}, Lines: []ShadowLine{}}
	all := map[[2]string]*shadowed{}
	for key, line := range s.lines {
		limit := [2]string{key[0], key[1]}
		if all[limit] == nil {
			all[limit] = &shadowed{}
		}
		all[limit].waits = append(all[limit].waits, line.waits...)
		all[limit].never += line.never
		out.Lines = append(out.Lines, newShadowLine(key[0], key[1], key[2], line))
	}
	for key, line := range all {
		out.Limits = append(out.Limits, newShadowLine(key[0], key[1], "", line))
	}
	sortShadow(out.Lines)
	sortShadow(out.Limits)
	return out
}

func newShadowLine(limit, org, user string, s *shadowed) ShadowLine {
	slices.Sort(s.waits)
	at := func(p int) Milliseconds { return Milliseconds(rank(s.waits, p)) }
	return ShadowLine{
		Limit: limit, Org: org, User: user, Waited: len(s.waits), Refused: s.never,
		WaitP50: at(50), WaitP95: at(95), WaitMax: at(100),
	}
}

// sortShadow sorts by calls held back, most first.
func sortShadow(list []ShadowLine) {
	slices.SortFunc(list, func(a, b ShadowLine) int {
		return cmp.Or(cmp.Compare(b.Waited+b.Refused, a.Waited+a.Refused), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.Org, b.Org), cmp.Compare(a.User, b.User))
	})
}

// Milliseconds is a duration in reports.
type Milliseconds int64

// Duration converts it to a time.Duration.
func (m Milliseconds) Duration() time.Duration { return time.Duration(m) * time.Millisecond }

// String formats the duration to the millisecond, or more coarsely if it is long; zero is a
// dash.
func (m Milliseconds) String() string {
	d := m.Duration()
	switch {
	case d == 0:
		return "-"
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	}
	return d.String()
}
