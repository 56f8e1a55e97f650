package cli

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// books is a configuration and its Redis.
type books struct {
	t     *testing.T
	file  string
	redis *redis.Client
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
	return &books{t: t, file: file, redis: server.Client()}
}

// desk is a configuration with a queue, driven from the command line.
type desk struct {
	*books
	q *queue.Queue
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	b := newBooks(t)
	cfg, err := config.Load(b.file)
	if err != nil {
		t.Fatal(err)
	}
	q, _, err := app.Queue(t.Context(), cfg, redistest.DB(b.redis), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &desk{b, q}
}

func (d *desk) put(org, user, model string) string {
	d.t.Helper()
	j := &queue.Job{
		ID: d.q.NewID("openai"), Pool: "openai", Org: org, User: user, Key: "k1", Class: queue.Async, Endpoint: wire.ChatCompletions,
		Model: model, Tokens: 10, Cost: 5_000, CallID: wire.NewCallID(), Header: http.Header{},
	}
	if err := d.q.Put(d.t.Context(), j, []byte("{}")); err != nil {
		d.t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	return j.ID
}

// run runs a command line and returns its output.
func (d *desk) run(args ...string) (string, string, error) {
	var out, notes strings.Builder
	err := run(d.t.Context(), append(args, "-c", d.file), &out, &notes)
	return out.String(), notes.String(), err
}

func (d *desk) must(args ...string) string {
	d.t.Helper()
	out, notes, err := d.run(args...)
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", args, err, notes)
	}
	return out
}
