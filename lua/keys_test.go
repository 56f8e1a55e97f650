package lua_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	books "github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// TestScriptsTouchTheirKeysAlone: the lifecycles of calls, jobs, files, batches, keys and records
// work although scripts can only use keys that they declare.
func TestScriptsTouchTheirKeysAlone(t *testing.T) {
	w, rdb := newWatch(t)
	w.money(rdb)
	w.jobs(rdb)
	w.storage(rdb)
	w.answers(rdb)
	w.conversations(rdb)
	w.records(rdb)
	var missing []string
	for name, text := range sources(t) {
		if !library.MatchString(text) && !partOf.MatchString(text) && !w.ran[name] && !slices.Contains(rare, name) {
			missing = append(missing, name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("not tried: %s", strings.Join(missing, ", "))
	}
}

// rare lists scripts that need a second process, a browser, or minutes.
var rare = []string{"export", "batch_lease", "batch_step", "webhook_dead", "webhook_number", "calibrate", "present", "session_keep", "overdue", "ended", "lease", "place"}

// limits returns one limit of each shape.
func limits() []books.Limit {
	shape := func(id string, m books.Metric, s books.Shape) books.Limit {
		return books.Limit{ID: id, Subject: books.User, Metric: m, Shape: s}
	}
	return []books.Limit{
		shape("ring", books.Cost, books.Shape{Kind: books.Window, Amount: 1e9, Window: time.Hour}),
		shape("log", books.Cost, books.Shape{Kind: books.ExactWindow, Amount: 1e9, Window: time.Hour}),
		shape("bucket", books.Cost, books.Shape{Kind: books.Bucket, Amount: 1e9, Refill: 1e6, Per: time.Second}),
		shape("month", books.Cost, books.Shape{Kind: books.Calendar, Amount: 1e9, Calendar: "month"}),
		shape("open", books.Concurrency, books.Shape{Kind: books.Concurrent, Amount: 100}),
	}
}

var quiet = slog.New(slog.DiscardHandler)

// money holds, grows, settles, voids, expires and corrects calls.
func (w *watch) money(rdb redis.UniversalClient) {
	ctx := w.t.Context()
	store := books.New(redistest.DB(rdb), books.Options{Lease: 50 * time.Millisecond, SumLabels: []string{"project"}})
	call := func() ledger.Call {
		return ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "alice", Key: "k", Model: "m", Labels: "project=mobile"}
	}
	some := books.Amounts{Cost: 1000, Tokens: 10}
	hold := func() *books.Hold {
		h, err := store.Hold(ctx, books.Terms{Limits: limits(), Call: call(), Max: some, Expected: some})
		w.try(err)
		return h
	}
	h := hold()
	_, err := store.Extend(ctx, h, books.Amounts{Cost: 2000, Tokens: 20})
	w.try(err)
	_, err = store.Settle(ctx, h, books.Settlement{Actual: some, Outcome: "completed", Status: 200})
	w.try(err, store.Void(ctx, hold()), store.NoteShadow(ctx, "acme", []string{"a limit"}))
	_, err = store.Peek(ctx, limits(), call())
	w.try(err, store.Reset(ctx, limits()[0], call()))
	v := books.NewVirtual(books.Options{})
	on, err := v.Bind(limits(), call())
	w.try(err)
	_, err = store.Load(ctx, v, []*books.Standing{on})
	w.try(err)
	_, err = store.Requests.Count(ctx, []books.Limit{
		{ID: "a", Subject: books.Org, Metric: books.Requests, Shape: books.Shape{Kind: books.Window, Amount: 5, Window: time.Minute}},
		{ID: "b", Subject: books.Org, Metric: books.Requests, Shape: books.Shape{Kind: books.Bucket, Amount: 5, Refill: 5, Per: time.Minute}},
	}, call())
	w.try(err)
	_, err = store.Adjust(ctx, ledger.Adjustment{ID: "a1", Call: call(), Amount: 5, By: "carla", Reason: "r"}, limits()[:4])
	w.try(err)
	_, err = store.CountLabel(ctx, "acme", "project", "mobile", 2)
	w.try(err)
	run, _, err := store.Runs.Create(ctx, books.NewRun{
		Run: books.Run{Path: "run_a", Org: "acme", Amount: 9, Key: "k1"}, Life: time.Hour, Most: 5,
	})
	w.try(err)
	_, err = store.Runs.TopUp(ctx, run, "t1", 1, 0)
	w.try(err)
	_, err = store.Runs.End(ctx, run)
	w.try(err)
	store.Refusals.Add(books.RefusedCall{Call: call(), Cause: "limit:daily"})
	w.try(store.Refusals.Write(ctx))
	w.renewed(rdb)
	lost := hold()
	w.await("a hold expires", func() bool {
		n, err := store.Expiry.Sweep(ctx, "acme")
		w.try(err)
		return n > 0
	})
	_, err = store.Settle(ctx, lost, books.Settlement{Actual: some, Outcome: "completed", Status: 200})
	w.try(err)
}

// renewed runs a store until it has renewed a lease, and another until it has taken over the org
// after the first one stopped.
func (w *watch) renewed(rdb redis.UniversalClient) {
	store := books.New(redistest.DB(rdb), books.Options{Lease: 50 * time.Millisecond})
	_, err := store.Hold(w.t.Context(), books.Terms{Limits: limits(), Call: ledger.Call{ID: wire.NewCallID(), Org: "acme", User: "bob", Key: "k", Model: "m"}, Max: books.Amounts{Cost: 1}, Expected: books.Amounts{Cost: 1}})
	w.try(err)
	w.during(store, "renew")
	w.during(books.New(redistest.DB(rdb), books.Options{Lease: 50 * time.Millisecond}), "relinquish")
}

// during runs a store until a script has run.
func (w *watch) during(store *books.Store, script string) {
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- store.Run(ctx) }()
	w.await(script+" has run", func() bool { return w.has(script) })
	stop()
	redistest.Came(w.t, done)
}

