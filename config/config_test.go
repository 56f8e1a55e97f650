package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
)

var update = flag.Bool("update", false, "write testdata/wrong.txt anew")

var environment = map[string]string{
	"REDIS_PASSWORD": "hunter2",
	"PEPPER":         "a pepper of sufficient length",
	"OPENAI_API_KEY": "sk-from-the-environment",
	"EMPTY":          "",
	"LEASE":          "soon",
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
	for _, line := range strings.Split(strings.TrimSpace(minimal), "\n") {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+text, "\n"+name+":") && !strings.HasPrefix(text, "#") {
			text += line + "\n"
		}
	}
	return text
}

// TestWrong reads testdata/wrong.txt: "== name of the case", the file, "--", and the complete error
// shown to the user. -update rewrites the errors; review the diff.
func TestWrong(t *testing.T) {
	path := filepath.Join("testdata", "wrong.txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cases := strings.Split("\n"+string(data), "\n== ")[1:]
	for _, c := range cases {
		title, rest, _ := strings.Cut(c, "\n")
		text, want, _ := strings.Cut(rest, "\n--\n")
		text, want = strings.TrimRight(text, "\n")+"\n", strings.TrimRight(want, "\n")
		got := "no error"
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
		for _, secret := range []string{"hunter2", "supersecret", "20391823", "sk-proj", "lg_live_"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: the error repeats a secret:\n%s", title, got)
			}
		}
		fmt.Fprintf(&out, "== %s\n%s--\n%s\n\n", title, text, got)
	}
	if len(cases) < 60 {
		t.Errorf("only %d cases read", len(cases))
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
		Name:       "llmguard.yaml",
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
		Orgs: []Org{{ID: "acme", Hold: "max", GrowStep: 800, Cache: Cache{MaxBytes: 64_000_000}, Runs: Runs{MaxDepth: 4, MaxOpen: 100, MaxLife: 7 * 24 * time.Hour}, OverLimit: "wait", OnStoreFailure: "deny", OnDisconnect: "auto", RetryStartedJobs: true, Weight: 100, Spread: 1, MaxPriority: "normal", Alerts: Alerts{Format: "slack", PerHour: 20}}},
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

func TestUserLimits(t *testing.T) {
	cfg := mustParse(t, minimal[:strings.Index(minimal, "orgs")]+`
orgs:
  - id: acme
    limits:
      - {name: org, amount: $50, window: 1h}
      - {name: each, subject: user, amount: $5, window: 1h}
      - {name: bobs, subject: user, only: bob, amount: $1, window: 1h}
    users:
      - id: alice
        limits:
          - {name: each, amount: $20, window: 1h}
          - {name: extra, amount: $9, calendar: day}
      - id: bob
`)
	for i, want := range []string{"org=50 each=20 extra=9", "org=50 each=5 bobs=1"} {
		var got []string
		for _, l := range cfg.Defaults.UserLimits(&cfg.Orgs[0], &cfg.Orgs[0].Users[i]) {
			got = append(got, fmt.Sprintf("%s=%d", l.Name, l.Amount.N/1e9))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("user %d: got %s, want %s", i, s, want)
		}
	}
	if n := len(cfg.Orgs[0].Limits); n != 3 {
		t.Errorf("UserLimits changed the org's own list: %d limits", n)
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{"A": "one", "RPM": "150k", "TRICK": "x, rpm: 1 # ${A} $5"}
	for text, want := range map[string]string{
		"${A}":             "one",
		"a-${A}-${A}":      "a-one-one",
		"${B:-two}":        "two",
		"${A:-two}":        "one",
		"${B:-}x":          "x",
		"$$5 $${A} $A 5$":  "$5 ${A} $A 5$",
		"${B:-a:-b}":       "a:-b",
		"${TRICK}":         "x, rpm: 1 # ${A} $5",
		`"quoted: ${A}"`:   "quoted: one",
		"'single ${A}'":    "single one",
		"plain $ {A} text": "plain $ {A} text",
		"|-\n      ${A}":   "one",
	} {
		doc := "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    organization: " + text +
			"\n    pools: [{id: p, rpm: \"${RPM}\"}]\norgs: [{id: acme}]\n"
		cfg, err := Parse("f", []byte(doc), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := cfg.Providers[0].Organization; got != want || cfg.Providers[0].Pools[0].RPM != 150_000 {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	text := keys.New(keys.Live)
	cfg := &Config{Auth: Auth{Peppers: []Pepper{{ID: "p", Secret: Secret(text)}}}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "cfg", cfg, "secret", cfg.Auth.Peppers[0].Secret)
	all := fmt.Sprintf("%v %+v %#v %s %q", cfg, cfg, cfg, cfg.Auth.Peppers[0].Secret, cfg.Auth) + log.String()
	if strings.Contains(all, text) || !strings.Contains(all, "[secret]") {
		t.Error(all)
	}
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
	wrong, err := os.ReadFile(filepath.Join("testdata", "wrong.txt"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(full))
	f.Add(minimal)
	for _, c := range strings.Split("\n"+string(wrong), "\n== ")[1:] {
		_, rest, _ := strings.Cut(c, "\n")
		text, _, _ := strings.Cut(rest, "\n--\n")
		f.Add(complete(text))
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
