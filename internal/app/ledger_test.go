package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

func TestLimitsOf(t *testing.T) {
	cfg, err := config.Parse("c.yaml", []byte(`
providers: [{id: house, base_url: "http://127.0.0.1:1", model_map: {smart: gpt-4o}}]
orgs:
  - id: acme
    limits:
      - {name: all, amount: "$1", window: 1h}
      - {name: per-user, subject: user, amount: "$1", window: 1h}
      - {name: bobs, subject: user, only: bob, amount: "$1", window: 1h}
      - {name: per-key, subject: key, amount: "$1", window: 1h}
      - {name: per-address, subject: ip, amount: "$1", window: 1h}
      - {name: big, models: ["gpt-4*"], amount: "$1", window: 1h}
      - {name: embed, endpoints: [embeddings], amount: "$1", window: 1h}
      - {name: none, mode: "off", amount: "$1", window: 1h}
    users: [{id: bob}, {id: ann, limits: [{name: per-user, amount: "$2", window: 1h}]}]
`), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	f := func(c ledger.Call, want ...string) {
		t.Helper()
		c.Org = "acme"
		list, err := LimitsOf(cfg, c)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range list {
			got = append(got, l.ID)
			if l.ID == "per-user" && (l.Shape.Amount == 2e9) != (c.User == "ann") {
				t.Errorf("%s of %s: %d", l.ID, c.User, l.Shape.Amount)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%+v stood under %v, want %v", c, got, want)
		}
	}
	f(ledger.Call{User: "ann"}, "all", "per-user")
	f(ledger.Call{User: "bob", Key: "k"}, "all", "bobs", "per-key", "per-user")
	f(ledger.Call{User: "ann", IP: "10.0.0.1", Model: "smart", Provider: "house", Endpoint: "chat.completions"},
		"all", "big", "per-address", "per-user")
	f(ledger.Call{User: "ann", Model: "ada", Endpoint: "embeddings"}, "all", "embed", "per-user")
	if _, err := LimitsOf(cfg, ledger.Call{Org: "gone"}); err == nil {
		t.Error("an org that is not in the file has limits")
	}
}

// TestAppExports checks that a running process writes the ledgers of its orgs to files.
func TestAppExports(t *testing.T) {
	rdb := redistest.Start(t).Client()
	store := budget.New(redistest.DB(rdb), budget.Options{})
	who := ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "ann"}
	if _, err := store.Adjust(t.Context(), ledger.Adjustment{ID: "x", Call: who, Amount: -5, By: "carla", Reason: "test"}, nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := parse(t, "timeouts: {drain: 0s}\nledger: {export_dir: "+dir+"}\n")
	a, err := New(Options{Config: cfg, Redis: redistest.DB(rdb), Roles: Worker, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var text []byte
	for range 6000 {
		files, _ := filepath.Glob(filepath.Join(dir, "acme", "*.jsonl"))
		if len(files) == 1 {
			if text, _ = os.ReadFile(files[0]); len(text) > 0 {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if err := redistest.Came(t, ended); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(text), `"corrects":"`+who.ID+`"`) {
		t.Errorf("the file has %q", text)
	}
}

func TestExporterOfConfig(t *testing.T) {
	nobody := func(context.Context) []string { return nil }
	store := budget.New(nil, budget.Options{})
	if x, err := exporter(parse(t, ""), store, nobody); x != nil || err != nil {
		t.Errorf("an exporter without a directory: %v, %v", x, err)
	}
	cfg := parse(t, "ledger: {max_entries: 5000}\n")
	if n := LedgerLength(cfg.Ledger); n != 5000 {
		t.Errorf("%d entries stay, want 5000", n)
	}
	cfg.Ledger.ExportDir = filepath.Join(t.TempDir(), "a", "b")
	if x, err := exporter(cfg, store, nobody); x == nil || err != nil || LedgerLength(cfg.Ledger) != 50_000 {
		t.Errorf("%v, %v, %d entries", x, err, LedgerLength(cfg.Ledger))
	}
	if err := os.WriteFile(filepath.Join(cfg.Ledger.ExportDir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Ledger.ExportDir = filepath.Join(cfg.Ledger.ExportDir, "file", "c")
	if _, err := exporter(cfg, store, nobody); err == nil {
		t.Error("a directory that cannot be made is accepted")
	}
}