// has reports whether a script has run.
func (w *watch) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[name]
}

func (w *watch) await(what string, is func() bool) {
	w.t.Helper()
	for range 12_000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Errorf("it never happened that %s", what)
}

// jobs puts, cancels and runs jobs, and takes quota for live calls.
func (w *watch) jobs(rdb redis.UniversalClient) {
	ctx, stop := context.WithCancel(w.t.Context())
	q, err := queue.New(redistest.DB(rdb), []queue.Pool{{ID: "p", RPM: 1000, TPM: 100_000, Concurrency: 50}}, queue.Options{Log: quiet})
	w.try(err)
	put := func() string {
		j := &queue.Job{
			ID: q.NewID("p"), Pool: "p", Org: "acme", User: "alice", Class: queue.Async, Tokens: 10, Endpoint: wire.ChatCompletions,
			Model: "m", CallID: wire.NewCallID(), Header: http.Header{},
		}
		w.try(q.Put(ctx, j, []byte("{}")))
		return j.ID
	}
	g, err := q.Quota().Take(ctx, quota.Request{Pool: "p", ID: wire.NewCallID(), Org: "acme", User: "alice", Tokens: 10})
	w.try(err)
	q.Quota().Step(ctx) // renews the leases of open calls
	w.try(q.Quota().Give(ctx, g, true), q.Quota().Block(ctx, "p", time.Millisecond))
	_, err = q.Quota().Observe(ctx, "p", quota.Head{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"0"}}, Sent: time.Now()})
	w.try(err)
	_, err = q.Quota().Resume(ctx, "p")
	w.try(err)
	j, err := q.Job(ctx, "acme", put())
	w.try(err)
	_, err = q.Expect(ctx, guard.Rooms{}, j)
	w.try(err)
	_, err = q.Places().Reserve(ctx, "acme", j.ID, time.Minute)
	w.try(err)
	_, err = q.Places().Return(ctx, "acme", j.ID, time.Minute, time.Minute)
	w.try(err)
	_, err = q.Depth(ctx, "p")
	w.try(err)
	_, err = q.Oldest(ctx, "p")
	w.try(err)
	_, err = q.Cancel(ctx, "acme", j.ID)
	w.try(err)
	var turns atomic.Int64
	worker := queue.NewWorker(q, func(ctx context.Context, c *queue.Claim) queue.Verdict {
		if turns.Add(1) == 1 {
			return queue.Verdict{Kind: queue.Requeue, Unused: true}
		}
		w.try(c.Start(ctx))
		return queue.Verdict{Kind: queue.Done, Status: http.StatusOK}
	}, queue.WorkerOptions{ShutdownTimeout: time.Second})
	var running sync.WaitGroup
	running.Go(func() { _ = q.Run(ctx) })
	running.Go(func() { _ = worker.Run(ctx) })
	id := put()
	w.await("a job has run", func() bool {
		j, err := q.Job(ctx, "acme", id)
		return err == nil && j.State == queue.Succeeded
	})
	w.await("tasks are compared with jobs", func() bool { return w.has("balance") })
	stop()
	redistest.Wait(w.t, running.Wait)
}

