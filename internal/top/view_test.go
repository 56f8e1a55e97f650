package top

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// The whole screen of each tab, at 80x24.
func TestScreenAt80x24(t *testing.T) {
	s := open(t, 80, 24, fixed())
	lines := s.lines()
	s.check("lines", len(lines), 24)
	for i, want := range []string{
		"03:00:00 UTC 12.3k calls/min $1.23/min $0.0456 today 7 waiting 3 running",
		" 1 orgs   2 users   3 pools   4 slowest calls   5 groups  ",
		"",
		"org      calls/min  failed  $/min  today  waiting  refused  limit   used  use",
		"bravo           10       1  $3.00  $5.00        2        5  hour   $9.50  95 %",
		"alpha           30       0  $2.00  $9.00        0        0  day    12.3k  123 %",
		"charlie         20       0  $1.00  $7.00        0        0",
		"",
	} {
		s.check("line", lines[i], want)
	}
	s.check("foot", lines[23], "enter open  s sort: cost  / filter  o override  d disable  c cancel  ? help")
}

// fold collapses spaces, because column widths depend on the contents.
func fold(line string) string { return strings.Join(strings.Fields(line), " ") }

func TestScreenAt200x50(t *testing.T) {
	for key, want := range map[string][]string{
		"1": {
			"org calls/min failed $/min today last minute waiting refused limit used amount use",
			"bravo 10 1 $3.00 $5.00 ▁ ▅█ 2 5 hour $9.50 $10.00 ██████████ 95 %",
			"alpha 30 0 $2.00 $9.00 0 0 day 12.3k 10.0k ██████████ 123 %",
			"charlie 20 0 $1.00 $7.00 0 0",
		},
		"2": {
			"org user calls/min failed $/min today last minute waiting refused limit used amount use",
			"alpha zoe 5 0 $2.00 $1.00 0 0 day 12.3k 10.0k ██████████ 123 %",
			"bravo ann 6 0 $1.00 $3.00 0 5",
			"alpha bob 7 0 $0.5000 $2.00 0 0",
		},
		"3": {
			"pool connected async batch running paused dead rpm tpm use tightest pace blocked",
			"large 0 0 20.0k 0 0 0 5 900/1000 █████████░ 90 % tpm 100 % -",
			"small 1 2 3 4 5 6 59/60 10/1000 in 2 out ██████████ 98 % rpm 50 % 1m 1s",
			"free 0 0 0 0 0 0 0 0 ░░░░░░░░░░ 0 % 100 % -",
		},
		"4": {
			"ended org user model waited took cost outcome",
			"02:59:58 bravo ann m2 - 1m 10s $0.003 429 refused",
			"02:59:57 alpha zoe m1 1m 1s $0.001",
			"02:59:59 alpha bob m3 5s 250ms $0.002 502",
		},
	} {
		s := open(t, 200, 50, fixed())
		s.press(key)
		lines := s.lines()
		s.check("lines", len(lines), 50)
		for i, line := range want {
			s.check("tab "+key, fold(lines[3+i]), line)
		}
	}
}

// Whatever names callers choose, every screen fits the terminal, even with characters that are
// two cells wide.
func TestNamesKeepToTheScreen(t *testing.T) {
	snap := fixed()
	wide := strings.Repeat("会社名", 40)
	snap.Orgs[0].Org, snap.Users[0].User, snap.Pools[0].ID, snap.Slow[0].Model = wide, wide, wide, wide
	snap.Orgs[1].Org = "red\x1b[31m\nline"
	snap.Orgs[2].Org = "right\u202eleft"
	for _, size := range [][2]int{{80, 24}, {200, 50}, {33, 8}, {2, 2}, {1, 1}, {300, 60}} {
		s := open(t, size[0], size[1], snap)
		for _, key := range []string{"1", "2", "3", "4", "?", "?", "1", "enter"} {
			s.press(key)
			s.checkFits(size[0], size[1], "key "+key)
		}
	}
	s := open(t, 200, 50, snap)
	text := s.View().Content
	if strings.Contains(text, "\x1b[31m") || strings.Contains(text, "\u202e") ||
		!strings.Contains(text, `red\u001B[31m\u000Aline`) {
		t.Errorf("got a name's codes on the screen, want them replaced:\n%q", text)
	}
}

// Columns of numbers are aligned on the right, even after wide names.
func TestColumnsAreAligned(t *testing.T) {
	snap := fixed()
	snap.Orgs[0].Org = "会社"
	s := open(t, 200, 50, snap)
	ends := map[int]bool{}
	for _, line := range s.table() {
		before, _, found := strings.Cut(line, "$")
		if found {
			ends[ansi.StringWidth(before)] = true
		}
	}
	s.check("places of the first amount", len(ends), 1)
}

// A name is cut off only while there is no room for it: also not if a column was hidden that is wider than needed.
func TestHiddenColumnsLeaveTheirRoom(t *testing.T) {
	name := strings.Repeat("n", 24)
	list := table{columns: []column{left("org", 0), right("cost", 1)}, rows: []row{{cells: []string{name, strings.Repeat("9", 20)}}}}
	for width, want := range map[int][]int{30: {24, 0}, 34: {12, 20}, 20: {20, 0}} {
		if got := list.fit(width); !slices.Equal(got, want) {
			t.Errorf("in %d cells: got widths %v, want %v", width, got, want)
		}
	}
}

