package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/llmguard/llmguard/queue"
)

// terminal is a live view of fixed figures, without a terminal.
type terminal struct {
	*Model
	t       *testing.T
	snap    *Snapshot
	err     error
	queries []Query
}

func open(t *testing.T, width, height int, snap *Snapshot) *terminal {
	return openWith(t, width, height, snap, false)
}

func openWith(t *testing.T, width, height int, snap *Snapshot, colour bool) *terminal {
	s := &terminal{t: t, snap: snap}
	s.Model = NewModel(t.Context(), time.Hour, colour, func(_ context.Context, q Query) (*Snapshot, error) {
		s.queries = append(s.queries, q)
		return s.snap, s.err
	})
	s.Update(tea.WindowSizeMsg{Width: width, Height: height})
	s.first()
	return s
}

// first processes the first sample, which Init requests; its timer would take an hour.
func (s *terminal) first() {
	batch := s.Init()().(tea.BatchMsg)
	s.Update(batch[0]())
}

var special = map[string]tea.KeyPressMsg{
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "tab": {Code: tea.KeyTab}, "shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift},
	"down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp}, "pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp}, "home": {Code: tea.KeyHome},
	"end": {Code: tea.KeyEnd}, "backspace": {Code: tea.KeyBackspace}, "space": {Code: tea.KeySpace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
}

// press presses keys, and reports whether the last one quit the view.
func (s *terminal) press(keys ...string) bool {
	quit := false
	for _, key := range keys {
		msg, ok := special[key]
		if !ok {
			msg = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		_, cmd := s.Update(msg)
		quit = false
		if cmd == nil {
			continue
		}
		got := cmd()
		_, quit = got.(tea.QuitMsg)
		if !quit {
			s.Update(got)
		}
	}
	return quit
}

// last returns the last query.
func (s *terminal) last() Query { return s.queries[len(s.queries)-1] }

// lines returns the screen without escape codes.
func (s *terminal) lines() []string { return strings.Split(ansi.Strip(s.View().Content), "\n") }

// table returns the lines below the column names, up to the first empty one.
func (s *terminal) table() []string {
	var out []string
	for _, line := range s.lines()[4:] {
		if line == "" {
			break
		}
		out = append(out, line)
	}
	return out
}

// names returns the first words of the table's lines.
func (s *terminal) names() string {
	var out []string
	for _, line := range s.table() {
		out = append(out, strings.Fields(line)[0])
	}
	return strings.Join(out, " ")
}

func (s *terminal) check(what string, got, want any) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: got %v, want %v, on\n%s", what, got, want, strings.Join(s.lines(), "\n"))
	}
}

// marked returns the selected line.
func (s *terminal) marked() string {
	for _, line := range strings.Split(s.View().Content, "\n")[3:] {
		if strings.Contains(line, "\x1b[7m") {
			return strings.Fields(ansi.Strip(line))[0]
		}
	}
	return ""
}

var three = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// fixed returns a fixed snapshot in which each column sorts every list differently.
func fixed() *Snapshot {
	hour := Limit{Name: "hour", Metric: "cost", Mode: "enforce", Used: 9_500_000_000, Held: 500_000_000, Amount: 10_000_000_000, Reset: new(90 * time.Second)}
	day := Limit{Name: "day", Metric: "tokens", Mode: "shadow", Used: 12_345, Amount: 10_000, Reset: new(time.Duration(0))}
	return &Snapshot{
		At: three, Calls: 12_345, Cost: 1_234_567_890, Today: 45_600_000, Waiting: 7, Running: 3,
		Orgs: []Spender{
			{Org: "bravo", Calls: 10, Failed: 1, Cost: 3e9, Today: 5e9, Waiting: 2, Refused: 5, Spark: []int64{1, 0, 50, 99}, Limits: []Limit{hour}},
			{Org: "alpha", Calls: 30, Cost: 2e9, Today: 9e9, Limits: []Limit{day, hour}},
			{Org: "charlie", Calls: 20, Cost: 1e9, Today: 7e9},
		},
		Users: []Spender{
			{Org: "alpha", User: "zoe", Calls: 5, Cost: 2e9, Today: 1e9, Limits: []Limit{day}},
			{Org: "bravo", User: "ann", Calls: 6, Cost: 1e9, Today: 3e9, Refused: 5},
			{Org: "alpha", User: "bob", Calls: 7, Cost: 5e8, Today: 2e9},
		},
		Pools: []Pool{
			{ID: "small", Waiting: map[string]int64{"interactive": 1, "async": 2, "batch": 3}, Running: 4, Parked: 5, Dead: 6, Rates: queue.Rates{{Name: "rpm", Used: 59, Limit: 60}, {Name: "itpm", Used: 10, Limit: 1000}, {Name: "otpm", Used: 2, Limit: 0}}, Pace: 0.5, Blocked: 61 * time.Second},
			{ID: "large", Waiting: map[string]int64{"batch": 20_000}, Rates: queue.Rates{{Name: "rpm", Used: 5, Limit: 0}, {Name: "tpm", Used: 900, Limit: 1000}}, Pace: 1},
			{ID: "free", Rates: queue.Rates{{Name: "rpm", Used: 0, Limit: 0}, {Name: "tpm", Used: 0, Limit: 0}}, Pace: 1},
		},
		Slow: []Ended{
			{Call: "c1", At: three.Add(-3 * time.Second), Org: "alpha", User: "zoe", Model: "m1", Waited: 60 * time.Second, Took: time.Second, Cost: 1e6, Status: 200},
			{Call: "c2", At: three.Add(-2 * time.Second), Org: "bravo", User: "ann", Model: "m2", Took: 70 * time.Second, Cost: 3e6, Status: 429, Outcome: "refused"},
			{Call: "c3", At: three.Add(-time.Second), Org: "alpha", User: "bob", Model: "m3", Waited: 5 * time.Second, Took: 250 * time.Millisecond, Cost: 2e6, Status: 502},
		},
	}
}

var errAway = errors.New("redis is unavailable")

func (s *terminal) checkFits(width, height int, what string) {
	s.t.Helper()
	lines := strings.Split(s.View().Content, "\n")
	if len(lines) > height {
		s.t.Errorf("%s: got %d lines, want %d at most", what, len(lines), height)
	}
	for _, line := range lines {
		if w := ansi.StringWidth(line); w > width {
			s.t.Errorf("%s: got a line %d wide, want %d at most: %s", what, w, width, line)
		}
	}
}

func crowd(n int) *Snapshot {
	snap := fixed()
	snap.Orgs = nil
	for i := range n {
		snap.Orgs = append(snap.Orgs, Spender{Org: fmt.Sprintf("org-%03d", i), Cost: 1e9})
	}
	return snap
}
