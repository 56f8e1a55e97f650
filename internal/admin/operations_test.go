package admin_test

import (
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// batch creates a batch of alice.
func (d *deployment) batch() *batch.Batch {
	d.t.Helper()
	ctx := d.t.Context()
	blobs, err := blob.Open(ctx, d.t.TempDir())
	if err != nil {
		d.t.Fatal(err)
	}
	defer blobs.Close()
	kept := files.New(redistest.DB(d.rdb), blobs, files.Options{})
	up, err := kept.Begin(ctx, files.Owner{Org: "acme", User: "alice"}, files.NewID())
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := up.Commit(ctx, "lines.jsonl", files.Batch, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := batch.NewStore(redistest.DB(d.rdb), kept, nil).Create(ctx, batch.Request{
		Owner: batch.Owner{Org: "acme", User: "alice", Key: "k1"}, File: f, Endpoint: wire.ChatCompletions,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}