func TestEmptyStates(t *testing.T) {
	s := open(t, 80, 24, &Snapshot{At: three})
	for _, key := range []string{"1", "2", "3", "4"} {
		s.press(key)
		s.check("tab "+key, s.lines()[4], "no data yet")
	}
	s.press("enter", "end", "pgdown", "up") // nothing to open or select
	s.check("after keys", s.lines()[4], "no data yet")
	s.press("/", "x", "enter")
	s.check("a filter", s.lines()[4], "nothing matches the filter (esc clears it)")
}

// At 200x50 all four lists are visible, whichever has the focus; with an org opened, rows of
// other orgs are hidden.
func TestAllListsAt200x50(t *testing.T) {
	for _, tab := range []string{"1", "2", "3", "4"} {
		s := open(t, 200, 50, fixed())
		s.press(tab)
		s.checkFits(200, 50, tab)
		text := strings.Join(s.lines(), "\n")
		for _, want := range []string{"charlie", "zoe", "59/60", "429 refused"} {
			if !strings.Contains(text, want) {
				t.Errorf("tab %s: got no %q on\n%s", tab, want, text)
			}
		}
	}
}

// What a narrow screen hides of a list is shown below it, for the selected row.
func TestLeftOutColumnsAreBelowTheList(t *testing.T) {
	s := open(t, 80, 24, fixed())
	s.press("3", "down")
	for _, want := range []string{"tpm 10/1000", "pace 50 %"} {
		if line := s.lines()[22]; !strings.Contains(line, want) {
			t.Errorf("got %q below the list, want %q in it", line, want)
		}
	}
	if head := s.lines()[3]; !strings.Contains(head, "running") || strings.Contains(head, "tpm") || strings.Contains(head, "…") {
		t.Errorf("got the columns %q, want whole ones without tpm", head)
	}
	s.press("?")
	for i, line := range s.lines() {
		if strings.HasSuffix(line, "…") {
			t.Errorf("line %d of the help is cut: %s", i, line)
		}
	}
}

// Before the first sample the screen says so; if the first sample fails, it shows the error.
func TestBeforeTheFirstSample(t *testing.T) {
	m := NewModel(t.Context(), 1, false, nil)
	if text := ansi.Strip(m.View().Content); !strings.Contains(text, "loading ...") {
		t.Errorf("got\n%s\nwant loading ...", text)
	}
	s := open(t, 80, 24, nil)
	s.err = errAway
	s.press("r")
	s.check("foot", s.lines()[23], "no data: redis is unavailable  (values are outdated)")
}

// Without color the only escape codes mark the selection; with color, limits are yellow from
// 80 % and red from 100 %.
func TestColours(t *testing.T) {
	plain := open(t, 200, 50, fixed()).View().Content
	for _, code := range []string{"\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[2m"} {
		if strings.Contains(plain, code) {
			t.Errorf("without colour: got %q on the screen", code)
		}
	}
	s := openWith(t, 200, 50, fixed(), true)
	s.press("end") // the selected line has no colors of its own
	lines := strings.Split(s.View().Content, "\n")
	if !strings.Contains(lines[4], "\x1b[33m") || !strings.Contains(lines[5], "\x1b[31m") {
		t.Errorf("got\n%q\n%q\nwant 95 %% in yellow and 123 %% in red", lines[4], lines[5])
	}
}

// A sample that could not read all calls says so before its figures.
func TestPartialFigures(t *testing.T) {
	snap := fixed()
	snap.Partial = true
	s := open(t, 200, 24, snap)
	if head := s.lines()[0]; !strings.Contains(head, "~12.3k calls/min   ~$1.23/min") {
		t.Errorf("got %s, want ~ before the figures of the last minute", head)
	}
}

// Plain text contains all tabs, with the requested number of rows and no escape codes.
func TestPlainText(t *testing.T) {
	for rows, orgs := range map[int]int{1: 1, 2: 2, 50: 3} {
		var b bytes.Buffer
		err := Print(&b, fixed(), rows)
		if err != nil {
			t.Fatal(err)
		}
		text := b.String()
		shown := 0
		for _, org := range []string{"\nbravo ", "\nalpha ", "\ncharlie "} {
			shown += strings.Count(strings.Split(text, "\nusers\n")[0], org)
		}
		if shown != orgs || strings.Contains(text, "\x1b") {
			t.Errorf("%d rows: got %d orgs in\n%s\nwant %d and no codes", rows, shown, text, orgs)
		}
	}
}

// The other lists get the space that a short list does not need.
func TestRoomGoesToTheOtherLists(t *testing.T) {
	s := open(t, 200, 50, fixed())
	if at := slices.IndexFunc(s.lines(), func(l string) bool { return strings.HasPrefix(l, "2 users") }); at < 8 || at > 14 {
		t.Errorf("the users begin on line %d, want soon below the three orgs, on\n%s", at, strings.Join(s.lines(), "\n"))
	}
	s.snap = crowd(100)
	s.press("r")
	if at := slices.IndexFunc(s.lines(), func(l string) bool { return strings.HasPrefix(l, "2 users") }); at < 20 {
		t.Errorf("the users begin on line %d below a hundred orgs, want 20 and more", at)
	}
}
