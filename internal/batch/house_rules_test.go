package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

// house is a deployment of batches: one Redis for all parts of a test, and a separate org
// for each part.
type house struct {
	rdb   redis.UniversalClient
	guard *guard.Guard
	queue *queue.Queue
	files *files.Store
	store *batch.Store
	orgs  map[string]*guard.Org
}

var (
	quiet    = slog.New(slog.DiscardHandler)
	orgNames = []string{"cancel", "files", "bounds", "restart", "foreign", "record"}
)

func newHouse(t *testing.T) *house {
	h := &house{rdb: redistest.Start(t).Client(), orgs: map[string]*guard.Org{}}
	for _, name := range orgNames {
		h.orgs[name] = &guard.Org{Org: settings.Org{ID: name}}
	}
	fake := fakeprovider.New(fakeprovider.Options{})
	must(t, fake.Start())
	t.Cleanup(func() { _ = fake.Close() })
	base, err := url.Parse(fake.BaseURL())
	must(t, err)
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "main"}}}})
	must(t, err)
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	must(t, err)
	h.queue, err = queue.New(redistest.DB(h.rdb), []queue.Pool{{ID: "main"}}, queue.Options{Log: quiet})
	must(t, err)
	h.guard = guard.New(guard.Options{
		Quota: h.queue.Quota(), Budget: budget.New(redistest.DB(h.rdb), budget.Options{}), StoreDeadline: 30 * time.Second, Log: quiet,
		Policy: &guard.Policy{Orgs: h.orgs, Catalogue: catalogue, Providers: set},
	})
	t.Cleanup(func() { must(t, h.guard.Close(context.WithoutCancel(t.Context()))) })
	blobs, err := blob.Open(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = blobs.Close() })
	h.files = files.New(redistest.DB(h.rdb), blobs, files.Options{Log: quiet})
	h.store = batch.NewStore(redistest.DB(h.rdb), h.files, quiet)
	h.background(t, h.queue.Run)
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// background runs something until it is stopped, at the latest at the end of t.
func (h *house) background(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx)
	}()
	stop = func() {
		cancel()
		redistest.Came(t, done)
	}
	t.Cleanup(stop)
	return stop
}

func (h *house) runner(t *testing.T, o batch.Options) (stop func()) {
	o.Guard, o.Queue, o.Log = h.guard, h.queue, quiet
	return h.background(t, batch.NewRunner(h.store, o).Run)
}

func (h *house) worker(t *testing.T) (stop func()) {
	run := queue.NewRunner(h.queue, h.guard, wire.Limits{}, quiet, nil)
	w := queue.NewWorker(h.queue, run, queue.WorkerOptions{ShutdownTimeout: 100 * time.Millisecond, Concurrency: map[string]int{"main": 8}})
	return h.background(t, w.Run)
}

func (h *house) create(t *testing.T, org, text string) *batch.Batch {
	t.Helper()
	up, err := h.files.Begin(t.Context(), files.Owner{Org: org, User: "alice"}, files.NewID())
	must(t, err)
	_, err = io.WriteString(up, text)
	must(t, err)
	f, err := up.Commit(t.Context(), "in.jsonl", files.Batch, 0)
	must(t, err)
	b, err := h.store.Create(t.Context(), batch.Request{
		Owner: batch.Owner{Org: org, User: "alice", Key: "k1", IP: "10.0.0.7", Models: []string{"gpt-*"}}, File: f,
		Endpoint: wire.ChatCompletions, Metadata: map[string]string{"team": "blue"}, OutputTTL: 2 * time.Hour,
	})
	must(t, err)
	return b
}

// await waits until a batch is as wanted.
func (h *house) await(t *testing.T, b *batch.Batch, what string, as func(*batch.Batch) bool) *batch.Batch {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		now, err := h.store.Batch(t.Context(), b.Org, b.User, b.ID)
		must(t, err)
		if as(now) {
			return now
		}
		b = now
	}
	t.Fatalf("never %s: %+v", what, b)
	return nil
}

func (h *house) ended(t *testing.T, b *batch.Batch) *batch.Batch {
	t.Helper()
	return h.await(t, b, "ended", func(b *batch.Batch) bool { return b.Status.Terminal() })
}

// share is a line of an output or error file.
type share struct {
	ID       string `json:"id"`
	CustomID string `json:"custom_id"`
	Response *struct {
		Status int             `json:"status_code"`
		ID     string          `json:"request_id"`
		Body   json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// lines reads a file of an ended batch in order; nil if there is none.
func (h *house) lines(t *testing.T, b *batch.Batch, id string) (out []share) {
	t.Helper()
	if id == "" {
		return nil
	}
	f, err := h.files.File(t.Context(), files.Owner{Org: b.Org, User: b.User}, id)
	must(t, err)
	body, err := h.files.Open(t.Context(), f, 0)
	must(t, err)
	defer body.Close()
	for d := json.NewDecoder(body); ; {
		var l share
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		out = append(out, l)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(good(fmt.Sprintf("r%02d", i)) + "\n")
	}
	return b.String()
}
