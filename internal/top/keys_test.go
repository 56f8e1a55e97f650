package top

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// s sorts by the next column; each tab remembers its column.
func TestSorting(t *testing.T) {
	for _, c := range []struct {
		tab   string
		order []string
	}{
		{"1", []string{
			"cost: bravo alpha charlie", "today: alpha charlie bravo", "calls: alpha charlie bravo",
			"waiting: bravo alpha charlie", "refused: bravo alpha charlie", "limit: alpha bravo charlie", "forecast: bravo alpha charlie", "name: alpha bravo charlie", "cost: bravo alpha charlie",
		}},
		{"2", []string{
			"cost: alpha/zoe bravo/ann alpha/bob", "today: bravo/ann alpha/bob alpha/zoe",
			"calls: alpha/bob bravo/ann alpha/zoe", "waiting: alpha/zoe bravo/ann alpha/bob", "refused: bravo/ann alpha/zoe alpha/bob", "limit: alpha/zoe bravo/ann alpha/bob",
			"forecast: alpha/zoe bravo/ann alpha/bob", "name: alpha/bob alpha/zoe bravo/ann",
		}},
		{"3", []string{"waiting: large small free", "quota: small large free", "name: free large small"}},
		{"4", []string{
			"time: 02:59:58 02:59:57 02:59:59", "waited: 02:59:57 02:59:59 02:59:58",
			"cost: 02:59:58 02:59:59 02:59:57", "newest: 02:59:59 02:59:58 02:59:57",
		}},
	} {
		s := open(t, 200, 50, fixed())
		s.press(c.tab)
		for _, want := range c.order {
			foot := s.lines()[49]
			sorted := strings.Fields(foot[strings.Index(foot, "sort: ")+len("sort: "):])[0]
			s.check("tab "+c.tab, sorted+": "+s.rowNames(c.tab), want)
			s.press("s")
		}
		s.press("1", c.tab)
	}
}

// rowNames returns the names of the rows; for users with their org.
func (s *terminal) rowNames(tab string) string {
	if tab != "2" {
		return s.names()
	}
	var out []string
	for _, line := range s.table() {
		out = append(out, strings.Join(strings.Fields(line)[:2], "/"))
	}
	return strings.Join(out, " ")
}

func TestSortIsKeptByTab(t *testing.T) {
	s := open(t, 200, 50, fixed())
	s.press("s", "3", "s", "s", "1")
	s.check("orgs", s.names(), "alpha charlie bravo")
	s.press("3")
	s.check("pools", s.names(), "free large small")
}

// The selected row stays within the list, whatever keys are pressed.
func TestMoving(t *testing.T) {
	for _, c := range []struct {
		keys string
		want string
	}{
		{"", "bravo"},
		{"down", "alpha"},
		{"j j", "charlie"},
		{"down down down down", "charlie"},
		{
			"up",
			"bravo",
		},
		{"down up k k", "bravo"},
		{"end", "charlie"},
		{"G", "charlie"},
		{"end home", "bravo"},
		{"G g", "bravo"},
		{
			"pgdown",
			"charlie",
		},
		{"space", "charlie"},
		{"end pgup", "bravo"},
	} {
		s := open(t, 200, 50, fixed())
		s.press(strings.Fields(c.keys)...)
		s.check(c.keys, s.marked(), c.want)
	}
}

// A long list scrolls: the selected row is visible, including the first and the last.
func TestScrolling(t *testing.T) {
	s := open(t, 80, 24, crowd(100))
	for keys, want := range map[string]string{
		"home": "org-000", "end": "org-099", "home pgdown": "org-018",
		"home pgdown pgdown": "org-036", "end up": "org-098",
	} {
		s.press(strings.Fields(keys)...)
		s.check(keys, s.marked(), want)
		s.checkFits(80, 24, keys)
	}
}

func TestTabs(t *testing.T) {
	heads := []string{"org calls/min", "org user", "pool connected", "ended org", "org"}
	s := open(t, 200, 50, fixed())
	for i, key := range []string{"tab", "tab", "tab", "tab", "tab", "shift+tab", "shift+tab"} {
		s.press(key)
		want := heads[[]int{1, 2, 3, 4, 0, 4, 3}[i]]
		if head := fold(s.lines()[3]); !strings.HasPrefix(head, want) {
			t.Errorf("key %d, %s: got columns %s, want %s", i, key, head, want)
		}
	}
}

// enter drills in, and esc goes back the same way.
func TestOpening(t *testing.T) {
	s := open(t, 200, 50, fixed())
	s.press("down", "enter")
	s.check("an org's head", s.lines()[3], "alpha")
	s.check("its fullest limit", fold(s.lines()[4]), "██████████ 123 % 12.3k of 10.0k, 0 held, day (shadow)")
	s.check("its other limit", fold(s.lines()[5]), "██████████ 95 % $9.50 of $10.00, $0.5000 held, hour")
	text := strings.Join(s.lines(), "\n")
	if !strings.Contains(text, "zoe") || !strings.Contains(text, "bob") || strings.Contains(text, "ann") {
		t.Errorf("got\n%s\nwant the users of alpha alone", text)
	}
	s.press("enter")
	s.check("whose limits are read", s.last().User, "alpha/zoe")
	s.check("a user's head", s.lines()[3], "alpha / zoe: 5 calls/min, $2.00/min, $1.00 today")
	s.check("the limit", fold(s.lines()[6]), "day tokens shadow 12.3k 10.0k 0 ██████████ 123 % -")
	s.press("enter") // there is nothing below a limit
	s.check("still", s.lines()[3], "alpha / zoe: 5 calls/min, $2.00/min, $1.00 today")
	s.press("esc")
	s.check("back to the org", s.lines()[3], "alpha")
	s.press("esc")
	s.check("back to the list", s.names(), "bravo alpha charlie")
}

