package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// ledger fills the site's Redis with calls of every user, model and class.
func ledger(t *testing.T) (s *site, total pricing.Nano) {
	t.Helper()
	s = newSite(t, orgs)
	now := time.Now().UTC()
	if midnight := now.Truncate(24*time.Hour).AddDate(0, 0, 1); midnight.Sub(now) < 30*time.Second {
		t.Skip("too close to midnight UTC")
	}
	for i, who := range [][3]string{{"acme", "alice", "a1"}, {"acme", "bob", "b1"}, {"globex", "gus", "g1"}, {"acme", "alice", "a2"}} {
		for k, model := range []string{"gpt-4o", "gpt-4o-mini", "o3"} {
			n := pricing.Nano(i*10 + k + 1)
			cost := pricing.Split{Input: n, CachedInput: 2 * n, CacheWrite: 3 * n, Output: 5 * n, Fees: 7 * n}
			used := pricing.Usage{Input: 100, CachedInput: 20, CacheWrite: 30, Output: 10, Requests: 1}
			endpoint := []string{"chat.completions", "embeddings"}[k%2]
			s.charge(budget.Call{Org: who[0], User: who[1], Key: who[2], Model: model, Provider: "openai", Endpoint: endpoint}, cost, used)
			total += cost.Total()
		}
	}
	return s, total
}

// usageReport is the output of `usage -o json`.
type usageReport struct {
	From, To string
	Lines    []usageLine
	Total    usageLine
}

type usageLine struct {
	By     map[string]string
	Calls  int64
	Input  int64        `json:"input_tokens"`
	Output int64        `json:"output_tokens"`
	Tokens int64        `json:"tokens"`
	Cost   pricing.Nano `json:"cost_nano_usd"`
}

