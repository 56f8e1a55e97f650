package batch

import (
	"testing"

	"github.com/llmguard/llmguard/internal/devstore"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestCluster checks that, on a cluster of three nodes with the program's own client, every
// operation on a batch and its files uses the keys of one slot at a time.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0)
	r := newRigOn(t, group.Client())
	nodes := map[*redistest.Server]bool{}
	r.lives(t, 6, func(b *Batch) { nodes[group.Owner(recordKey(b.ID))] = true })
	if len(nodes) < 2 {
		t.Errorf("the batches are on %d nodes", len(nodes))
	}
}

// TestInProcess checks that batches work on the store that "llmguard dev" uses if no
// redis-server is installed.
func TestInProcess(t *testing.T) {
	t.Parallel()
	store, err := devstore.StartInProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	rdb := driver.Open(driver.Single, driver.Options(store.Addr))
	t.Cleanup(func() { _ = rdb.Close() })
	newRigOn(t, rdb).lives(t, 1, func(*Batch) {}) // its scripts are slow
}

// lives runs batches, n of them to completion, and their files from start to end.
func (r *rig) lives(t *testing.T, n int, made func(*Batch)) {
	t.Helper()
	o := r.options()
	o.InQueue = 20
	r.runner(o)
	failed := r.ended(r.create(r.upload("no JSON"), wire.ChatCompletions).ID)
	if failed.Status != Failed || len(failed.Problems) != 1 {
		t.Errorf("got %+v, want a failed batch with one problem", failed)
	}
	b := r.create(r.upload(chats(50)), wire.ChatCompletions)
	made(b)
	r.await(b.ID, "expanding", func(b *Batch) bool { return b.next.line >= 20 })
	if _, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil {
		t.Fatal(err)
	}
	b = r.ended(b.ID)
	if output, errs := r.results(b); b.Status != Cancelled || len(output) != 0 || len(errs) != 50 {
		t.Errorf("%s, %d+%d lines", b.Status, len(output), len(errs))
	}
	r.worker()
	var all []string
	for range n {
		b := r.create(r.upload(chats(30)), wire.ChatCompletions)
		made(b)
		all = append(all, b.ID)
	}
	for _, id := range all {
		b := r.ended(id)
		if output, errs := r.results(b); b.Status != Completed || len(output) != 30 || len(errs) != 0 || b.Succeeded != 30 {
			t.Errorf("%s, %d+%d lines", b.Status, len(output), len(errs))
		}
	}
	list, more, err := r.store.List(t.Context(), "acme", "alice", "", 2)
	if err != nil || len(list) != 2 || !more {
		t.Errorf("%d batches, more %v, %v", len(list), more, err)
	}
	if err := r.files.Remove(t.Context(), alice, b.Errors); err != nil {
		t.Error(err)
	}
	if _, err := r.files.File(t.Context(), alice, b.Errors); err == nil {
		t.Error("a deleted file is there")
	}
	if err := r.files.Agree(t.Context()); err != nil {
		t.Error(err)
	}
}