// From a call, enter opens the limits of its user.
func TestOpeningACall(t *testing.T) {
	s := open(t, 200, 50, fixed())
	s.press("4", "enter")
	s.check("head", s.lines()[3], "bravo / ann: 6 calls/min, $1.00/min, $3.00 today")
	s.check("limits", s.lines()[6], "no limit counts this user separately")
	s.press("left")
	s.check("back", s.names(), "02:59:58 02:59:57 02:59:59")
}

// Pools cannot be opened.
func TestPoolsAreNotOpened(t *testing.T) {
	s := open(t, 200, 50, fixed())
	s.press("3", "enter")
	s.check("pools", s.names(), "large small free")
}

func TestFilter(t *testing.T) {
	for _, c := range []struct{ keys, tab, want string }{
		{"/ b r a enter", "1", "bravo"},
		{"/ B R A enter", "1", "bravo"}, // case-insensitive
		{"/ a enter", "1", "bravo alpha charlie"},
		{"/ x backspace b r enter", "1", "bravo"},
		{"/ backspace z enter", "2", "alpha"},
		{"/ z o esc", "1", "bravo alpha charlie"},
		{"/ b r enter esc", "1", "bravo alpha charlie"},
		{"/ s m enter", "3", "small"},
		{"/ m 2 enter", "4", "02:59:58"},
		{"/ r e f u enter", "4", "02:59:58"},
		{"/ c 3 enter", "4", "02:59:59"},
		{"/ a space z enter", "2", "alpha"}, // "alpha zoe", across both columns
	} {
		s := open(t, 200, 50, fixed())
		s.press(c.tab)
		s.press(strings.Fields(c.keys)...)
		s.check(c.keys, s.names(), c.want)
	}
}

// While a filter is typed, letters are not commands, and the screen shows the filter.
func TestTypingIsNoCommand(t *testing.T) {
	s := open(t, 200, 50, fixed())
	if s.press("/", "q") {
		t.Error("q in a filter: got the end of the view, want a letter")
	}
	if tabs := s.lines()[1]; !strings.HasSuffix(tabs, "filter: q_") {
		t.Errorf("got %s, want the filter q_", tabs)
	}
	s.press("enter")
	if tabs := s.lines()[1]; !strings.HasSuffix(tabs, "filter: q") {
		t.Errorf("got %s, want the filter q", tabs)
	}
}

func TestQuitting(t *testing.T) {
	for _, key := range []string{"q", "ctrl+c"} {
		s := open(t, 80, 24, fixed())
		if !s.press(key) {
			t.Errorf("%s: got no end, want one", key)
		}
	}
	s := open(t, 80, 24, fixed())
	if !s.press("/", "a", "ctrl+c") {
		t.Error("ctrl+c in a filter: got no end, want one")
	}
}

// Help covers the list and is closed by the same key, esc, or a tab.
func TestHelp(t *testing.T) {
	for _, key := range []string{"?", "esc", "1"} {
		s := open(t, 120, 24, fixed())
		s.press("?")
		if text := strings.Join(s.lines(), "\n"); !strings.Contains(text, "q         quit") &&
			!strings.Contains(text, "quit") || strings.Contains(text, "bravo") {
			t.Errorf("got\n%s\nwant help in place of the list", text)
		}
		s.press(key)
		s.check("after "+key, s.names(), "bravo alpha charlie")
	}
}

// If a sample fails, the last figures stay, and the next successful sample clears the error.
func TestFiguresOutliveAFailure(t *testing.T) {
	s := open(t, 80, 24, fixed())
	good := s.snap
	s.snap, s.err = nil, errAway
	s.press("r")
	s.check("figures", s.names(), "bravo alpha charlie")
	s.check("foot", s.lines()[23], "no data: redis is unavailable  (values are outdated)")
	s.snap, s.err = good, nil
	s.press("r")
	if foot := s.lines()[23]; strings.Contains(foot, "unavailable") {
		t.Errorf("got %s, want no error any more", foot)
	}
}

// When a list becomes shorter, the last row is selected.
func TestShorterListKeepsARow(t *testing.T) {
	s := open(t, 200, 50, fixed())
	s.press("end")
	s.snap = fixed()
	s.snap.Orgs = s.snap.Orgs[:2]
	s.press("r")
	s.check("chosen", s.marked(), "alpha")
	s.Update(tea.WindowSizeMsg{Width: 40, Height: 6})
	s.check("chosen in a small window", s.marked(), "alpha")
}

// While paused, no samples are taken.
func TestPause(t *testing.T) {
	s := open(t, 80, 24, fixed())
	s.press("p")
	s.Update(due{})
	if foot := s.lines()[23]; s.asking || !strings.HasPrefix(foot, "PAUSED") {
		t.Errorf("got %s and a sample asked for: %v, want a pause", foot, s.asking)
	}
	s.press("p")
	if s.Update(due{}); !s.asking {
		t.Error("no sample is asked for after the pause")
	}
}
