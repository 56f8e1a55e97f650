package top

import (
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// charge settles a call as it is, with the limits of the org and those of its run.
func (f *floor) charge(c ledger.Call, cost pricing.Nano, runs ...budget.Run) {
	f.t.Helper()
	c.ID, c.Org, c.Model = wire.NewCallID(), "acme", "gpt-4o"
	limits := f.org.Limits
	for i := range runs {
		limits = append(limits, runs[i].Limits()...)
		c.Run = runs[i].Path
	}
	amounts := budget.Amounts{Cost: cost, Tokens: 1}
	h, err := f.books.Hold(f.t.Context(), budget.Terms{Limits: limits, Call: c, Max: amounts, Expected: amounts})
	if err == nil {
		_, err = f.books.Settle(f.t.Context(), h, budget.Settlement{Actual: amounts, Outcome: "done", Status: 200})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestGroupsByLabel: calls of the last minute are grouped by the value of a label, with the limit that
// counts it and in what time that is used up.
func TestGroupsByLabel(t *testing.T) {
	f := newFloor(t)
	f.org.Limits = append(f.org.Limits, budget.Limit{
		ID: "project-day", Subject: "project", Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Calendar, Calendar: "year", Amount: 200_000_000},
	})
	f.from.By = dim(t, "label:project")
	f.charge(ledger.Call{User: "alice", Labels: "project=web"}, 60_000_000)
	f.charge(ledger.Call{User: "bob", Labels: "project=web"}, 40_000_000)
	f.charge(ledger.Call{User: "bob"}, 10_000_000)
	s := f.sample("")
	if s.By != "label:project" || len(s.Groups) != 2 {
		t.Fatalf("got %s groups %+v, want two by label:project", s.By, s.Groups)
	}
	web, none := s.Groups[0], s.Groups[1]
	if web.Value != "web" || web.Calls != 2 || web.Cost != 100_000_000 || none.Value != "" || none.Calls != 1 || len(none.Limits) > 0 {
		t.Errorf("got %+v and %+v, want 2 calls of web and one of none", web, none)
	}
	if l := web.Limits; len(l) != 1 || l[0].Name != "project-day" || l[0].Used != 100_000_000 || l[0].UsedUp == nil {
		t.Fatalf("got limits %+v, want project-day with a forecast", l)
	}
	// $0.10 of $0.20 were used within the hour, so it lasts another hour.
	if got := *web.Limits[0].UsedUp; got < 59*time.Minute || got > time.Hour {
		t.Errorf("used up in %v, want about an hour", got)
	}
}

// TestGroupsByRun: runs have their names and budgets.
func TestGroupsByRun(t *testing.T) {
	f := newFloor(t)
	f.from.By = dim(t, "run")
	run, _, err := f.books.Runs.Create(t.Context(), budget.NewRun{
		Run:  budget.Run{Path: "run_a", Org: "acme", Amount: 50_000_000, Key: "k1", User: "alice", Name: "nightly"},
		Life: time.Hour, Most: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.charge(ledger.Call{User: "alice"}, 20_000_000, run)
	f.charge(ledger.Call{User: "alice", Run: "run_gone"}, 1)
	s := f.sample("")
	if len(s.Groups) != 2 || s.Groups[0].Value != "run_a" || s.Groups[0].Name != "nightly" || s.Groups[1].Value != "run_gone" {
		t.Fatalf("got %+v, want run_a named nightly, and run_gone", s.Groups)
	}
	if l := s.Groups[0].Limits; len(l) != 1 || l[0].Used != 20_000_000 || l[0].Amount != 50_000_000 || l[0].UsedUp == nil {
		t.Errorf("got limits %+v, want the budget of the run with a forecast", l)
	}
	if len(s.Groups[1].Limits) != 0 {
		t.Errorf("got limits %+v of a run that is gone, want none", s.Groups[1].Limits)
	}
}

// TestForecastsAreKept: forecasts are made again only when they are due, and continue in between.
func TestForecastsAreKept(t *testing.T) {
	f := newFloor(t)
	now := time.Now()
	f.now = func() time.Time { return now }
	f.org.Limits[1].Shape = budget.Shape{Kind: budget.Calendar, Calendar: "year", Amount: 100_000_000}
	f.charge(ledger.Call{User: "alice"}, 50_000_000)
	now = now.Add(time.Second) // entries have the time of Redis
	first := f.sample("").Users[0].Limits[0].UsedUp
	now = now.Add(endsAge / 2)
	second := f.sample("").Users[0].Limits[0].UsedUp
	if first == nil || second == nil || *first-*second != endsAge/2 {
		t.Errorf("got %v and %v, want the second %v less", first, second, endsAge/2)
	}
	f.charge(ledger.Call{User: "alice"}, 25_000_000)
	if third := f.sample("").Users[0].Limits[0].UsedUp; third == nil || *third != *second {
		t.Errorf("got %v before it is due, want %v still", third, second)
	}
	now = now.Add(endsAge)
	if last := f.sample("").Users[0].Limits[0].UsedUp; last == nil || *last > *second-endsAge-time.Minute {
		t.Errorf("got %v when it is due, want much less than %v", last, second)
	}
}

// TestSampleIsFiltered: a filter selects what orgs, users, groups and calls show of the last minute.
func TestSampleIsFiltered(t *testing.T) {
	f := newFloor(t)
	f.charge(ledger.Call{User: "alice", Labels: "project=web"}, 60_000_000)
	f.charge(ledger.Call{User: "bob", Labels: "project=web"}, 40_000_000)
	f.charge(ledger.Call{User: "bob"}, 10_000_000)
	f.charge(ledger.Call{User: "carol"}, 5_000_000)
	var err error
	f.from.FilterText = "project=web cost<0.05"
	f.from.Filter, err = ledger.ParseFilter(f.from.FilterText, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	s := f.sample("")
	if s.Calls != 1 || s.Cost != 40_000_000 || len(s.Users) != 1 || s.Users[0].User != "bob" || len(s.Slow) != 1 || len(s.Groups) != 1 {
		t.Errorf("got %+v, want the one call of bob", s)
	}
	if s.Users[0].Limits[0].Used != 50_000_000 || s.Filter != "project=web cost<0.05" {
		t.Errorf("got limits %+v and filter %q, want limits of all calls", s.Users[0].Limits, s.Filter)
	}
	f.from.Filter, _ = ledger.ParseFilter("user=nobody", func(string) bool { return true })
	if s = f.sample(""); s.Calls != 0 || len(s.Orgs) != 0 || s.Today != 115_000_000 {
		t.Errorf("got %+v, want no call, and the total of today", s)
	}
}

// grouped is a snapshot with groups and forecasts.
func grouped() *Snapshot {
	s := fixed()
	minute, hour := 20*time.Minute, 3*time.Hour
	s.By, s.Dimensions = "label:project", []string{"label:project", "run", "model"}
	s.Users[0].Limits = append(s.Users[0].Limits, Limit{Name: "user-day", Metric: "cost", Mode: "enforce", Used: 1, Amount: 100, UsedUp: &hour})
	s.Groups = []Spender{
		{Org: "alpha", Value: "web", Calls: 90, Cost: 1_900_000_000, Limits: []Limit{
			{Name: "project", Metric: "cost", Mode: "enforce", Used: 50, Amount: 100, UsedUp: &minute},
		}},
		{Org: "alpha", Value: "run_k3", Name: "nightly", Calls: 1, Cost: 5},
		{Org: "bravo", Calls: 20, Cost: 500_000_000},
	}
	return s
}

// TestGroupsOnTheScreen: b shows the groups, then groups by the next dimension; enter filters by a group.
func TestGroupsOnTheScreen(t *testing.T) {
	s := open(t, 120, 30, grouped())
	s.press("2")
	s.check("tabs", s.lines()[1], " 1 orgs   2 users   3 pools   4 slowest calls   5 by project  ")
	s.check("a user", fold(s.lines()[4]), "alpha zoe 5 0 $2.00 $1.00 0 0 day 12.3k 10.0k 123 % 3h user-day")
	s.press("enter")
	s.check("a limit that never resets", fold(s.lines()[7]), "user-day cost enforce $0.000000001 $0.0000001 $0 ░░░░░░░░░░ 1 % never 3h")
	s.press("esc", "b")
	s.check("columns", fold(s.lines()[3]), "org project id calls/min failed $/min limit used amount use runs out in")
	s.check("a group", fold(s.lines()[4]), "alpha web 90 0 $1.90 project $0.00000005 $0.0000001 50 % 20m")
	s.check("without a value", fold(s.lines()[5]), "bravo (no project) 20 0 $0.5000")
	s.check("a run", fold(s.lines()[6]), "alpha nightly run_k3 1 0 $0.000000005")
	s.check("foot", strings.Contains(s.lines()[29], "b group by another"), true)
	s.press("b")
	s.check("by after b", s.last().By, "run")
	s.snap = grouped()
	s.press("enter")
	s.check("filter", s.last().Filter, "project=web")
	s.check("list", s.tab, Users)
	s.check("tabs", strings.HasSuffix(s.lines()[1], "filter: project=web"), true)
	s.press("esc")
	s.check("filter after esc", s.last().Filter, "")
}

// TestConditionsAndText: conditions of the filter go to the sample when it is complete; text selects lines.
func TestConditionsAndText(t *testing.T) {
	s := open(t, 120, 30, fixed())
	s.press("2", "/")
	asked := len(s.queries)
	s.press(strings.Split("run=x*,ali", "")...)
	s.check("samples while typing", len(s.queries), asked)
	s.press("esc", "/")
	s.press(strings.Split("run=x", "")...)
	s.press("space")
	s.press(strings.Split("zoe", "")...)
	s.press("enter")
	s.check("samples", len(s.queries), asked+1)
	s.check("conditions", s.last().Filter, "run=x")
	s.check("lines", s.names(), "alpha")
}
