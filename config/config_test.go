package config

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

var update = flag.Bool("update", false, "write testdata/wrong anew")

var environment = map[string]string{
	"REDIS_PASSWORD": "hunter2",
	"PEPPER":         "a pepper of sufficient length",
	"OPENAI_API_KEY": "sk-from-the-environment",
	"EMPTY":          "",
	"LEASE":          "soon",
	"RPM":            "150k",
	"A":              "one",
	"TRICK":          "x, rpm: 1 # ${A} $5",
}

func getenv(name string) (string, bool) {
	value, ok := environment[name]
	return value, ok
}

const minimal = `
providers: [{id: openai, base_url: "https://api.openai.com/v1"}]
orgs: [{id: acme}]
`

// complete adds the required sections to a case about something else.
func complete(text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for _, line := range strings.Split(strings.TrimSpace(minimal), "\n") {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+text, "\n"+name+":") && !strings.HasPrefix(text, "#") {
			text += line + "\n"
		}
	}
	return text
}

// casesOf returns the cases of a file in testdata: "== " and a title, a file, "--", and what is expected.
func casesOf(t testing.TB, path string) (out [][3]string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Split("\n"+string(data), "\n== ")[1:] {
		title, rest, _ := strings.Cut(c, "\n")
		text, want, _ := strings.Cut(rest, "\n--\n")
		out = append(out, [3]string{title, strings.TrimRight(text, "\n") + "\n", strings.TrimRight(want, "\n")})
	}
	return out
}

// wrongFiles are the files of cases with the complete error shown to the user.
func wrongFiles(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join("testdata", "wrong", "*.txt"))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	return list
}

