package cli

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// books is a configuration, its Redis, and a store for charges.
type books struct {
	t     *testing.T
	file  string
	redis *redis.Client
	store *budget.Store
	today string
}

func newBooks(t *testing.T) *books {
	t.Helper()
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "llmguard.yaml")
	text := `
redis: {addresses: ["` + server.Addr + `"]}
providers: [{id: openai, base_url: "http://127.0.0.1:1"}]
orgs:
  - id: acme
    limits: [{name: user-day, subject: user, amount: "$5", window: 1d}, {name: calls, metric: requests, amount: 100, window: 1h}]
    users: [{id: alice}, {id: bob}]
  - {id: globex, users: [{id: gus}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC()
	if left := now.Truncate(24*time.Hour).AddDate(0, 0, 1).Sub(now); left < 30*time.Second {
		t.Skip("too close to midnight UTC")
	}
	rdb := server.Client()
	return &books{t: t, file: file, redis: rdb, store: budget.New(rdb, budget.Options{}), today: now.Format(time.DateOnly)}
}

var userDay = budget.Limit{ID: "user-day", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: 5e9, Window: 24 * time.Hour}}

// charge records a call and returns its id.
func (b *books) charge(c budget.Call, split pricing.Split, estimated bool) string {
	b.t.Helper()
	c.ID, c.Provider, c.Endpoint = wire.NewCallID(), "openai", "chat.completions"
	cost := budget.Amounts{Cost: split.Total()}
	h, err := b.store.Hold(b.t.Context(), budget.Terms{Limits: []budget.Limit{userDay}, Call: c, Max: cost, Expected: cost})
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = b.store.Settle(b.t.Context(), h, budget.Settlement{
		Actual: cost, Split: split, Estimated: estimated, Outcome: "completed", Status: 200,
		Usage: pricing.Usage{Input: 100, CachedInput: 60, Output: 10, Requests: 1},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return c.ID
}

// some records three calls in two orgs.
func (b *books) some() (alice, bob, gus string) {
	alice = b.charge(budget.Call{Org: "acme", User: "alice", Key: "a1", Model: "gpt-4o"}, pricing.Split{Input: 400_000_000, CachedInput: 100_000_000, Output: 1_000_000_001}, false)
	bob = b.charge(budget.Call{Org: "acme", User: "bob", Key: "b1", Model: "=cmd()"}, pricing.Split{Output: 250_000_000}, true)
	gus = b.charge(budget.Call{Org: "globex", User: "gus", Key: "g1", Model: "gpt-4o"}, pricing.Split{Input: 3_000_000_000}, false)
	return alice, bob, gus
}

// says runs `usage` and returns everything it prints.
func (b *books) says(args ...string) string {
	b.t.Helper()
	return says(b.t, append(append([]string{"usage"}, args...), "--exact", "-c", b.file)...)
}

// wants compares the output of a command. NOW, ID and ME stand for values that differ between
// runs; runs of spaces count as one.
func (b *books) wants(want string, args ...string) {
	b.t.Helper()
	got := b.says(args...)
	got = regexp.MustCompile(`20\d\d-\d\d-\d\d \d\d:\d\d:\d\d`).ReplaceAllString(got, "NOW")
	got = strings.ReplaceAll(got, b.today, "TODAY")
	got = regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{26}\b`).ReplaceAllString(got, "ID")
	got = regexp.MustCompile(` +`).ReplaceAllString(got, " ")
	if got = strings.TrimSpace(got); got != strings.TrimSpace(want) {
		b.t.Errorf("usage %s says\n%s\nwant\n%s", strings.Join(args, " "), got, strings.TrimSpace(want))
	}
}