// TestUsageAddsUp: however usage is grouped, it adds up to the ledger to the nano-USD.
func TestUsageAddsUp(t *testing.T) {
	s, want := ledger(t)
	var booked pricing.Nano
	for line := range strings.Lines(s.must("usage", "export", "--org", "all")) {
		var e struct {
			Cost pricing.Nano `json:"cost_nano"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		booked += e.Cost
	}
	if booked != want {
		t.Errorf("the ledger has %s, want %s", booked, want)
	}
	dimensions := []string{"org", "user", "key", "model", "provider", "endpoint", "day", "month", "class"}
	lines := map[string]int{"org": 2, "user": 3, "key": 4, "model": 3, "provider": 1, "endpoint": 2, "day": 1, "month": 1, "class": 5}
	for i, d := range dimensions {
		pair := d + "," + dimensions[(i+1)%len(dimensions)]
		for _, by := range []string{d, pair} {
			var r usageReport
			s.read(&r, "usage", "--org", "all", "--by", by)
			var sum pricing.Nano
			for _, l := range r.Lines {
				sum += l.Cost
			}
			if sum != want || r.Total.Cost != want {
				t.Errorf("--by %s: the lines are %s, the total %s; want %s", by, sum, r.Total.Cost, want)
			}
			if by == d && len(r.Lines) != lines[d] {
				t.Errorf("--by %s: %d lines, want %d", by, len(r.Lines), lines[d])
			}
		}
	}
}

// TestUsageForms: table, JSON and CSV agree on every line.
func TestUsageForms(t *testing.T) {
	s, _ := ledger(t)
	var r usageReport
	s.read(&r, "usage", "--org", "acme", "--by", "user,model", "--sort", "calls")
	table := s.must("usage", "--org", "acme", "--by", "user,model", "--sort", "calls")
	rows, err := csv.NewReader(strings.NewReader(s.must("usage", "--org", "acme", "--by", "user,model", "--sort", "calls", "-o", "csv"))).ReadAll()
	if err != nil || len(rows) != len(r.Lines)+1 {
		t.Fatalf("csv %v, %v; want %d lines", rows, err, len(r.Lines)+1)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	for i, l := range r.Lines {
		row := rows[i+1]
		usd := strings.TrimPrefix(l.Cost.String(), "$")
		if row[at["user"]] != l.By["user"] || row[at["model"]] != l.By["model"] || row[at["cost_usd"]] != usd || row[at["calls"]] != fmt.Sprint(l.Calls) {
			t.Errorf("csv line %v, json %+v", row, l)
		}
		has(t, table, fmt.Sprintf("%s %s %d %d", l.By["user"], l.By["model"], l.Calls, l.Input), l.Cost.String())
	}
	if today := time.Now().UTC().Format(time.DateOnly); r.From != today || r.To != today {
		t.Errorf("from %s to %s, want today, %s", r.From, r.To, today)
	}
}

// TestUsagePeriodEdges: a period includes its first and last day completely, and nothing
// outside.
func TestUsagePeriodEdges(t *testing.T) {
	s, want := ledger(t)
	now := time.Now().UTC()
	today, yesterday, tomorrow := now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly), now.AddDate(0, 0, 1).Format(time.DateOnly)
	for _, test := range []struct {
		args string
		want pricing.Nano
	}{
		{"", want},
		{"--from " + today, want},
		{"--from " + today + " --to " + today, want},
		{"--from today --to now", want},
		{"--from " + now.Format("2006-01") + " --to " + now.Format("2006-01"), want},
		{"--from " + yesterday + " --to " + tomorrow, want},
		{"--days 1", want},
		{"--days 400", want},
		{"--from 1m", want},
		{"--from yesterday --to yesterday", 0},
		{"--from " + tomorrow + " --to " + tomorrow, 0},
		{"--days 3 --to yesterday", 0},
		{"--from 2001-02 --to 2001-02", 0},
	} {
		var r usageReport
		s.read(&r, append([]string{"usage", "--org", "all"}, strings.Fields(test.args)...)...)
		if r.Total.Cost != test.want {
			t.Errorf("usage %s: %s, want %s", test.args, r.Total.Cost, test.want)
		}
	}
}

// TestUsagePeriodRefused: every command that takes a period rejects invalid ones.
func TestUsagePeriodRefused(t *testing.T) {
	s := newSite(t, orgs)
	for _, command := range []string{"usage", "usage entries", "usage export", "usage audit", "limits shadow", "audit"} {
		for _, test := range []struct{ want, args string }{
			{"--from 2026-13: expected a day", "--from 2026-13"},
			{"--from 2026-02-30: expected a day", "--from 2026-02-30"},
			{"--from -3d: expected a day", "--from=-3d"},
			{"--to whenever: expected a day", "--to whenever"},
			{"--days -1: expected 1 or more", "--days -1"},
			{"--from and --days cannot be combined", "--from 7d --days 7"},
			{"the period is empty", "--from 2026-02-02 --to 2026-02-01"},
		} {
			s.refuses(test.want, append(strings.Fields(command), append([]string{"--org", "acme"}, strings.Fields(test.args)...)...)...)
		}
	}
}

// TestEntriesFilters: a filter leaves exactly the matching entries, in time order.
func TestEntriesFilters(t *testing.T) {
	s, _ := ledger(t)
	type entry struct {
		ID, User, Key, Model string
		At                   time.Time
	}
	for _, test := range []struct {
		args string
		want int
		fits func(entry) bool
	}{
		{"--org acme", 9, func(entry) bool { return true }},
		{"--org all", 12, func(entry) bool { return true }},
		{"--org acme --user alice", 6, func(e entry) bool { return e.User == "alice" }},
		{"--org acme --key a2", 3, func(e entry) bool { return e.Key == "a2" }},
		{"--org all --model gpt-4o*", 8, func(e entry) bool { return strings.HasPrefix(e.Model, "gpt-4o") }},
		{"--org all --model gpt-4o --user gus", 1, func(e entry) bool { return e.Model == "gpt-4o" && e.User == "gus" }},
		{"--org all --kind settle", 12, func(entry) bool { return true }},
		{"--org all --kind adjust", 0, nil},
		{"--org all --estimated", 0, nil},
		{"--org acme --limit 0", 9, func(entry) bool { return true }},
		{"--org acme --from yesterday --to yesterday", 0, nil},
	} {
		var list []entry
		s.read(&list, append([]string{"usage", "entries"}, strings.Fields(test.args)...)...)
		if len(list) != test.want {
			t.Errorf("entries %s: %d, want %d", test.args, len(list), test.want)
		}
		for i, e := range list {
			if !test.fits(e) || !strings.Contains(test.args, "all") && i > 0 && e.At.Before(list[i-1].At) {
				t.Errorf("entries %s: %+v at %d does not belong there", test.args, e, i)
			}
		}
	}
	_, notes, _ := llmguard(t, "usage", "entries", "--org", "acme", "--limit", "3", "-c", s.file)
	has(t, notes, "showing the newest 3; list all with --limit 0")
}

// TestExportCSVAgrees: the CSV export has the documented columns and the same amounts as JSON
// Lines.
func TestExportCSVAgrees(t *testing.T) {
	s, want := ledger(t)
	rows, err := csv.NewReader(strings.NewReader(s.must("usage", "export", "--org", "all", "-o", "csv"))).ReadAll()
	if err != nil || len(rows) != 13 {
		t.Fatalf("%d lines, %v; want 13", len(rows), err)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	var sum pricing.Nano
	for _, row := range rows[1:] {
		parts := pricing.Nano(0)
		for _, class := range []string{"input_usd", "cached_input_usd", "cache_write_usd", "output_usd", "fees_usd"} {
			n, err := pricing.ParseUSD(row[at[class]])
			if err != nil {
				t.Fatalf("%s is %q: %v", class, row[at[class]], err)
			}
			parts += n
		}
		cost, err := pricing.ParseUSD(row[at["cost_usd"]])
		if err != nil || parts != cost {
			t.Errorf("the classes of %v are %s, the cost %s, %v", row, parts, cost, err)
		}
		sum += cost
	}
	if sum != want {
		t.Errorf("the export is %s, want %s", sum, want)
	}
}

// TestAdjustOnce: a correction with an id is applied once, and changes today's sums by exactly
// its amount.
func TestAdjustOnce(t *testing.T) {
	s, want := ledger(t)
	for range 3 {
		s.must("usage", "adjust", "--org", "acme", "--user", "alice", "--amount", "-$0.000000007", "--reason", "refund", "--by", "carla", "--id", "t-81")
	}
	var r usageReport
	s.read(&r, "usage", "--org", "all", "--by", "org")
	if r.Total.Cost != want-7 {
		t.Errorf("after one correction the total is %s, want %s", r.Total.Cost, want-7)
	}
	s.refuses("t-81", "usage", "adjust", "--org", "acme", "--user", "alice", "--amount", "$9", "--reason", "other", "--id", "t-81")
	for args, want := range map[string]string{
		"--amount ten":                          "amount ten: expected an amount such as '-$1.20'",
		"--amount 0.0000000001":                 "amount 0.0000000001: expected an amount",
		"--amount 1 --id has|bars":              "id",
		"--amount 1 --call x":                   "call x: this is not a call's id (26 letters and digits)",
		"--amount 1 --call " + wire.NewCallID(): "The ledger of org acme has no such call",
	} {
		line := append([]string{"usage", "adjust", "--org", "acme", "--user", "alice", "--reason", "r"}, strings.Fields(args)...)
		s.refuses(want, line...)
	}
}
