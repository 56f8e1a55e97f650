package cli

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

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
	q, _, err := app.Queue(t.Context(), cfg, b.redis, slog.New(slog.DiscardHandler))
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

func (d *desk) fails(want string, args ...string) {
	d.t.Helper()
	if _, _, err := d.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		d.t.Errorf("%v: %v, want %q", args, err, want)
	}
}
