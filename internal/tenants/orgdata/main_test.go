package orgdata_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/queue"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// fixture is a Redis and a blob store with data of several orgs.
type fixture struct {
	t     *testing.T
	rdb   *redis.Client
	blobs *blob.Store
	files *files.Store
	ids   *tenants.Store
	books *budget.Store
	queue *queue.Queue
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{t: t, rdb: shared.Client()}
	h.must(h.rdb.FlushDB(t.Context()).Err())
	blobs, err := blob.Open(t.Context(), t.TempDir())
	h.must(err)
	h.blobs = blobs
	t.Cleanup(func() { _ = h.blobs.Close() })
	h.files = files.New(redistest.DB(h.rdb), h.blobs, files.Options{})
	h.ids, h.books = tenants.New(redistest.DB(h.rdb), tenants.Options{}), budget.New(redistest.DB(h.rdb), budget.Options{})
	pool := queue.Pool{ID: "main", RPM: 1000, TPM: 1e6, MaxJobs: 1000, MaxBytes: 1 << 30}
	h.queue, err = queue.New(redistest.DB(h.rdb), []queue.Pool{pool},
		queue.Options{OrgShare: 100, FlowShare: 100, Blobs: h.blobs, BlobAbove: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// must fails the test on an error.
func (h *fixture) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// populate gives an org every kind of data; jobs and batches have ended.
func (h *fixture) populate(org string) {
	h.t.Helper()
	h.record(tenants.KindOrg, org, org)
	h.record(tenants.KindUser, org, "alice")
	h.record(tenants.KindKey, org, "k1")
	h.spend(org)
	who := ledger.Call{ID: wire.NewCallID(), Org: org, User: "alice", Key: "k1"}
	h.books.Refusals.Add(budget.RefusedCall{Call: who, Cause: "limit:day", Status: 429})
	h.must(h.books.Refusals.Write(h.t.Context()))
	h.job(org, strings.Repeat("x", 10), true)
	h.job(org, strings.Repeat("x", 100_000), true) // its body is stored as a blob
	own := providers.OwnPool("main", org)
	h.must(h.queue.AddOwn(own))
	h.jobIn(own, org, "x", true)
	h.batch(org, batch.Completed)
	answers := cache.New(redistest.DB(h.rdb), cache.Options{Blobs: h.blobs, InFiles: true})
	h.must(answers.Put(h.t.Context(), org, "1f", cache.Answer{Body: []byte("x")}, cache.Bound{Life: time.Hour}))
	turn := conversation.Turn{Input: json.RawMessage("[]"), Response: json.RawMessage("{}")}
	h.must(conversation.New(redistest.DB(h.rdb), conversation.Options{}).Put(h.t.Context(), org, "resp_1", turn))
	notes := ownership.New(redistest.DB(h.rdb), nil, nil)
	notes.Put(h.t.Context(), org, ownership.Note{ID: "vs_1", User: "alice", Provider: "openai"})
	h.must(notes.Close(h.t.Context()))
	for _, name := range []string{"place:p", "once:p", "alert:a", "webhooks:off"} { // written by running processes
		h.must(h.rdb.HSet(h.t.Context(), "lg:{"+org+"}:"+name, "a", "b").Err())
	}
	h.must(h.rdb.HSet(h.t.Context(), "lg:{identity:}:used", org+" k1", time.Now().Unix()).Err())
	h.must(h.rdb.ZAdd(h.t.Context(), budget.Registry, redis.Z{Score: 1, Member: org}).Err())
}

func (h *fixture) record(kind tenants.Kind, org, id string) {
	h.t.Helper()
	ref := tenants.Ref{Kind: kind, Org: org, ID: id}
	h.must(h.ids.Commit(h.t.Context(), tenants.AuditEntry{Action: "test"},
		tenants.Change{Ref: ref, New: tenants.User{}}))
}

// spend charges a call to a limit, so that there are a ledger, sums and usage.
func (h *fixture) spend(org string) {
	h.t.Helper()
	limit := budget.Limit{
		ID: "day", Subject: budget.Org, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: 1e12, Window: 24 * time.Hour},
	}
	call, cost := ledger.Call{
		ID: wire.NewCallID(), Org: org, User: "alice", Key: "k1",
		Model: "gpt-4o",
	}, budget.Amounts{Cost: 123}
	hold, err := h.books.Hold(h.t.Context(), budget.Terms{Limits: []budget.Limit{limit}, Call: call, Max: cost, Expected: cost})
	h.must(err)
	_, err = h.books.Settle(h.t.Context(), hold, budget.Settlement{Actual: cost, Split: pricing.Split{Output: 123}})
	h.must(err)
}

// job adds a job and, if ended, cancels it.
func (h *fixture) job(org, body string, ended bool) {
	h.t.Helper()
	h.jobIn("main", org, body, ended)
}

func (h *fixture) jobIn(pool, org, body string, ended bool) {
	h.t.Helper()
	j := &queue.Job{
		ID: h.queue.NewID(pool), Pool: pool, Org: org, User: "alice", Key: "k1", Class: queue.Async,
		Endpoint: wire.ChatCompletions,
		Model:    "gpt-4o", Tokens: 10, CallID: wire.NewCallID(),
	}
	h.must(h.queue.Put(h.t.Context(), j, []byte(body)))
	if ended {
		_, err := h.queue.Cancel(h.t.Context(), org, j.ID)
		h.must(err)
	}
}

// file uploads a file as alice.
func (h *fixture) file(org string) *files.File {
	h.t.Helper()
	u, err := h.files.Begin(h.t.Context(), files.Owner{Org: org, User: "alice"}, files.NewID())
	h.must(err)
	_, err = u.Write([]byte("{}\n"))
	h.must(err)
	f, err := u.Commit(h.t.Context(), "in.jsonl", files.Batch, 0)
	h.must(err)
	return f
}

// batch creates a batch with this status.
func (h *fixture) batch(org string, status batch.Status) {
	h.t.Helper()
	store := batch.NewStore(redistest.DB(h.rdb), h.files, slog.New(slog.DiscardHandler))
	owner := batch.Owner{Org: org, User: "alice", Key: "k1"}
	b, err := store.Create(h.t.Context(), batch.Request{Owner: owner, File: h.file(org), Endpoint: wire.ChatCompletions})
	h.must(err)
	h.must(h.rdb.HSet(h.t.Context(), "lg:{"+b.ID+"}:batch", "status", string(status)).Err())
	h.must(h.rdb.ZRem(h.t.Context(), "lg:{batches}:open", b.ID).Err())
}

func (h *fixture) purge(org string, ledger bool) *orgdata.Purge {
	h.t.Helper()
	store := tenants.New(redistest.DB(h.rdb), tenants.Options{}) // like a command does
	h.must(store.Load(h.t.Context()))
	return &orgdata.Purge{Redis: redistest.DB(h.rdb), Tenants: store, Blobs: h.blobs, Org: org, Ledger: ledger}
}

// run looks, then purges.
func (h *fixture) run(org string, ledger bool) error {
	h.t.Helper()
	p := h.purge(org, ledger)
	found, err := p.Look(h.t.Context())
	h.must(err)
	return p.Run(h.t.Context(), tenants.AuditEntry{Actor: "ops", Reason: "contract ended"}, found)
}

// ofPools are prefixes of keys by which pools find waiting jobs. Workers remove orgs without
// jobs from them, but none runs here.
var ofPools = []string{"asynq:", "lg:{main}:orgs:", "lg:{main}:users:", "lg:{main}:fair", "lg:{main}:size"}

// dump returns everything in Redis, except the audit, the change log and ofPools, and the names
// of all blobs.
func (h *fixture) dump() map[string]string {
	h.t.Helper()
	out, ctx := map[string]string{}, h.t.Context()
	for _, key := range h.rdb.Keys(ctx, "*").Val() {
		if slices.ContainsFunc(ofPools, func(p string) bool { return strings.HasPrefix(key, p) }) {
			continue
		}
		switch h.rdb.Type(ctx, key).Val() {
		case "hash":
			for field, value := range h.rdb.HGetAll(ctx, key).Val() {
				out[key+" "+field] = value
			}
		case "zset":
			for _, member := range h.rdb.ZRange(ctx, key, 0, -1).Val() {
				out[key+" "+member] = ""
			}
		default:
			out[key] = h.rdb.Dump(ctx, key).Val()
		}
	}
	for _, key := range []string{"changes", "audit", "last", "version"} {
		delete(out, "lg:{identity:}:"+key)
	}
	h.must(h.blobs.Each(context.WithoutCancel(ctx), "",
		func(name string, _ time.Time) error { out["blob "+name] = ""; return nil }))
	return out
}

// differ returns what is in one dump only, or differs between both.
func differ(a, b map[string]string) []string {
	var out []string
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			out = append(out, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
