package proxy

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// TestUsedAgainIsNew: a user that is deleted and created again under the same id finds nothing that the first one
// owned, and its jobs do not run for the second one.
func TestUsedAgainIsNew(t *testing.T) {
	r, n := thingRig(t, window(1e9, time.Hour))
	blobs, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	r.proxy.opts.Files = files.New(redistest.DB(r.rdb), blobs, files.Options{Log: slog.New(slog.DiscardHandler)})
	r.proxy.opts.Batches = batch.NewStore(redistest.DB(r.rdb), r.proxy.opts.Files, slog.New(slog.DiscardHandler))
	as := func(born string) {
		r.org.KeyBorn, r.org.UserBorn = map[string]string{"k1": born}, map[string]string{"alice": born}
		r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
			keys.Hash(keys.Pepper{}, n.alice): {Org: r.org, User: "alice", Key: "k1", Born: born, UserBorn: born, Scopes: []string{
				"calls", "jobs", "files", "batches", "responses", "vector_stores", "containers", holdScope,
			}},
		}})
	}
	as("first")
	things := r.made()
	file := r.upload(false, part{"purpose", "", "batch"}, part{"file", "x.jsonl", "{}"}).id()
	work := r.make("/batches", `{"input_file_id":"`+file+`","endpoint":"/v1/embeddings","completion_window":"24h"}`)
	messages := r.make("/messages/batches", `{"requests":[`+aRequest+`]}`)
	job, _ := r.submitted()
	body := prompt("hi", `"max_tokens":5`)
	kept := r.chat(body, "Idempotency-Key", "the same")
	owned := []string{
		"/files/" + file, "/files/" + file + "/content", "/batches/" + work, "/jobs/" + job.ID,
		"/messages/batches/" + messages,
		"/conversations/" + things[wire.ObjectConversation], "/chat/completions/" + things[wire.ObjectCompletion],
		"/holds/" + r.hold("", `{"cost_usd":"0.1"}`).ID,
	}
	for born, want := range map[string]int{"first": 200, "second": 404, "": 404} {
		as(born)
		for _, path := range owned {
			if a := r.call("GET", "/v1"+path, ""); a.status != want {
				t.Errorf("%s for the user %q: got status %d, %s; want %d", path, born, a.status, a.body, want)
			}
		}
		for list, id := range map[string]string{"/files": file, "/batches": work, "/jobs": job.ID, "/messages/batches": messages} {
			a := r.call("GET", "/v1"+list, "")
			if a.status != 200 || strings.Contains(a.body, id) != (want == 200) {
				t.Errorf("%s for the user %q: got status %d, %s", list, born, a.status, a.body)
			}
		}
		if want == 404 {
			for _, e := range [][2]string{
				{"DELETE", "/files/" + file},
				{"POST", "/batches/" + work + "/cancel"},
				{"POST", "/jobs/" + job.ID + "/cancel"},
				{"POST", "/messages/batches/" + messages + "/cancel"},
				{"DELETE", "/messages/batches/" + messages},
			} {
				if a := r.call(e[0], "/v1"+e[1], ""); a.status != 404 {
					t.Errorf("%s %s for the user %q: got status %d, %s", e[0], e[1], born, a.status, a.body)
				}
			}
		}
	}
	as("second")
	if a := r.chat(body, "Idempotency-Key", "the same"); a.status != http.StatusOK || a.id() == kept.id() {
		t.Errorf("got status %d, %s; want an answer of its own", a.status, a.body)
	}
	r.worker(nil)
	r.until("the job ended", func() bool {
		j, err := r.queue.Job(t.Context(), "acme", job.ID)
		return err == nil && j.State == queue.Failed
	})
}
