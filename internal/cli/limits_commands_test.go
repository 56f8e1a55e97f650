package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// userDay is the limit "daily" of orgs, in the store's form.
var userDay = budget.Limit{
	ID: "daily", Subject: budget.User, Metric: budget.Cost,
	Shape: budget.Shape{Kind: budget.Window, Amount: 5e9, Window: 24 * time.Hour},
}

// charge records a call in the ledger and charges it to userDay.
func (s *site) charge(c budget.Call, cost pricing.Split, u pricing.Usage) string {
	s.t.Helper()
	store := budget.New(s.redis, budget.Options{})
	c.ID = wire.NewCallID()
	amounts := budget.Amounts{Cost: cost.Total()}
	hold, err := store.Hold(s.t.Context(), budget.Terms{Limits: []budget.Limit{userDay}, Call: c, Max: amounts, Expected: amounts})
	if err != nil {
		s.t.Fatal(err)
	}
	end := budget.Settlement{Actual: amounts, Split: cost, Usage: u, Outcome: "completed", Status: 200}
	if _, err := store.Settle(s.t.Context(), hold, end); err != nil {
		s.t.Fatal(err)
	}
	return c.ID
}

// limitView is a limit as printed with -o json.
type limitView struct {
	Name, Subject, Only, Metric, Unit, Mode, Shape string
	Amount, Used, Held, Remaining                  int64
	Base                                           int64 `json:"base_amount"`
	Overrides                                      []overrideView
}

type overrideView struct {
	ID, Limit, Only, Unit, Reason, By string
	Add, Amount                       int64
	Active                            bool
	Until                             time.Time
}

// limit returns one limit of acme as it applies to a user.
func (s *site) limit(name, user string) limitView {
	s.t.Helper()
	var list []limitView
	s.read(&list, "limits", "get", name, "--org", "acme", "--user", user)
	if len(list) != 1 {
		s.t.Fatalf("limit %s of %s: %+v", name, user, list)
	}
	return list[0]
}

// spend charges $1.50 to alice.
func (s *site) spend() {
	s.charge(budget.Call{Org: "acme", User: "alice", Key: "k", Model: "gpt-4o"}, pricing.Split{Output: 1_500_000_000}, pricing.Usage{Output: 10})
}

// TestLimitsSetKeepsUse: changing the amount keeps the usage; with --user it changes that user
// only.
func TestLimitsSetKeepsUse(t *testing.T) {
	s := newSite(t, orgs)
	s.spend()
	if l := s.limit("daily", "alice"); l.Used != 1_500_000_000 || l.Amount != 5_000_000_000 || l.Remaining != 3_500_000_000 || l.Unit != "nano_usd" {
		t.Errorf("before: %+v", l)
	}
	s.must("limits", "set", "daily", "--org", "acme", "--amount", "$2")
	if l := s.limit("daily", "alice"); l.Used != 1_500_000_000 || l.Remaining != 500_000_000 {
		t.Errorf("after: %+v", l)
	}
	s.must("limits", "set", "daily", "--org", "acme", "--user", "alice", "--amount", "$8", "--window", "1d")
	if alice, bob := s.limit("daily", "alice"), s.limit("daily", "bob"); alice.Amount != 8_000_000_000 || bob.Amount != 2_000_000_000 {
		t.Errorf("alice has %d, bob %d; want 8 and 2 dollars", alice.Amount, bob.Amount)
	}
	s.must("limits", "unset", "daily", "--org", "acme", "--user", "alice", "--yes")
	s.must("limits", "unset", "daily", "--org", "acme", "--yes")
	if l := s.limit("daily", "alice"); l.Amount != 5_000_000_000 || l.Used != 1_500_000_000 {
		t.Errorf("given back to the file: %+v, want $5 and the same use", l)
	}
}

// TestLimitsOverride: an override raises the limit for its subject until it expires or is
// removed.
func TestLimitsOverride(t *testing.T) {
	s := newSite(t, orgs)
	var o overrideView
	s.read(&o, "limits", "override", "--org", "acme", "--user", "alice", "--limit", "daily", "--add", "$200", "--until", "4h", "--reason", "launch day")
	if left := time.Until(o.Until); o.Add != 200_000_000_000 || o.Only != "alice" || o.Reason != "launch day" || left > 4*time.Hour || left < 4*time.Hour-time.Minute {
		t.Errorf("made %+v", o)
	}
	alice, bob := s.limit("daily", "alice"), s.limit("daily", "bob")
	if alice.Amount != 205_000_000_000 || alice.Base != 5_000_000_000 || bob.Amount != 5_000_000_000 || len(alice.Overrides) != 1 {
		t.Errorf("alice has %+v, bob %+v", alice, bob)
	}
	has(t, s.must("limits", "get", "--org", "acme", "--user", "alice"), "daily: +$200.00 for alice until", "launch day", o.ID)
	has(t, s.must("limits", "overrides", "--org", "acme"), o.ID+" daily +$200.00 for alice", " yes ", "launch day")
	if got := s.must("limits", "end", o.ID, "--org", "acme"); got != "override "+o.ID+" has ended\n" {
		t.Errorf("end prints %q", got)
	}
	if l := s.limit("daily", "alice"); l.Amount != 5_000_000_000 {
		t.Errorf("after its end: %+v", l)
	}
	s.must("limits", "override", "--org", "acme", "--limit", "calls", "--amount", "7", "--until", "tomorrow", "--reason", "r")
	if l := s.limit("calls", "alice"); l.Amount != 7 || l.Unit != "requests" {
		t.Errorf("an amount instead: %+v", l)
	}
}