// TestWrong reads testdata/wrong. -update rewrites the errors; review the diff.
func TestWrong(t *testing.T) {
	n := 0
	for _, path := range wrongFiles(t) {
		var out strings.Builder
		for _, c := range casesOf(t, path) {
			n++
			title, text, want, got := c[0], c[1], c[2], "no error"
			if cfg, err := Parse("llmguard.yaml", []byte(complete(text)), getenv); err != nil {
				got = err.Error()
				if cfg != nil {
					t.Errorf("%s: a Config besides the error", title)
				}
				if _, ok := errors.AsType[*Error](err); !ok {
					t.Errorf("%s: error of type %T", title, err)
				}
			}
			if got != want && !*update {
				t.Errorf("%s\n%s\ngot:\n%s\n\nwant:\n%s\n", title, text, got, want)
			}
			for _, secret := range []string{"hunter2", "supersecret", "20391823", "sk-proj", "lg_live_", "tango-uniform"} {
				if strings.Contains(got, secret) {
					t.Errorf("%s: the error repeats a secret:\n%s", title, got)
				}
			}
			fmt.Fprintf(&out, "== %s\n%s--\n%s\n\n", title, text, got)
		}
		if *update {
			if err := os.WriteFile(path, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 280 {
		t.Errorf("only %d cases read", n)
	}
}

// TestValues reads testdata/values.txt. A title is the path of a field. What is expected is a list of what may be
// written in the place of VALUE, with \n for a line break: "text => meaning", or "text !! the only error, at the field".
func TestValues(t *testing.T) {
	for _, c := range casesOf(t, filepath.Join("testdata", "values.txt")) {
		for line := range strings.SplitSeq(c[2], "\n") {
			text, want, taken := strings.Cut(line, " => ")
			if !taken {
				text, want, _ = strings.Cut(line, " !! ")
			}
			file := complete(strings.Replace(c[1], "VALUE", strings.ReplaceAll(text, `\n`, "\n"), 1))
			cfg, err := Parse("f.yaml", []byte(file), getenv)
			all, _ := errors.AsType[Errors](err)
			switch {
			case taken && err != nil:
				t.Errorf("%s: %s: %v", c[0], text, err)
			case taken:
				if got := valueAt(reflect.ValueOf(cfg).Elem(), c[0]); got != want {
					t.Errorf("%s: %s is %s, want %s", c[0], text, got, want)
				}
			case len(all) != 1 || all[0].Message != want || all[0].Path != c[0]:
				t.Errorf("%s: %s: got %v, want %s", c[0], text, err, want)
			}
		}
	}
}

// valueAt returns the text of a field.
func valueAt(v reflect.Value, path string) string {
	for part := range strings.SplitSeq(path, ".") {
		name, index, listed := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		v = v.Field(siblingOf(v, name).Index)
		if listed {
			i, _ := strconv.Atoi(index)
			v = v.Index(i)
		}
	}
	switch v := v.Interface().(type) {
	case Quantity, Rate:
		return settings.Text(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	default:
		return fmt.Sprint(v)
	}
}

// read returns the configuration of a text that may lack required sections.
func read(t *testing.T, text string) *Config {
	t.Helper()
	return mustParse(t, complete(text))
}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := Parse("llmguard.yaml", []byte(text), getenv)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestDefaults(t *testing.T) {
	cfg := mustParse(t, minimal)
	want := &Config{
		Name: "llmguard.yaml", Unusable: map[string]string{},
		Sum:        sha256.Sum256([]byte(minimal)),
		Listen:     "127.0.0.1:8080",
		Admin:      Admin{Listen: "127.0.0.1:9090"},
		Redis:      Redis{Mode: "single"},
		Requests:   Requests{MaxBody: 32_000_000, MaxDepth: 1000, MaxJSONTokens: 200_000},
		Store:      Store{OnFailure: "deny", LocalShare: 10, Deadline: 250 * time.Millisecond, HoldLease: time.Minute, AfterDataLoss: "close", Durability: "async", JournalMax: 64 << 20},
		Headers:    Headers{Standard: "x", RetryJitter: 10},
		KillSwitch: "off",
		Alerts:     Alerts{Format: "slack", PerHour: 20},
		Webhooks:   Webhooks{Timeout: 15 * time.Second, GiveUp: 72 * time.Hour},
		Log:        Log{Level: "info", Format: "json"},
		Memory:     Memory{Spool: 2_000_000_000},
		Timeouts: Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: time.Minute, Write: time.Minute,
			Idle: 2 * time.Minute, Drain: 5 * time.Second, Shutdown: 30 * time.Second,
		},
		Connections:   Connections{IPv6Prefix: 64, Streams: 2000},
		Ledger:        Ledger{MaxEntries: 1_000_000, MemoryShare: 40},
		Finance:       Finance{Export: FinanceExport{Format: "csv"}},
		Files:         Files{MaxFile: 200_000_000, TTL: 30 * 24 * time.Hour, MaxOrgBytes: 100_000_000_000, MaxOrgFiles: 50_000, MaxUserFiles: 25_000},
		Cache:         AnswerStore{Store: "redis"},
		Batches:       Batches{MaxLines: 50_000, InQueue: 1000, MaxOpen: 500, MaxUserOpen: 250, MaxEnded: 10_000, OverBudget: "warn", Poll: 30 * time.Second, Doubt: 2 * time.Minute},
		Conversations: Conversations{TTL: 7 * 24 * time.Hour, MaxSize: 1_000_000},
		Queue: Queue{
			ResultTTL: 24 * time.Hour, Lease: 30 * time.Second, Shutdown: 30 * time.Second,
			Hold: 280 * time.Second, KeepAlive: 15 * time.Second,
			OrgShare: 25, UserShare: 25, MemoryShare: 80, MemoryOrgShare: 50, Shares: Shares{Interactive: 20, Async: 10, Batch: 5},
			MaxAttempts: 3, RetryFor: 24 * time.Hour, DeadLetters: 1000, DeadTTL: 7 * 24 * time.Hour, BlobAbove: 64 << 10,
		},
		Providers: []Provider{{
			ID: "openai", Kind: "openai", Responses: "auto", BaseURL: "https://api.openai.com/v1", Identifiers: "org", ServiceTier: "default", BatchMode: "queue",
			OutputLimitField: "auto", ReportedCost: "auto", FailedCalls: "free",
			ConnectTimeout: 10 * time.Second, HeaderTimeout: 15 * time.Minute, IdleTimeout: 5 * time.Minute,
			Pools: []Pool{{
				ID: "openai", Models: []string{"*"}, TPMCounting: "requested", LearnQuota: true,
				MaxPause: 5 * time.Minute,
				MaxJobs:  100_000, MaxBytes: 1e9, MaxAge: 24 * time.Hour, WorkerConcurrency: 64,
			}},
		}},
		Orgs: []Org{{ID: "acme", Hold: "agents", GrowStep: 800, Cache: Cache{MaxBytes: 64_000_000}, Runs: Runs{MaxDepth: 4, MaxOpen: 100, MaxLife: 7 * 24 * time.Hour}, OverLimit: "wait", OnStoreFailure: "deny", OnDisconnect: "auto", RetryStartedJobs: true, Weight: 100, Spread: 1, MaxPriority: "normal", Alerts: Alerts{Format: "slack", PerHour: 20}}},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	if cfg.Redis.Configured() {
		t.Error("a store is configured by default")
	}
}

func TestFull(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := mustParse(t, string(data))
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	usd := func(n int64) Quantity { return Quantity{N: n * 1e9, Money: true} }
	check("password", cfg.Redis.Password.Reveal(), "hunter2")
	check("peppers", cfg.Auth.Peppers, []Pepper{
		{ID: "p2", Secret: "a pepper of sufficient length"}, {ID: "p1", Secret: "an old pepper of some length"},
	})
	check("proxies", fmt.Sprint(cfg.TrustedProxies), "[10.0.0.0/8 192.168.1.7/32]")
	check("max_body", cfg.Requests.MaxBody, Size(20<<20))
	check("shutdown", cfg.Timeouts.Shutdown, 90*time.Minute)
	check("prices", string(cfg.Prices.YAML), `  - model: house-7b
    # A comment between.
    prices: [{input: 0.10, output: 0.20}]

  - {model: house-70b, prices: [{input: 1, output: 2}]}
`)
	check("prices line", cfg.Prices.Line, 31)
	check("base_url", cfg.Providers[0].BaseURL, "https://api.openai.com/v1")
	check("api_key", cfg.Providers[0].APIKey.Reveal(), "sk-from-the-environment")
	check("pool", cfg.Providers[0].Pools[0], Pool{
		ID: "openai-main", Models: []string{"gpt-6*", "*-mini"}, RPM: 500, TPM: 2_000_000, TPMCounting: "requested", LearnQuota: true,
		MaxPause:    5 * time.Minute,
		Concurrency: 64, MaxJobs: 10_000, MaxBytes: 1e9, MaxAge: 180 * time.Hour, WorkerConcurrency: 64,
	})
	check("default pool", cfg.Providers[1].Pools[0].ID, "house")
	org := cfg.Orgs[0]
	check("output limit", org.DefaultOutputLimit, int64(4000))
	check("hold", org.Hold, "grow")
	check("grow step", org.GrowStep, int64(2000))
	check("bucket", org.Limits[0].Bucket, Bucket{Capacity: usd(50), Refill: Rate{Quantity: usd(10), Per: time.Hour}})
	check("subject", org.Limits[0].Subject, "org")
	check("calendar", org.Limits[3], Limit{
		Name: "month", Subject: "org", Metric: "cost", Mode: "enforce", Amount: usd(1000), Calendar: "month", TZ: "Europe/Berlin",
	})
	check("off", org.Limits[4].Mode, "off")
	check("own limit", org.Users[0].Limits[0], Limit{
		Name: "user-hour", Subject: "user", Only: "alice", Metric: "cost", Mode: "enforce", Amount: usd(20), Window: time.Hour,
	})
	check("expires", org.Users[0].Keys[0].Expires, time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC))
	check("expires in a zone", org.Users[0].Keys[1].Expires.UTC(), time.Date(2026, 6, 30, 16, 0, 0, 0, time.UTC))
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my.yaml")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("\ufeff"+strings.ReplaceAll(minimal, "\n", "\r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path)
	if err != nil || cfg.Name != path || cfg.Orgs[0].ID != "acme" {
		t.Errorf("byte order mark and CRLF: %v", err)
	}
	_, err = Parse("f.yaml", []byte("log: {level: info}\nlisten: \"\xff\"\n"), getenv)
	if want := "f.yaml:2:1: the line is not valid UTF-8"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestBigFile: a file with 5,000 users is read fast enough for a start, and two mistakes at its end
// are found.
func TestBigFile(t *testing.T) {
	var b strings.Builder
	b.WriteString(minimal[:strings.Index(minimal, "orgs")] + "orgs:\n  - id: acme\n    users:\n")
	const users = 5000
	for i := range users {
		fmt.Fprintf(&b, "      - id: user-%d\n        limits: [{name: own, amount: $5, window: 1h}]\n        keys:\n          - {id: key-%d, hash: \"sha256:%064x\"}\n", i, i, i)
	}
	cfg := mustParse(t, b.String())
	if n := len(cfg.Orgs[0].Users); n != users || cfg.Orgs[0].Users[users-1].ID != "user-4999" {
		t.Fatalf("%d users", n)
	}
	b.WriteString("      - id: user-7\n        keys: [{id: key-x, hash: \"sha256:" + strings.Repeat("0", 64) + "\"}]\n")
	_, err := Parse("big.yaml", []byte(b.String()), getenv)
	for _, want := range []string{
		`big.yaml:20006:13: orgs[0].users[5000].id: "user-7" is already used on line 34, by orgs[0].users[7].id`,
		`is already used on line 9, by orgs[0].users[0].keys[0].hash`,
		"2 errors in big.yaml",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestAliasBomb: aliases cannot expand a small file excessively.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("x-a: &a [" + strings.Repeat("m,", 2999) + "m]\nx-k: &k {id: k, hash: h, models: *a}\nx-l: &l [" +
		strings.Repeat("*k,", 2999) + "*k]\nx-u: &u {id: u, keys: *l}\norgs: [{id: a, users: [" + strings.Repeat("*u,", 2999) + "*u]}]\n")
	_, err := Parse("bomb.yaml", []byte(b.String()), getenv)
	if err == nil || !strings.Contains(err.Error(), "once its aliases are expanded") {
		t.Errorf("%.300v", err)
	}
	if all, ok := errors.AsType[Errors](err); !ok || len(all) > 10 {
		t.Errorf("%d errors", len(all))
	}
}

func FuzzParse(f *testing.F) {
	full, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(full))
	f.Add(minimal)
	for _, path := range wrongFiles(f) {
		for _, c := range casesOf(f, path) {
			f.Add(complete(c[1]))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Parse("f.yaml", []byte(text), getenv)
		if err == nil {
			for _, o := range cfg.Orgs {
				for _, l := range o.Limits {
					if l.Mode != "off" && l.Amount.N <= 0 && l.Bucket.Capacity.N <= 0 {
						t.Errorf("limit %q bounds nothing", l.Name)
					}
				}
			}
			return
		}
		var all Errors
		if cfg != nil || !errors.As(err, &all) || len(all) == 0 || err.Error() == "" {
			t.Errorf("Config %v, error %v", cfg, err)
		}
	})
}

// TestErrorsAreCutAtFifty: at most 50 errors are printed, and the last line has the total. errors.As finds each.
func TestErrorsAreCutAtFifty(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "unknown-%d: 1\n", i)
	}
	_, err := Parse("f.yaml", []byte(complete(b.String())), getenv)
	all, _ := errors.AsType[Errors](err)
	text := fmt.Sprint(err)
	if got := strings.Count(text, "unknown field"); got != 50 || len(all.Unwrap()) != 60 {
		t.Errorf("got %d errors, %d written, want 60 and 50", len(all), got)
	}
	if want := "... and 10 more\n60 errors in f.yaml"; !strings.HasSuffix(text, want) {
		t.Errorf("got %s, want the end %q", text, want)
	}
	if first, ok := errors.AsType[*Error](err); !ok || first.Line != 1 || first.File != "f.yaml" {
		t.Errorf("got %+v, want the error of line 1", first)
	}
}
