package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/webhook"
)

// TestWebhooksByHand: a target in a private network becomes a dead letter, which the operator
// can list and replay.
func TestWebhooksByHand(t *testing.T) {
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "llmguard.yaml")
	text := `
redis: {addresses: ["` + server.Addr + `"]}
providers: [{id: openai, base_url: "http://127.0.0.1:1"}]
orgs:
  - {id: globex}
  - {id: acme, webhooks: [{url: "https://localhost:1/secret-path", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{books: &books{t: t, file: file, redis: server.Client()}}
	hooks, err := app.Webhooks(cfg, d.redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := hooks.Send(t.Context(), "acme", webhook.NewEvent("batch.failed", "batch_7", time.Now())); err != nil {
		t.Fatal(err)
	}
	if out, notes, err := d.run("webhooks", "dead"); err != nil || out != "" || !strings.Contains(notes, "no dead letters") {
		t.Errorf("before: %q, %q, %v", out, notes, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- hooks.Run(ctx) }()
	letters := func(org string) (list []webhook.DeadLetter) {
		if err := json.Unmarshal([]byte(d.must("webhooks", "dead", "--org", org, "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	redistest.Eventually(t, "a dead letter", func() bool { return len(letters("acme")) > 0 })
	stop()
	if err := redistest.Came(t, done); err != nil {
		t.Error(err)
	}
	l := letters("acme")[0]
	table := d.must("webhooks", "dead")
	for _, want := range []string{l.ID, "batch.failed", "batch_7", "localhost:1", "refused", "127.0.0.1"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if strings.Contains(table, "secret-path") || strings.Contains(table, "whsec_") {
		t.Errorf("the table shows a path or a secret:\n%s", table)
	}
	d.fails("no dead letter", "webhooks", "replay", l.ID, "--org", "globex")
	d.fails("no dead letter", "webhooks", "replay", "evt_nonsense")
	if out := d.must("webhooks", "replay", l.ID); !strings.Contains(out, l.ID) {
		t.Errorf("replay says %s", out)
	}
	if out := d.must("audit", "--action", "webhook.replay", "-o", "json"); !strings.Contains(out, l.ID) || !strings.Contains(out, "batch_7") {
		t.Errorf("the audit has %s", out)
	}
	if left := letters("acme"); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
	if n := server.Client().LLen(t.Context(), "asynq:{llmguard.webhooks}:pending").Val(); n != 1 {
		t.Errorf("%d deliveries are due after the replay", n)
	}
}