// TestLimitsReset: a reset clears the usage but not the ledger, and requires a reason.
func TestLimitsReset(t *testing.T) {
	s := newSite(t, orgs)
	s.spend()
	s.refuses("--reason is required", "limits", "reset", "daily", "--org", "acme", "--user", "alice")
	s.refuses("reason", "limits", "reset", "daily", "--org", "acme", "--user", "alice", "--reason", "")
	s.refuses("user", "limits", "reset", "daily", "--org", "acme", "--reason", "r")
	if l := s.limit("daily", "alice"); l.Used != 1_500_000_000 {
		t.Errorf("a refused reset has changed the use: %+v", l)
	}
	has(t, s.must("limits", "reset", "daily", "--org", "acme", "--user", "alice", "--reason", "a loop of ours"), "daily", "$0.00")
	if l := s.limit("daily", "alice"); l.Used != 0 {
		t.Errorf("after the reset: %+v", l)
	}
	has(t, s.must("usage", "--org", "acme"), "total", "$1.50")
	has(t, s.must("audit", "--action", "limit.reset"), "acme daily a loop of ours")
}

// TestLimitsRefused: an invalid limit is rejected with the flag or field named, and nothing
// changes.
func TestLimitsRefused(t *testing.T) {
	s := newSite(t, orgs)
	for _, test := range []struct{ want, args string }{
		{"nothing to change: set at least one field, such as --subject", "set daily"},
		{"limited in money; did you mean", "set daily --amount 5"},
		{"window", "set daily --window soon"},
		{"mode", "set daily --mode sometimes"},
		{"metric", "set other --metric love --amount 5 --window 1h"},
		{"has no shape", "set other --mode shadow"},
		{"--unset nothing: expected any of subject, only, models", "set daily --unset nothing"},
		{"use either --add or --amount", "override --limit daily --until 4h --reason r"},
		{"use either --add or --amount", "override --limit daily --until 4h --reason r --add $1 --amount $2"},
		{"--until now: expected tonight, tomorrow", "override --limit daily --until now --reason r --add $1"},
		{"--until 2001-01-01: this time is in the past", "override --limit daily --until 2001-01-01 --reason r --add $1"},
		{"add", "override --limit daily --until 4h --reason r --add 1"},
		{"limit weekly not found. Limits: daily, calls", "get weekly"},
		{"--amount: expected an amount, got empty text. In double quotes a shell expands $5 to nothing; use single quotes", "set daily --amount="},
		{"--refill: expected an amount, got \"/1h\". In double quotes", "set daily --refill /1h"},
		{"--add: expected an amount, got \"bash.25\". In double quotes", "override --limit daily --until 4h --reason r --add bash.25"},
		{"add: expected money such as '$5'", "override --limit daily --until 4h --reason r --add x"},
		{"Confirm with --yes", "unset daily"},
	} {
		args := append([]string{"limits"}, strings.Fields(test.args)...)
		s.refuses(test.want, append(args, "--org", "acme")...)
	}
	if text := s.must("audit"); strings.Contains(text, "limit") {
		t.Errorf("a refused command stands in the audit:\n%s", text)
	}
}

