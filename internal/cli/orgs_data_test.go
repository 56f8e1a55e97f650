package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// furnished is a configuration with two orgs in Redis that have every kind of data.
type furnished struct {
	*books
	blobs *blob.Store
	pool  string
	files map[string]string // org -> id of its file
}

func furnish(t *testing.T) *furnished {
	t.Helper()
	f := &furnished{books: newBooks(t), files: map[string]string{}}
	dir := t.TempDir()
	text, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, []byte("files: {store: "+dir+"}\nauth: {peppers: [{id: p1, secret: 0123456789abcdef0123456789abcdef}]}\n")...)
	if err := os.WriteFile(f.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if f.blobs, err = blob.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.blobs.Close() })
	if err := files.New(f.redis, f.blobs, files.Options{}).Agree(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.org("left")
	f.org("other")
	return f
}

// cli runs a command and fails unless its output contains want.
func (f *furnished) cli(want string, args ...string) string {
	f.t.Helper()
	out := says(f.t, append(args, "-c", f.file)...)
	if !strings.Contains(out, want) {
		f.t.Fatalf("llmguard %s says\n%swithout %q", strings.Join(args, " "), out, want)
	}
	return out
}

// org creates an org with every kind of data.
func (f *furnished) org(org string) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	f.cli(org, "orgs", "create", org)
	f.cli("alice", "users", "create", "alice", "--org", org)
	f.cli("lg_live_", "keys", "create", "--org", org, "--user", "alice")
	f.cli("daily", "limits", "set", "daily", "--org", org, "--subject", "user", "--amount", "$20", "--window", "24h")
	f.cli("daily", "limits", "override", "--org", org, "--user", "alice", "--limit", "daily", "--add", "$1", "--until", "4h", "--reason", "r")
	f.charge(budget.Call{Org: org, User: "alice", Key: "k", Model: "gpt-4o"}, pricing.Split{Output: 1e9}, false)
	f.cli("adjusted", "usage", "adjust", "--org", org, "--user", "alice", "--amount", "-$0.10", "--reason", "refund")

	cfg, err := config.Load(f.file)
	if err != nil {
		t.Fatal(err)
	}
	o, pools, err := app.Queue(ctx, cfg, f.redis, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.pool = pools[0].ID
	for _, body := range [][]byte{[]byte(`{"model":"gpt-4o"}`), bytes.Repeat([]byte("a"), 100_000)} { // small, and a blob
		j := &queue.Job{ID: o.NewID(f.pool), Pool: f.pool, Org: org, User: "alice", Key: "k", Class: queue.Async, Endpoint: "chat.completions", Model: "gpt-4o", Tokens: 10}
		if err := o.Put(ctx, j, body); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Cancel(ctx, org, j.ID); err != nil {
			t.Fatal(err)
		}
	}
	stored := files.New(f.redis, f.blobs, files.Options{})
	u, err := stored.Begin(ctx, files.Owner{Org: org, User: "alice"}, files.NewID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	file, err := u.Commit(ctx, "in.jsonl", files.Batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.files[org] = file.ID
	made := batch.NewStore(f.redis, stored, slog.New(slog.DiscardHandler))
	b, err := made.Create(ctx, batch.Request{Owner: batch.Owner{Org: org, User: "alice", Key: "k"}, File: file, Endpoint: "chat.completions"})
	if err != nil {
		t.Fatal(err)
	}
	f.redis.HSet(ctx, "lg:{"+b.ID+"}:batch", "status", string(batch.Completed), "completed_at", time.Now().Unix())
	f.redis.ZRem(ctx, "lg:{batches}:open", b.ID)
	if err := conversation.New(f.redis, conversation.Options{}).Put(ctx, org, "resp_1", conversation.Turn{Input: json.RawMessage("[]"), Response: json.RawMessage("{}")}); err != nil {
		t.Fatal(err)
	}
	err = cache.New(f.redis, cache.Options{}).Put(ctx, org, "1f", cache.Answer{Body: []byte("{}")}, cache.Bound{Life: time.Hour, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	notes := ownership.New(f.redis, nil, nil)
	notes.Put(ctx, org, ownership.Note{ID: "vs_1", User: "alice", Provider: "openai"})
	if err := notes.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"place:p", "once:p", "alert:a", "webhooks:off"} { // written by running processes
		f.redis.HSet(ctx, "lg:{"+org+"}:"+name, "a", "b")
	}
	f.redis.HSet(ctx, "lg:{identity:}:used", org+" k", time.Now().Unix())
}

// dump returns an org's data in Redis, by key. It leaves out the bookkeeping of admin records,
// which changes with every command.
func (f *furnished) dump(org string) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, k := range f.redis.Keys(f.t.Context(), "*").Val() {
		if f.of(k, org) {
			out[k] = f.redis.Dump(f.t.Context(), k).Val()
		}
	}
	for field, text := range f.redis.HGetAll(f.t.Context(), "lg:{identity:}:records").Val() {
		if strings.Fields(field)[1] == org {
			out["record "+field] = text
		}
	}
	for field, text := range f.redis.HGetAll(f.t.Context(), "lg:{identity:}:used").Val() {
		if strings.Fields(field)[0] == org {
			out["used "+field] = text
		}
	}
	for _, z := range f.redis.ZRangeWithScores(f.t.Context(), files.DueKey, 0, -1).Val() {
		if member, _ := z.Member.(string); strings.HasPrefix(member, org+" ") {
			out["due "+member] = ""
		}
	}
	err := f.blobs.Each(f.t.Context(), "", func(name string, _ time.Time) error {
		job, _, _ := strings.Cut(strings.TrimPrefix(name, "jobs/"), "/")
		if strings.HasPrefix(name, org+"/") || f.of("lg:{"+job+"}:in", org) {
			out["blob "+name] = ""
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// of reports whether a key belongs to an org, by its hash tag or by the job or batch in the
// tag.
func (f *furnished) of(key, org string) bool {
	tag, _, _ := strings.Cut(strings.TrimPrefix(key, "lg:{"), "}")
	if tag == org {
		return true
	}
	ctx := f.t.Context()
	for _, record := range []string{key, "lg:{" + tag + "}:batch", "lg:{" + f.pool + "}:job:" + tag} {
		if f.redis.Type(ctx, record).Val() == "hash" && f.redis.HGet(ctx, record, "org").Val() == org {
			return true
		}
	}
	return false
}

func TestOrgExport(t *testing.T) {
	f := furnish(t)
	name := filepath.Join(t.TempDir(), "left.jsonl")
	f.cli("", "orgs", "export", "left", "--out", name)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	count, lines := map[string]int{}, strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, l := range lines {
		var line struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal([]byte(l), &line); err != nil || len(line.Data) < 2 {
			t.Fatalf("%v: %s", err, l)
		}
		count[line.Type]++
	}
	want := map[string]int{
		"header": 1, "org": 1, "user": 1, "key": 1, "limit": 1, "override": 1, "ledger": 2, "sum": 2, "correction": 1, "job": 2, "batch": 1,
		"file": 1, "audit": 5, "end": 1,
	}
	if !maps.Equal(count, want) {
		t.Errorf("the export has %v, want %v:\n%s", count, want, text)
	}
	if !strings.Contains(lines[0], `"schema":1`) {
		t.Errorf("it begins with %s", lines[0])
	}
	for _, record := range f.redis.HGetAll(t.Context(), "lg:{identity:}:records").Val() {
		var k struct{ Hash string }
		if json.Unmarshal([]byte(record), &k) == nil && k.Hash != "" && bytes.Contains(text, []byte(k.Hash)) {
			t.Error("the export has a key's hash")
		}
	}
	if strings.Contains(string(text), "other") || strings.Contains(string(text), "lg_live_") {
		t.Errorf("the export has another org's, or a key:\n%s", text)
	}
}

func TestOrgPurge(t *testing.T) {
	f := furnish(t)
	kept, all := f.dump("other"), f.dump("left")
	if len(all) < 25 {
		t.Fatalf("there are only %d: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	f.cli("is not disabled", "orgs", "purge", "left", "--yes")
	f.cli("is in the configuration file", "orgs", "purge", "acme", "--yes")
	f.cli("disabled", "orgs", "disable", "left")
	f.redis.HSet(t.Context(), "lg:{left}:holds", "x", "y")
	f.cli("are still open", "orgs", "purge", "left", "--yes")
	f.redis.HDel(t.Context(), "lg:{left}:holds", "x")
	f.cli("Confirm with --yes", "orgs", "purge", "left")

	// If Redis refuses to delete the records, everything else is deleted and the org stays
	// disabled.
	const records = "lg:{identity:}:records"
	if err := f.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-unlink").Err(); err != nil {
		t.Fatal(err)
	}
	f.cli("Repeat the command to continue", "orgs", "purge", "left", "--yes", "--reason", "the contract ended")
	if f.redis.HGet(t.Context(), records, "org left left").Val() == "" {
		t.Fatal("the org went before what is its")
	}
	if err := f.redis.Do(t.Context(), "ACL", "SETUSER", "default", "+unlink").Err(); err != nil {
		t.Fatal(err)
	}
	f.cli("deleted org left", "orgs", "purge", "left", "--yes", "--reason", "the contract ended")
	for k := range f.dump("left") {
		if name := strings.TrimPrefix(k, "lg:{left}:"); name != "ledger" && name != "audit" && !strings.HasPrefix(name, "sums:") {
			t.Errorf("%s is left", k)
		}
	}
	// Blobs belong to the org only through a job or batch, so check them by name.
	blobs := map[string]bool{}
	if err := f.blobs.Each(t.Context(), "", func(name string, _ time.Time) error { blobs["blob "+name] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	for k := range all {
		if !strings.HasPrefix(k, "lg:{left}:") && (f.redis.Exists(t.Context(), k).Val() > 0 || blobs[k]) {
			t.Errorf("%s is left", k)
		}
	}
	f.cli("no data left", "orgs", "purge", "left", "--yes")
	f.cli("deleted org left", "orgs", "purge", "left", "--yes", "--ledger")
	if left := f.dump("left"); len(left) > 0 {
		t.Errorf("left with --ledger: %v", slices.Sorted(maps.Keys(left)))
	}
	f.cli("no data left of org left\n", "orgs", "purge", "left", "--yes", "--ledger")
	f.cli("the contract ended", "audit", "--org", "left", "--action", "org.purge")
	if now := f.dump("other"); !maps.Equal(now, kept) {
		t.Errorf("the other org changed: it had %v and has %v", slices.Sorted(maps.Keys(kept)), slices.Sorted(maps.Keys(now)))
	}
	if _, err := f.redis.ZScore(t.Context(), files.DueKey, "other alice "+f.files["other"]).Result(); errors.Is(err, redis.Nil) {
		t.Error("the other org's file is not listed")
	}
}
