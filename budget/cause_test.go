package budget

import (
	"strings"
	"testing"
)

// TestCauses: causes are read as they are written, also those of versions before, and each kind has a sentence.
func TestCauses(t *testing.T) {
	for text, want := range map[string]Cause{
		"daily": "limit:daily", "cap:all": "cap:all", "request:calls": "requests:calls", "*": OtherCauses, "": "",
		"brake:wild": "brake:wild",
	} {
		if got := ParseCause(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	other := OtherCauses.Text()
	for _, kind := range CauseKinds() {
		c := NewCause(kind, "it")
		if c.Kind() != kind || c.Name() != "it" || !strings.Contains(c.Text(), `"it"`) || c.Text() == other {
			t.Errorf("%s: got %q, %q, %q", c, c.Kind(), c.Name(), c.Text())
		}
		if !c.Matches("") || !c.Matches(kind) || !c.Matches(string(c)) || c.Matches("it") {
			t.Errorf("%s matches another filter than all, its kind and itself", c)
		}
		if named := strings.HasSuffix(strings.TrimSuffix(c.Title(), ")"), "it"); named == (kind == CauseRun) || c.Title() == OtherCauses.Title() {
			t.Errorf("%s: got the title %q", c, c.Title())
		}
	}
	for _, c := range []Cause{NewCause(CauseStop, StopAll), NewCause(CauseRun, RunEnded)} {
		if text := c.Text(); text == other || strings.Contains(text, `"`) {
			t.Errorf("%s: got %q", c, text)
		}
	}
	if all, ended := NewCause(CauseStop, StopAll).Title(), NewCause(CauseRun, RunEnded).Title(); strings.HasSuffix(all, " org all") ||
		ended != "an ended run" {
		t.Errorf("got the titles %q and %q", all, ended)
	}
	for _, name := range []string{"run", "run-2"} { // of an outer and of an inner run
		if got := NewCause(CauseRun, name).Title(); got != "the budget of a run" {
			t.Errorf("%s: got the title %q", name, got)
		}
	}
}