// conversations counts the tokens of a conversation.
func (w *watch) conversations(rdb redis.UniversalClient) {
	ctx, store := w.t.Context(), ownership.New(redistest.DB(rdb), nil, nil)
	a, err := store.Begin(ctx, "acme", "conv_1", "call", 5)
	w.try(err)
	_, err = store.Begin(ctx, "acme", "conv_1", "other", 5)
	w.try(err, store.End(ctx, a, 2, 7))
}

// storage stores files and a batch.
func (w *watch) storage(rdb redis.UniversalClient) {
	ctx := w.t.Context()
	blobs, err := blob.Open(ctx, w.t.TempDir())
	w.try(err)
	defer blobs.Close()
	stored := files.New(redistest.DB(rdb), blobs, files.Options{Log: quiet})
	w.try(stored.Agree(ctx))
	owner := files.Owner{Org: "acme", User: "alice"}
	upload, err := stored.Begin(ctx, owner, files.NewID())
	w.try(err)
	_, err = upload.Write([]byte("{}"))
	w.try(err)
	file, err := upload.Commit(ctx, "in.jsonl", files.Batch, 0)
	w.try(err)
	made := batch.NewStore(redistest.DB(rdb), stored, quiet)
	b, err := made.Create(ctx, batch.Request{Owner: batch.Owner{Org: "acme", User: "alice"}, File: file, Endpoint: wire.ChatCompletions})
	w.try(err, stored.Keep(ctx, file, time.Now().Add(48*time.Hour)))
	_, err = made.Cancel(ctx, "acme", "alice", b.ID)
	w.try(err, stored.Remove(ctx, owner, file.ID))
	memory := capacity.New(redistest.DB(rdb), nil, capacity.Options{}, nil)
	w.try(memory.Reserve(ctx, "acme", "a", capacity.Bytes{Reserved: 10, Written: 10}, time.Minute), memory.Release(ctx, "a"))
}

// records changes identities, and stores idempotency keys and places.
func (w *watch) records(rdb redis.UniversalClient) {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	ids := tenants.New(redistest.DB(rdb), tenants.Options{Log: quiet})
	w.try(ids.Load(ctx))
	entry := tenants.AuditEntry{Actor: "ops", Action: "org.create", Org: "acme"}
	w.try(ids.Commit(ctx, entry, tenants.Change{Ref: tenants.Ref{Kind: "org", Org: "acme"}, New: map[string]any{"name": "Acme"}}))
	again := idempotency.New(redistest.DB(rdb), idempotency.Options{Log: quiet})
	print := idempotency.FingerprintOf([]byte("a"))
	key, _, err := again.Open(ctx, "acme", print, print, "holder")
	w.try(err, key.Bind(ctx, "job_1", time.Minute), key.Done(ctx, "answer", time.Minute))
	w.try(again.Keep(ctx, "acme", print, "job_1", time.Minute))
	_, err = again.Take(ctx, "acme", print)
	w.try(err)
}

// TestWatchNotices: the watch detects a script that uses a key it does not declare.
func TestWatchNotices(t *testing.T) {
	w, rdb := newWatch(t)
	w.t = &testing.T{}
	err := rdb.Eval(t.Context(), "-- peek: a forgery\nreturn redis.call('GET', 'b')", []string{"a"}).Err()
	if err == nil || !w.t.Failed() {
		t.Errorf("a script that reads another key: %v, noticed %t", err, w.t.Failed())
	}
}