func TestUsageSums(t *testing.T) {
	b := newBooks(t)
	b.wants("no spending on TODAY UTC\non TODAY UTC\nuser model calls input cached output cost estimated overrun\ntotal 0 0 0 0 $0.000000000 $0.000000000 $0.000000000", "--org", "acme")
	b.some()
	b.wants(`
on TODAY UTC
user model calls input cached output cost estimated overrun
alice gpt-4o 1 100 60 10 $1.500000001 $0.000000000 $0.000000000
bob =cmd() 1 100 60 10 $0.250000000 $0.250000000 $0.000000000
total 2 200 120 20 $1.750000001 $0.250000000 $0.000000000`, "--org", "acme")
	b.wants(`
on TODAY UTC
org class tokens cost
acme output 20 $1.250000001
acme input 80 $0.400000000
acme cached_input 120 $0.100000000
globex input 40 $3.000000000
globex cached_input 60 $0.000000000
globex output 10 $0.000000000
total 330 $4.750000001`, "--org", "all", "--by", "org,class", "--sort", "org")
	b.wants("org,provider,endpoint,calls,input_tokens,cached_input_tokens,cache_write_tokens,output_tokens,cost_usd,estimated_usd,overrun_usd,adjusted_usd\n"+
		"globex,openai,chat.completions,1,100,60,0,10,3.000000000,0.000000000,0.000000000,0.000000000\n"+
		"acme,openai,chat.completions,2,200,120,0,20,1.750000001,0.250000000,0.000000000,0.000000000",
		"--org", "globex,acme", "--by", "org,provider,endpoint", "-o", "csv", "--from", "2d")
	b.wants("model,class,tokens,cost_usd\n'=cmd(),output,10,0.250000000\n'=cmd(),cached_input,60,0.000000000\n'=cmd(),input,40,0.000000000\n"+
		"gpt-4o,output,10,1.000000001\ngpt-4o,input,40,0.400000000\ngpt-4o,cached_input,60,0.100000000",
		"--org", "acme", "--by", "model,class", "--sort", "model", "-o", "csv", "--from", "1h")

	var answer struct {
		Lines []struct {
			By    map[string]string
			Calls int64
			Cost  int64 `json:"cost_nano_usd"`
		}
		Total struct {
			Cost int64 `json:"cost_nano_usd"`
		}
	}
	if err := json.Unmarshal([]byte(b.says("--org", "all", "--by", "day,user", "-o", "json", "--days", "3")), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Total.Cost != 4_750_000_001 || len(answer.Lines) != 3 || answer.Lines[0].By["user"] != "gus" || answer.Lines[0].By["day"] != b.today {
		t.Errorf("json says %+v", answer)
	}
}

func TestUsageErrors(t *testing.T) {
	b := newBooks(t)
	for _, test := range []struct{ args, want string }{
		{"--org nobody", "--org nobody: no such org. Orgs: acme, globex"},
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
	} {
		b.wants("llmguard: "+test.want, strings.Fields(test.args)...)
	}
}

func TestUsagePeriods(t *testing.T) {
	now := time.Date(2026, 11, 20, 15, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		p        period
		from, to string // first and last day
	}{
		{period{}, "2026-11-20", "2026-11-21"},
		{period{count: 7}, "2026-11-14", "2026-11-21"},
		{period{from: "today"}, "2026-11-20", "2026-11-21"},
		{period{from: "yesterday", to: "yesterday"}, "2026-11-19", "2026-11-20"},
		{period{from: "2026-10", to: "2026-10"}, "2026-10-01", "2026-11-01"},
		{period{from: "2026-10-05", to: "2026-10-06"}, "2026-10-05", "2026-10-07"},
		{period{to: "2026-10-31", count: 2}, "2026-10-30", "2026-11-01"},
		{period{from: "16h"}, "2026-11-19", "2026-11-21"},
		{period{from: "30d", to: "29d"}, "2026-10-21", "2026-10-23"},
		{period{from: "2026-11-19T23:00:00-02:00"}, "2026-11-20", "2026-11-21"},
	} {
		from, to, err := test.p.days(now)
		if err != nil || from.Format(time.DateOnly) != test.from || to.Format(time.DateOnly) != test.to {
			t.Errorf("%+v: %s to %s, %v, want %s to %s", test.p, from, to, err, test.from, test.to)
		}
	}
}

func TestUsageEntries(t *testing.T) {
	b := newBooks(t)
	alice, bob, _ := b.some()
	b.wants(`
time (UTC) user key model kind input output cost id
NOW alice a1 gpt-4o settle 100 10 $1.500000001 ID
NOW bob b1 =cmd() settle 100 10 $0.250000000 ID estimated`, "entries", "--org", "acme")
	ids := func(args ...string) []string {
		var list []budget.Entry
		text := b.says(append([]string{"entries", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(text[strings.Index(text, "["):]), &list); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out := []string{}
		for _, e := range list {
			out = append(out, e.ID)
		}
		return out
	}
	for _, test := range []struct {
		args string
		want []string
	}{
		{"--org acme --estimated", []string{bob}},
		{"--org acme --user alice", []string{alice}},
		{"--org acme --key b1", []string{bob}},
		{"--org acme --model gpt-*", []string{alice}},
		{"--org acme --limit 1", []string{bob}},
		{"--org acme --kind expire", []string{}},
		{"--org acme --call " + alice, []string{alice}},
		{"--org all --call " + alice, []string{alice}},
	} {
		if got := ids(strings.Fields(test.args)...); strings.Join(got, " ") != strings.Join(test.want, " ") {
			t.Errorf("entries %s: %v, want %v", test.args, got, test.want)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(b.says("export", "--org", "all", "-o", "csv"))).ReadAll()
	if err != nil || len(rows) != 4 || rows[2][5] != "'=cmd()" || rows[3][12] != "3.000000000" || rows[1][24] != "0.400000000" {
		t.Errorf("csv %v, %v", rows, err)
	}
	lines := strings.Split(strings.TrimSpace(b.says("export", "--org", "all")), "\n")
	var e budget.Entry
	if err := json.Unmarshal([]byte(lines[0]), &e); len(lines) != 3 || err != nil || e.ID != alice || e.LedgerID == "" || e.Costs.Output != 1_000_000_001 {
		t.Errorf("jsonl %v, %v", lines, err)
	}
}

func TestUsageAdjust(t *testing.T) {
	b := newBooks(t)
	alice, _, _ := b.some()
	used := func() int64 {
		list, err := b.store.Peek(t.Context(), []budget.Limit{userDay}, budget.Call{Org: "acme", User: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Used
	}
	b.wants("adjusted the bill of user alice of org acme by -$1.200000000 (id fix-1, by carla)",
		"adjust", "--org", "acme", "--user", "alice", "--amount", "-$1.20", "--reason", "refund, ticket 81", "--by", "carla", "--id", "fix-1")
	if used() != 1_500_000_001 {
		t.Errorf("the limit is at %d; only the bill was to be corrected", used())
	}
	b.wants("adjustment fix-1 was already made at NOW UTC; nothing changed",
		"adjust", "--org", "acme", "--user", "alice", "--amount", "-$1.20", "--reason", "refund, ticket 81", "--by", "carla", "--id", "fix-1")
	b.wants("adjusted the bill of user alice of org acme by -$0.300000000 (id ID, by carla)\nand the current usage of user-day",
		"adjust", "--org", "acme", "--call", alice, "--amount", "-0.30", "--reason", "billed twice", "--by", "carla", "--limits")
	if used() != 1_200_000_001 {
		t.Errorf("the limit is at %d, want 0.30 less", used())
	}
	b.wants("llmguard: The call was made by user \"alice\", not \"bob\"",
		"adjust", "--org", "acme", "--call", alice, "--user", "bob", "--amount", "-0.30", "--reason", "x")
	b.wants("llmguard: The ledger of org globex has no such call. If it is too old, omit the call and name user, key and model",
		"adjust", "--org", "globex", "--call", alice, "--amount", "-0.30", "--reason", "x")
	b.wants(`
on TODAY UTC
user class tokens cost
alice output 10 $1.000000001
alice input 40 $0.400000000
alice cached_input 60 $0.100000000
alice adjusted 0 -$1.500000000
bob output 10 $0.250000000
bob cached_input 60 $0.000000000
bob input 40 $0.000000000
total 220 $0.250000001`, "--org", "acme", "--by", "user,class", "--sort", "user")
	b.wants(`
time (UTC) user key model kind input output cost id
NOW alice a1 gpt-4o settle 100 10 $1.500000001 ID
NOW alice a1 gpt-4o adjust 0 0 -$0.300000000 ID corrects ID, carla: billed twice`, "entries", "--org", "acme", "--call", alice)
	b.wants(`
time (UTC) org user action amount by reason limits id
NOW acme alice usage.adjust -$1.200000000 carla refund, ticket 81 fix-1
NOW acme alice usage.adjust -$0.300000000 carla billed twice user-day ID`, "audit", "--org", "all")
	if text := b.says("adjust", "--org", "acme", "--user", "bob", "--amount", "$1", "--reason", "x"); !strings.Contains(text, "@") {
		t.Errorf("%q does not say who on which machine", text)
	}
}

func TestUsageReconcile(t *testing.T) {
	b := newBooks(t)
	alice, _, _ := b.some()
	b.wants("nothing to reconcile", "reconcile", "--org", "all")
	late := func(id string, n pricing.Nano) {
		c := budget.Call{ID: id, Org: "acme", User: "alice", Key: "a1", Model: "gpt-4o"}
		old := budget.New(b.redis, budget.Options{Horizon: time.Nanosecond})
		_, _ = old.Settle(t.Context(), &budget.Hold{ID: id + "/0", Call: c, At: time.Now().Add(-2 * time.Hour)}, budget.Settlement{
			Actual: budget.Amounts{Cost: n}, Split: pricing.Split{Output: n},
		})
	}
	first, second := "01m7x425asv4hapb0hzey6k901", "01m7x425asv4hapb0hzey6k902"
	late(first, 70)
	late(second, 80)
	b.wants(`
arrived (UTC) org user model call attempt cost booked
NOW acme alice gpt-4o ID 0 $0.000000070 no
NOW acme alice gpt-4o ID 0 $0.000000080 no`, "reconcile", "--org", "all")
	b.wants("charged $0.000000070 to user alice of org acme", "reconcile", "charge", "--org", "acme", "--call", first, "--reason", "lost", "--by", "carla")
	late(first, 70) // a repeated report
	b.wants(`
arrived (UTC) org user model call attempt cost booked
NOW acme alice gpt-4o ID 0 $0.000000080 no
NOW acme alice gpt-4o ID 0 $0.000000070 yes, $0.000000070 (charge)`, "reconcile", "--org", "acme")
	b.wants("llmguard: The ledger already has this call (charge, $0.00000007). Drop the charge, or set although_booked",
		"reconcile", "charge", "--org", "acme", "--call", first, "--reason", "lost")
	b.wants("dropped $0.000000070 of user alice of org acme", "reconcile", "drop", "--org", "acme", "--call", first, "--reason", "a replay", "--by", "carla")
	b.wants("dropped $0.000000080 of user alice of org acme", "reconcile", "drop", "--org", "acme", "--call", second, "--reason", "a test", "--by", "carla")
	b.wants("nothing to reconcile", "reconcile", "--org", "acme")
	b.wants(`
time (UTC) user key model kind input output cost id
NOW alice a1 gpt-4o charge 0 0 $0.000000070 ID carla: lost`, "entries", "--org", "acme", "--call", first)
	_ = alice
}
