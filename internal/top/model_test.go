package top

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

func snapshot() *Snapshot {
	return &Snapshot{
		At: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC), Calls: 120, Cost: 2_500_000_000, Today: 90_000_000_000, Waiting: 7, Running: 3,
		Orgs: []Spender{
			{Org: "acme", Calls: 100, Cost: 2_000_000_000, Today: 10_000_000_000, Limits: []Limit{{Name: "org-hour", Metric: "cost", Mode: "enforce", Used: 95, Amount: 100}}},
			{Org: "globex", Calls: 20, Cost: 500_000_000, Today: 80_000_000_000, Limits: []Limit{}},
		},
		Users: []Spender{
			{Org: "acme", User: "alice", Calls: 90, Cost: 1_900_000_000, Today: 9_000_000_000, Limits: []Limit{{Name: "user-hour", Metric: "tokens", Mode: "shadow", Used: 12_345, Amount: 10_000}}},
			{Org: "acme", User: "eve\x1b[2J", Calls: 10, Cost: 100_000_000},
			{Org: "globex", User: "hank", Calls: 20, Cost: 500_000_000},
		},
		Pools: []Pool{{ID: "gpt", Waiting: map[string]int64{"async": 7}, Running: 3, Requests: 59, RPM: 60, Pace: 1}},
		Slow: []Ended{
			{Call: "c1", Org: "acme", User: "alice", Model: "gpt-4o", Waited: 61 * time.Second, Took: 2 * time.Second, Cost: 1_000_000, Status: 200},
			{Call: "c2", Org: "globex", User: "hank", Model: "o3", Took: 9 * time.Second, Cost: 400_000_000, Status: 429, Outcome: "refused"},
		},
	}
}

// screen is a live view without a terminal. It runs the view's commands immediately.
type screen struct {
	*Model
	t       *testing.T
	asked   []string // users whose limits were requested
	queries []Query
	fail    error
}

func newScreen(t *testing.T) *screen {
	s := &screen{t: t}
	s.Model = NewModel(t.Context(), time.Second, false, func(_ context.Context, q Query) (*Snapshot, error) {
		s.asked, s.queries = append(s.asked, q.User), append(s.queries, q)
		if s.fail != nil {
			return nil, s.fail
		}
		return snapshot(), nil
	})
	s.Update(tea.WindowSizeMsg{Width: 120, Height: 30})
	s.Update(s.ask()())
	return s
}

func (s *screen) press(keys ...string) (quit bool) {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "down": tea.KeyDown, "up": tea.KeyUp, "backspace": tea.KeyBackspace}
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		if code, ok := special[k]; ok {
			msg = tea.KeyPressMsg{Code: code}
		}
		if _, cmd := s.Update(msg); cmd != nil {
			switch got := cmd().(type) {
			case tea.QuitMsg:
				return true
			default:
				s.Update(got)
			}
		}
	}
	return false
}

func keyOf(name string) tea.KeyPressMsg {
	return map[string]tea.KeyPressMsg{"space": {Code: tea.KeySpace}}[name]
}

func (s *screen) shows(parts ...string) {
	s.t.Helper()
	text := ansi.Strip(s.View().Content)
	for _, p := range parts {
		if !strings.Contains(text, p) {
			s.t.Errorf("%q is not on the screen:\n%s", p, text)
		}
	}
}

func (s *screen) hides(parts ...string) {
	s.t.Helper()
	text := ansi.Strip(s.View().Content)
	for _, p := range parts {
		if strings.Contains(text, p) {
			s.t.Errorf("%q is on the screen:\n%s", p, text)
		}
	}
}

// before checks that line a is above line b.
func (s *screen) before(a, b string) {
	s.t.Helper()
	text := ansi.Strip(s.View().Content)
	if i, j := strings.Index(text, a), strings.Index(text, b); i < 0 || j < 0 || i > j {
		s.t.Errorf("%q is not before %q:\n%s", a, b, text)
	}
}

func TestDrillIn(t *testing.T) {
	s := newScreen(t)
	s.shows("120 calls/min", "$2.50/min", "$90.00 today", "7 waiting", "acme", "globex", "org-hour", "95%")
	s.press("enter")
	s.shows("acme", "alice", "org-hour", "of $0.0000")
	s.hides("hank", "\x1b[2J")
	s.press("enter")
	s.shows("acme / alice", "user-hour", "12.3k", "10.0k", "123%", "shadow")
	if got := s.asked[len(s.asked)-1]; got != "acme/alice" {
		t.Errorf("the limits of %q were asked for", got)
	}
	s.press("esc")
	s.shows("alice", "eve")
	s.press("esc")
	s.shows("globex")
	s.press("4", "down", "enter")
	s.shows("globex / hank", "no limit counts this user separately")
	s.press("esc")
	s.shows("429 refused", "1m 1s")
	s.press("3")
	s.shows("gpt", "59/60", "98%")
}

func TestSortAndFilter(t *testing.T) {
	s := newScreen(t)
	s.before("acme", "globex")
	s.press("s")
	s.shows("sort: today")
	s.before("globex", "acme")
	s.press("2", "/", "h", "a", "n", "k", "enter")
	s.shows("filter: hank", "hank")
	s.hides("alice")
	s.press("/", "q", "backspace", "backspace", "esc") // here q is a letter
	s.shows("alice", "hank")
	s.press("4")
	s.before("gpt-4o", "o3")
	s.press("s", "s")
	s.shows("sort: cost")
	s.before("o3", "gpt-4o")
	if !s.press("q") {
		t.Error("q does not end it")
	}
}

// TestFailedSample: the last figures stay, and the error is shown.
func TestFailedSample(t *testing.T) {
	s := newScreen(t)
	s.fail = errors.New("redis is away")
	s.press("r")
	s.shows("no data: redis is away", "acme")
	s.fail = nil
	s.press("r")
	s.hides("redis is away")
}

// TestPause: while paused, no samples are taken.
func TestPause(t *testing.T) {
	s := newScreen(t)
	s.press("p")
	s.shows("PAUSED")
	n := len(s.asked)
	s.Update(due{})
	if s.asking {
		t.Error("a sample is asked for while it is paused")
	}
	s.press("p")
	if s.Update(due{}); !s.asking {
		t.Errorf("no sample is asked for after it; %d before", n)
	}
}

// TestNarrow: no line is wider than the terminal, and none is cut off at the end.
func TestNarrow(t *testing.T) {
	for _, size := range [][2]int{{20, 5}, {40, 10}, {80, 24}, {300, 60}, {1, 1}} {
		s := newScreen(t)
		s.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		for _, key := range []string{"1", "2", "3", "4", "?"} {
			s.press(key)
			lines := strings.Split(s.View().Content, "\n")
			if len(lines) > size[1] {
				t.Errorf("%v, %s: %d lines", size, key, len(lines))
			}
			for _, l := range lines {
				if w := ansi.StringWidth(l); w > size[0] {
					t.Errorf("%v, %s: %d wide: %s", size, key, w, l)
				}
			}
		}
	}
}

func TestPrint(t *testing.T) {
	var b bytes.Buffer
	if err := Print(&b, snapshot(), 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"120 calls/min", "orgs\n", "acme", "pools\n", "59/60", "slowest calls\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q:\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("codes for a terminal: %q", &b)
	}
}
