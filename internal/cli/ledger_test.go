package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// charged fills the site's Redis with calls of every user, model and class.
func charged(t *testing.T) (s *site, total pricing.Nano) {
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
			s.charge(ledger.Call{Org: who[0], User: who[1], Key: who[2], Model: model, Provider: "openai", Endpoint: endpoint}, cost, used)
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
	s, want := charged(t)
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

// TestUsagePeriodEdges: a period includes its first and last day completely, and nothing
// outside.
func TestUsagePeriodEdges(t *testing.T) {
	s, want := charged(t)
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

// TestExportCSVAgrees: the CSV export has the documented columns and the same amounts as JSON
// Lines.
func TestExportCSVAgrees(t *testing.T) {
	s, want := charged(t)
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

// TestUsageErrors: what a command cannot do is said in one line, and nothing is printed besides.
func TestUsageErrors(t *testing.T) {
	s := newSite(t, orgs)
	for _, test := range []struct{ args, want string }{
		{"--org nobody", "--org nobody: no such org; known: acme, globex"},
		{"--org acme --by user,colour", "--by colour: expected org, user, key, model, provider, endpoint, run, hour, day, month, class, group or label:NAME, separated by commas"},
		{"--org acme --sort day", "--sort day: expected cost, calls, tokens, estimated, overrun, refused or one of --by user,model"},
		{"--org acme -o xml", "--output xml: expected one of table, json, yaml, csv, jsonl"},
		{"--org acme --from tomorrow", "--from tomorrow: expected a day (2026-11-01), a month (2026-11), a time (2026-11-01T08:00:00Z), a duration ago (7d, 36h), today or yesterday"},
		{"--org acme --from 2026-02-01 --to 2026-01-01", "the period is empty: it starts at 2026-02-01T00:00:00Z and ends at 2026-01-02T00:00:00Z"},
		{"--org acme --from 7d --days 7", "--from and --days cannot be combined"},
		{"--org acme --days -1", "--days -1: expected 1 or more"},
		{"--org acme --from 2001-01-01", "the period has more than 3660 days; daily sums are kept for 400"},
		{"entires --org acme", `unknown command "entires" for "llmguard usage"; did you mean entries?`},
		{"entries --org acme --kind x", "--kind x: expected one of settle, expire, late, void, adjust, charge"},
		{"entries --org acme --call x", "--call x: this is not a call's id (26 letters and digits, as in the log and in X-Request-Id)"},
		{"entires --org acme --kind x", `unknown command "entires" for "llmguard usage"; did you mean entries?`},
		{"entries --org acme --sort size", "--sort size: expected time or cost"},
		{"adjust --org acme --user alice --amount -.20 --reason r", `--amount: expected an amount, got "-.20". In double quotes a shell expands $5 to nothing; use single quotes, as in '$5'`},
		{"entries --org acme --limit -1", "--limit -1: expected 0 or more"},
		{"adjust --org acme --user alice --amount 1", "--reason is required"},
		{"adjust --org acme --user alice --amount 0 --reason r", "amount 0: expected an amount such as '-$1.20' or 0.05, not 0"},
		{"adjust --org acme --amount 1 --reason r", "--user or --call is required"},
		{"adjust --org all --user gus --amount 1 --reason r", "--org: choose one org: acme, globex"},
		{"adjust --org acme --user gus --amount 1 --reason r", "Org acme has no user \"gus\". To correct the bill of a removed user, name the call"},
		{"reconcile drop --org acme --call " + wire.NewCallID() + " --reason r", "No such charge is on the list of org acme"},
		{"adjust --org acme --user alice --reason r --amount ten", "amount ten: expected an amount such as '-$1.20'"},
		{"adjust --org acme --user alice --reason r --amount 0.0000000001", "amount 0.0000000001: expected an amount"},
		{"adjust --org acme --user alice --reason r --amount 1 --id has|bars", "id"},
		{"adjust --org acme --user alice --reason r --amount 1 --call x", "call x: this is not a call's id (26 letters and digits)"},
		{"adjust --org acme --user alice --reason r --amount 1 --call " + wire.NewCallID(), "The ledger of org acme has no such call"},
	} {
		s.refuses(test.want, append([]string{"usage"}, strings.Fields(test.args)...)...)
	}
}

// TestUsageReconcile: a charge that came too late is booked or dropped, and not booked twice by mistake.
func TestUsageReconcile(t *testing.T) {
	s := newSite(t, orgs)
	empty, notes, _ := llmguard(t, "usage", "reconcile", "-c", s.file)
	if empty != "" || notes != "nothing to reconcile\n" {
		t.Errorf("got %q and %q, want a note", empty, notes)
	}
	late := func(id string, n pricing.Nano) {
		c := ledger.Call{ID: id, Org: "acme", User: "alice", Key: "a1", Model: "gpt-4o"}
		old := budget.New(redistest.DB(s.redis), budget.Options{Horizon: time.Nanosecond})
		_, _ = old.Settle(t.Context(), &budget.Hold{ID: id + "/0", Call: c, At: time.Now().Add(-2 * time.Hour)}, budget.Settlement{
			Actual: budget.Amounts{Cost: n}, Split: pricing.Split{Output: n},
		})
	}
	first, second := "01m7x425asv4hapb0hzey6k901", "01m7x425asv4hapb0hzey6k902"
	late(first, 70)
	late(second, 80)
	list := func() string { return s.must("usage", "reconcile", "--org", "all", "--exact") }
	has(t, list(), "arrived (UTC) org user model call attempt cost booked\n", "acme alice gpt-4o "+first+" 0 $0.000000070 no\n",
		second+" 0 $0.000000080 no\n")
	resolve := func(action, call, reason string) string {
		return s.must("usage", "reconcile", action, "--call", call, "--reason", reason, "--by", "carla", "--org", "acme", "--exact")
	}
	has(t, resolve("charge", first, "lost"), "charged $0.000000070 to user alice of org acme\n")
	late(first, 70) // a repeated report
	has(t, list(), first+" 0 $0.000000070 yes, $0.000000070 (charge)\n")
	s.refuses("The ledger already has this call (charge, $0.00000007). Drop the charge, or set although_booked",
		"usage", "reconcile", "charge", "--org", "acme", "--call", first, "--reason", "lost")
	has(t, resolve("drop", first, "a replay"), "dropped $0.000000070 of user alice of org acme\n")
	has(t, resolve("drop", second, "a test"), "dropped $0.000000080 of user alice of org acme\n")
	if text := list(); text != "" {
		t.Errorf("left: %s", text)
	}
	has(t, s.must("usage", "entries", "--org", "acme", "--call", first, "--exact"),
		"alice a1 gpt-4o charge 0 0 $0.000000070 "+first+" carla: lost")
}
