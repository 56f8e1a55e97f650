package top

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// acting is a view that records its orders, and fails them with failed if it is not nil.
func acting(t *testing.T, failed error) (*terminal, *[]Order) {
	s := open(t, 80, 24, fixed())
	var got []Order
	s.Allow(func(_ context.Context, o Order) (string, error) {
		got = append(got, o)
		return "done it", failed
	})
	return s, &got
}

func (s *terminal) typed(text string) {
	for _, r := range text {
		key := string(r)
		if key == " " {
			key = "space"
		}
		s.press(key)
	}
}

// Each order asks for its fields one by one, and is carried out only after y.
func TestOrdersAreConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string // before the reason
		want Order
	}{
		"an org's fullest limit":  {[]string{"o", "enter", "$", "5", "enter", "enter"}, Order{Kind: Override, Org: "bravo", Limit: "hour", Add: "$5", For: "1h"}},
		"a user's fullest limit":  {[]string{"2", "o", "enter", "9", "enter", "backspace", "d", "enter"}, Order{Kind: Override, Org: "alpha", User: "zoe", Limit: "day", Add: "9", For: "1d"}},
		"a limit that was chosen": {[]string{"2", "enter", "o", "enter", "9", "enter", "enter"}, Order{Kind: Override, Org: "alpha", User: "zoe", Limit: "day", Add: "9", For: "1h"}},
		"disable":                 {[]string{"2", "d"}, Order{Kind: Disable, Org: "alpha", User: "zoe"}},
		"cancel":                  {[]string{"2", "down", "c"}, Order{Kind: Cancel, Org: "bravo", User: "ann"}},
		"who made a call":         {[]string{"4", "d"}, Order{Kind: Disable, Org: "bravo", User: "ann"}},
	} {
		c.want.Reason = "too much q"
		for _, sure := range []string{"y", "n", "enter", "esc"} {
			s, got := acting(t, nil)
			s.press(c.keys...)
			s.press("enter") // an empty reason is not accepted
			s.typed("too much q")
			if len(*got) != 0 {
				t.Fatalf("%s: got %+v before the question", name, *got)
			}
			s.press("enter")
			if foot := s.lines()[23]; !strings.Contains(foot, "y/N") || !strings.Contains(foot, c.want.Org) {
				t.Errorf("%s: got %q, want to be asked", name, foot)
			}
			s.press(sure)
			switch {
			case sure != "y" && (len(*got) != 0 || !strings.Contains(s.lines()[23], "nothing was changed")):
				t.Errorf("%s, %s: got %+v and %q, want nothing changed", name, sure, *got, s.lines()[23])
			case sure == "y" && (len(*got) != 1 || (*got)[0] != c.want || s.lines()[23] != "done it"):
				t.Errorf("%s: got %+v and %q, want %+v", name, *got, s.lines()[23], c.want)
			}
		}
	}
}

// A failed order shows the error. Without a target, or without permission to make changes, no
// order is started.
func TestOrdersThatAreNotMade(t *testing.T) {
	s, _ := acting(t, errors.New("the API said no"))
	s.press("2", "d", "x", "enter", "y")
	s.check("foot", s.lines()[23], "nothing was changed: the API said no")
	s.press("1", "d")
	s.check("an org", s.lines()[23], "select a user first (press 2)")
	s.press("3", "o")
	s.check("a pool", s.lines()[23], "select a user first (press 2)")
	plain := open(t, 80, 24, fixed())
	plain.press("2", "d")
	plain.check("without rights", plain.lines()[23], "this view is read-only")
}
