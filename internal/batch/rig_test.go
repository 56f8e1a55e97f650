package batch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
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

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait more than they compute
	crowdedRest = 100 * time.Millisecond
	goleak.VerifyTestMain(m)
}

// rig is a batch store with real parts: Redis, a directory, a fake provider, and a worker
// if one is started.
type rig struct {
	t     *testing.T
	redis *redistest.Server // nil for another kind of store
	rdb   redis.UniversalClient
	fake  *fakeprovider.Server
	guard *guard.Guard
	queue *queue.Queue
	files *files.Store
	store *Store
	org   *guard.Org
}

func newRig(t *testing.T, limits ...budget.Limit) *rig {
	t.Helper()
	server := redistest.Start(t)
	r := newRigOn(t, server.Client(), limits...)
	r.redis = server
	return r
}

// newRigOn returns a rig on an existing store.
func newRigOn(t *testing.T, rdb redis.UniversalClient, limits ...budget.Limit) *rig {
	t.Helper()
	r := &rig{t: t, rdb: rdb, fake: fakeprovider.New(fakeprovider.Options{}), org: &guard.Org{Org: settings.Org{ID: "acme"}, Limits: limits}}
	if err := r.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	base, err := url.Parse(r.fake.BaseURL())
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{
		{
			ID: "anthropic", BaseURL: base, APIKey: "sk-ant", Dialect: providers.DialectOf("anthropic"),
			Pools: []providers.Pool{{ID: "claude", Models: []string{"claude-*"}}},
		},
		{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "main"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if r.queue, err = queue.New(redistest.DB(rdb), []queue.Pool{{ID: "main"}, {ID: "claude"}}, queue.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	r.guard = guard.New(guard.Options{
		Quota: r.queue.Quota(), Budget: budget.New(redistest.DB(rdb), budget.Options{}), StoreDeadline: 5 * time.Second, Log: log,
		Policy: &guard.Policy{Orgs: map[string]*guard.Org{"acme": r.org}, Catalogue: catalogue, Providers: set},
	})
	t.Cleanup(func() {
		if err := r.guard.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	blobs, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	r.files = files.New(redistest.DB(rdb), blobs, files.Options{Log: log})
	r.store = NewStore(redistest.DB(rdb), r.files, log)
	r.background(r.queue.Run)
	return r
}

// background runs something until the end of the test, or until it is stopped.
func (r *rig) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = run(ctx) }()
	stop = func() { cancel(); redistest.Came(r.t, done) }
	r.t.Cleanup(stop)
	return stop
}

// worker starts a worker with guard's runner.
func (r *rig) worker() (stop func()) {
	run := queue.NewRunner(r.queue, r.guard, wire.Limits{}, slog.New(slog.DiscardHandler), nil)
	w := queue.NewWorker(r.queue, run, queue.WorkerOptions{ShutdownTimeout: 100 * time.Millisecond, Concurrency: map[string]int{"main": 16, "claude": 16}})
	return r.background(w.Run)
}

func (r *rig) options() Options {
	return Options{Guard: r.guard, Queue: r.queue, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))}
}

// runner starts a runner.
func (r *rig) runner(o Options) (stop func()) { return r.background(NewRunner(r.store, o).Run) }

var alice = files.Owner{Org: "acme", User: "alice"}

func (r *rig) upload(text string) *files.File {
	r.t.Helper()
	up, err := r.files.Begin(r.t.Context(), alice, files.NewID())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(up, text); err != nil {
		r.t.Fatal(err)
	}
	f, err := up.Commit(r.t.Context(), "in.jsonl", files.Batch, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) create(f *files.File, ep wire.Endpoint) *Batch {
	r.t.Helper()
	b, err := r.store.Create(r.t.Context(), Request{Owner: Owner{Org: "acme", User: "alice", Key: "k1"}, File: f, Endpoint: ep})
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// await waits for a batch to be as wanted.
func (r *rig) await(id string, what string, as func(*Batch) bool) *Batch {
	r.t.Helper()
	var b *Batch
	for range 12_000 {
		var err error
		if b, err = r.store.Batch(r.t.Context(), "acme", "alice", id); err != nil {
			r.t.Fatal(err)
		}
		if as(b) {
			return b
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("never %s: %+v", what, b)
	return nil
}

func (r *rig) ended(id string) *Batch {
	r.t.Helper()
	return r.await(id, "ended", func(b *Batch) bool { return b.Status.Terminal() })
}

// results reads the files of a batch: every line by its custom_id. A duplicate custom_id
// fails the test.
func (r *rig) results(b *Batch) (output, errs map[string]result) {
	r.t.Helper()
	seen := map[string]bool{}
	read := func(id string) map[string]result {
		m := map[string]result{}
		for _, line := range strings.Split(strings.TrimSpace(r.content(id)), "\n") {
			if line == "" {
				continue
			}
			var res result
			if err := json.Unmarshal([]byte(line), &res); err != nil {
				r.t.Fatalf("%v: %s", err, line)
			}
			if seen[res.CustomID] {
				r.t.Errorf("custom_id %q has two results", res.CustomID)
			}
			seen[res.CustomID] = true
			m[res.CustomID] = res
		}
		return m
	}
	return read(b.Output), read(b.Errors)
}

func (r *rig) content(id string) string {
	r.t.Helper()
	if id == "" {
		return ""
	}
	f, err := r.files.File(r.t.Context(), alice, id)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := r.files.Open(r.t.Context(), f, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer body.Close()
	var buf bytes.Buffer
	if _, err := bufio.NewReader(body).WriteTo(&buf); err != nil {
		r.t.Fatal(err)
	}
	return buf.String()
}

// chat returns a line with a chat request.
func chat(id, content string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":%q}]}}`, id, content)
}

func chats(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(chat(fmt.Sprintf("r%d", i), "hello") + "\n")
	}
	return text.String()
}

// requests returns how many requests the provider received.
func (r *rig) requests() int { return int(r.fake.Totals().Requests) }
