package console

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func windowOf(amount int64) budget.Limit {
	return budget.Limit{
		ID: "hour", Subject: budget.User, Metric: budget.Cost, Mode: budget.Enforce,
		Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour},
	}
}

// orgOf has a limit of $5 for each user; bob has one of $50 instead, and ann has an additional
// one.
func orgOf() *guard.Org {
	tokens := budget.Limit{ID: "tokens", Subject: budget.User, Metric: budget.Tokens, Shape: budget.Shape{Kind: budget.Calendar, Amount: 9, Calendar: "day"}}
	hour := windowOf(5_000_000_000)
	return &guard.Org{
		Org: settings.Org{ID: "acme"}, Limits: []budget.Limit{hour, tokens},
		UserLimits: map[string][]budget.Limit{"bob": {windowOf(50_000_000_000), tokens}, "ann": {hour, tokens, {ID: "own"}}},
	}
}

func TestWhatIfChanges(t *testing.T) {
	org := orgOf()
	got, words, err := (&whatIfView{Limit: "hour", Amount: "$2", Window: "30m", Mode: "shadow"}).change(org)
	if err != nil {
		t.Fatal(err)
	}
	if words != "hour: $2.00 in any 30m per user, in shadow mode, instead of $5.00 in any 1h per user" {
		t.Errorf("in words: %s", words)
	}
	for user, want := range map[string]int64{"": 2_000_000_000, "ann": 2_000_000_000, "bob": 50_000_000_000} {
		list := got.LimitsFor(user, "")
		if list[0].Shape.Amount != want || list[1].ID != "tokens" {
			t.Errorf("%q stands under %+v", user, list)
		}
	}
	if changed := got.Limits[0]; changed.Mode != budget.Shadow || changed.Shape.Window != 30*time.Minute || changed.Subject != budget.User {
		t.Errorf("changed to %+v", changed)
	}
	if org.Limits[0].Shape.Amount != 5_000_000_000 || org.UserLimits["ann"][0].Mode != budget.Enforce {
		t.Errorf("the org itself was changed: %+v", org)
	}
	got, words, err = (&whatIfView{Limit: newOfOrg, Amount: "$9", Window: "1d"}).change(org)
	if err != nil || words != "new limit: $9.00 in any 1d" {
		t.Errorf("new limit: %q %v", words, err)
	}
	for _, user := range []string{"", "ann", "bob"} {
		if list := got.LimitsFor(user, ""); list[len(list)-1].ID != whatIfName {
			t.Errorf("%q stands under %+v", user, list)
		}
	}
}

func TestWhatIfRefuses(t *testing.T) {
	for want, view := range map[string]whatIfView{
		"no limit":                      {Limit: "day"},
		"needs an amount":               {Limit: newOfUser, Amount: "$5"},
		"Invalid amount:":               {Limit: "hour", Amount: "five"},
		"in dollars":                    {Limit: "hour", Amount: "5"},
		"a plain number":                {Limit: "tokens", Amount: "$5"},
		"Invalid window:":               {Limit: "hour", Window: "soon"},
		"has no window; leave it empty": {Limit: "tokens", Window: "1h"},
		"Unknown mode":                  {Limit: "hour", Mode: "perhaps"},
		"window":                        {Limit: "hour", Window: "900d"},
	} {
		_, _, err := view.change(orgOf())
		var wrong *whatIfError
		if !errors.As(err, &wrong) || !strings.Contains(wrong.text, want) {
			t.Errorf("%+v: %v, want %q", view, err, want)
		}
	}
}

// TestWhatIfOneAtATime: while one runs, another is refused.
func TestWhatIfOneAtATime(t *testing.T) {
	c := &whatIfPage{trying: make(chan struct{}, 1)}
	c.trying <- struct{}{}
	var wrong *whatIfError
	if _, err := c.try(t.Context(), &whatIfView{}); !errors.As(err, &wrong) || !strings.Contains(wrong.text, "Another replay is running") {
		t.Errorf("while one runs: %v", err)
	}
}