// TestLimitsOfEachShape: limits of every shape take effect as set.
func TestLimitsOfEachShape(t *testing.T) {
	s := newSite(t, orgs)
	for _, test := range []struct {
		name, args, shape string
		amount            int64
	}{
		{"team", "--metric cost --capacity $200 --refill $50/1h", "bucket", 200_000_000_000},
		{"month", "--amount $1000 --calendar month --tz Europe/Berlin", "month", 1_000_000_000_000},
		{"fiscal", "--amount $1000 --calendar year --starts 04-06", "year from 04-06", 1_000_000_000_000},
		{"fixed", "--amount $1 --window 5m --fixed", "fixed window", 1_000_000_000},
		{"open", "--metric concurrency --amount 3 --subject user", "open calls", 3},
		{"tokens", "--metric tokens --amount 5M --window 7d --models gpt-4o* --mode shadow", "window", 5_000_000},
		{"exact", "--metric requests --amount 10 --window 1m --exact", "window", 10},
	} {
		s.must(append([]string{"limits", "set", test.name, "--org", "acme"}, strings.Fields(test.args)...)...)
		l := s.limit(test.name, "alice")
		if l.Amount != test.amount || !strings.Contains(l.Shape, test.shape) {
			t.Errorf("limits set %s %s: %+v, want %d, %s", test.name, test.args, l, test.amount, test.shape)
		}
	}
	if l := s.limit("tokens", "alice"); l.Mode != "shadow" {
		t.Errorf("mode %q, want shadow", l.Mode)
	}
}

// TestLimitsSetErrorsNameFlags: errors name the command's flags, not positions in a
// configuration file.
func TestLimitsSetErrorsNameFlags(t *testing.T) {
	s := newSite(t, orgs)
	for args, want := range map[string]string{
		"rpm --metric requests --amount $5 --window 1m":           "--amount: metric requests is limited by a count, not by money; leave out the $ or set --metric cost",
		"cash --amount 5 --window 1h":                             `--amount: metric cost is limited in money; did you mean '$5'?`,
		"cash --amount $5":                                        "limit cash: amount of what time? add --window 1h (sliding), --calendar month (fixed), or use --capacity",
		"cash --amount $5 --window soon":                          `--window: expected a duration such as 30s, 5m, 1h or 1d, got "soon"`,
		"cash --refill $5/1h":                                     "limit cash: has no shape; add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
		"cash --metric tokens --capacity $5":                      "--capacity: metric tokens is limited by a count, not by money; leave out the $ or set --metric cost",
		"cash --endpoints chat --amount $5 --window 1h":           `--endpoints: there is no endpoint "chat"; did you mean "chat.completions"?`,
		"cash --user alice --subject org --amount $5 --window 1h": "--subject: a limit under a user must have subject user",
	} {
		s.refuses(want, append([]string{"limits", "set", "--org", "acme"}, strings.Fields(args)...)...)
	}
}

// TestLimitsResetAll checks that a reset of several counters shows them, changes nothing without
// --yes, and then resets those that it names.
func TestLimitsResetAll(t *testing.T) {
	s := newSite(t, orgs)
	cost := pricing.Split{Output: 1e9}
	s.charge(budget.Call{Org: "acme", User: "alice", Key: "k1", Model: "m", Provider: "p", Endpoint: "e"}, cost, pricing.Usage{})
	s.charge(budget.Call{Org: "acme", User: "bob", Key: "k2", Model: "m", Provider: "p", Endpoint: "e"}, cost, pricing.Usage{})
	used := func(user string, want int64) {
		t.Helper()
		if got := s.limit("daily", user).Used; got != want {
			t.Errorf("%s: got %d used, want %d", user, got, want)
		}
	}
	out, notes, code := llmguard(t, "limits", "reset", "--org", "acme", "--all", "--reason", "loop", "-c", s.file)
	if code == 0 {
		t.Errorf("without --yes: got exit code 0:\n%s", out)
	}
	has(t, out+notes, "would reset", "daily", "2 counters", "$2", "alice", "Confirm with --yes")
	used("alice", 1e9)
	has(t, s.must("limits", "reset", "--org", "acme", "--user", "bob", "--all", "--reason", "loop", "--yes"), "daily", "1 counter", "bob")
	used("bob", 0)
	used("alice", 1e9)
	has(t, s.must("limits", "reset", "daily", "--org", "acme", "--all", "--reason", "loop", "--yes"), "alice")
	used("alice", 0)
	has(t, s.must("limits", "reset", "--org", "acme", "--all", "--reason", "loop", "--yes"), "nothing to reset")
	has(t, s.must("audit", "--action", "limits.reset"), "loop")
}

// TestStopCommands checks that a stop is shown and recorded until it is ended.
func TestStopCommands(t *testing.T) {
	s := newSite(t, orgs)
	has(t, s.must("stop", "--org", "acme", "--reason", "runaway"), "stopped all spending of org acme", "llmguard resume --org acme")
	has(t, s.must("stop"), "all orgs")
	has(t, s.must("resume"), "resumed the spending of all orgs", "still stopped: org acme", "runaway")
	s.refuses("Not all spending is stopped", "resume")
	s.must("resume", "--org", "acme")
	s.refuses("is not stopped", "resume", "--org", "acme")
	has(t, s.must("audit", "--action", "spending.stop"), "acme", "runaway")
}
