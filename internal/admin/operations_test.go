package admin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestBatchesOfAnyOrg: an administrator can find a batch without knowing its org, and cancel
// it; the audit records it.
func TestBatchesOfAnyOrg(t *testing.T) {
	d := deploy(t)
	b := d.batch()
	first := func(query string) object {
		t.Helper()
		list, _ := d.expect(200, "GET", "/batches"+query, "", `{"object":"list","has_more":false}`)["data"].([]any)
		if len(list) != 1 {
			t.Fatalf("%s: got %d batches, want one", query, len(list))
		}
		one, _ := list[0].(map[string]any)
		return one
	}
	for _, query := range []string{"", "?org=acme", "?org=acme&user=alice", "?status=open"} {
		d.has(query, first(query), `{"id":"`+b.ID+`","org":"acme","user":"alice","key":"k1","status":"validating","ended_at":null}`)
	}
	d.expect(200, "GET", "/batches?user=bob", "", `{"data":[]}`)
	d.refused(404, "org_not_found", "org", "GET", "/batches?org=nobody", "")
	d.refused(400, "invalid_value", "status", "GET", "/batches?status=late", "")
	d.expect(200, "GET", "/batches/"+b.ID, "", `{"id":"`+b.ID+`","endpoint":"/chat/completions"}`)
	d.refused(404, "batch_not_found", "batch", "GET", "/batches/batch_x", "")
	d.expect(200, "POST", "/orgs/acme/users/alice/batches/"+b.ID+"/cancel", `{"reason":"wrong model"}`, `{"status":"cancelling"}`)
	audit, _ := d.expect(200, "GET", "/audit?limit=1", "", "")["data"].([]any)
	entry, _ := audit[0].(map[string]any)
	d.has("audit", entry, `{"action":"batch.cancel","target":"`+b.ID+`","reason":"wrong model"}`)
}

// TestSwitchedOffWebhooks: an administrator sees disabled targets and enables them, with a
// reason that the audit records.
func TestSwitchedOffWebhooks(t *testing.T) {
	d := deploy(t, `
  - {id: hooked, webhooks: [{url: "https://hooks.example.com/secret-path", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}]}
`)
	list := func() object {
		t.Helper()
		w := d.send("GET", "/webhooks", "")
		if strings.Contains(w.Body.String(), "secret-path") {
			t.Errorf("the list shows a path: %s", w.Body)
		}
		all, _ := parse(t, w.Body.String())["data"].([]any)
		if w.Code != http.StatusOK || len(all) != 1 {
			t.Fatalf("got %d %s, want one target", w.Code, w.Body)
		}
		one, _ := all[0].(map[string]any)
		return one
	}
	one := list()
	d.has("on", one, `{"org":"hooked","host":"hooks.example.com","off_at":null}`)
	path := "/orgs/hooked/webhooks/" + text(one["id"]) + "/enable"
	d.refused(409, "webhook_not_off", "", "POST", path, "{}")
	d.refused(404, "webhook_not_found", "target", "POST", "/orgs/hooked/webhooks/nonsense/enable", "{}")
	if err := d.rdb.HSet(t.Context(), "lg:{hooked}:webhooks:off", text(one["id"]), time.Now().Unix()).Err(); err != nil {
		t.Fatal(err)
	}
	if list()["off_at"] == nil {
		t.Error("got it as on, want it off")
	}
	d.as(viewerKey).refused(403, "read_only", "", "POST", path, "{}")
	d.expect(200, "POST", path, `{"reason":"it is back"}`, `{"off_at":null}`)
	if list()["off_at"] != nil {
		t.Error("got it as off after it was switched on")
	}
	audit, _ := d.expect(200, "GET", "/audit?limit=1", "", "")["data"].([]any)
	entry, _ := audit[0].(map[string]any)
	d.has("audit", entry, `{"action":"webhook.enable","org":"hooked","reason":"it is back"}`)
}

// TestLimitsPerAddress: the usage of one address can be read and reset, in whatever notation
// the address is given.
func TestLimitsPerAddress(t *testing.T) {
	d := deploy(t, `
  - {id: open, limits: [{name: each, subject: ip, metric: requests, amount: 5, window: 1h}], users: [{id: ann}]}
`)
	limit := budget.Limit{ID: "each", Subject: budget.IP, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Hour}}
	for _, ip := range []string{"192.0.2.7", "192.0.2.7", "192.0.2.8"} {
		call := budget.Call{ID: wire.NewCallID(), Org: "open", User: "ann", IP: ip}
		h, err := d.books.Hold(t.Context(), budget.Terms{Limits: []budget.Limit{limit}, Call: call})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.books.Settle(t.Context(), h, budget.Settlement{Outcome: "completed", Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
	used := func(query string) any {
		t.Helper()
		list, _ := d.expect(200, "GET", "/orgs/open/limits"+query, "", "")["data"].([]any)
		one, _ := list[0].(map[string]any)
		return one["used"]
	}
	for query, want := range map[string]any{"": nil, "?ip=192.0.2.7": 2.0, "?ip=192.0.2.8": 1.0, "?ip=::ffff:192.0.2.7": 2.0, "?ip=192.0.2.9": 0.0} {
		if got := used(query); got != want {
			t.Errorf("%q: got %v used, want %v", query, got, want)
		}
	}
	d.refused(400, "invalid_value", "ip", "GET", "/orgs/open/limits?ip=nonsense", "")
	d.expect(200, "POST", "/orgs/open/limits/each/reset", `{"ip":"192.0.2.7","reason":"a test"}`, "")
	for query, want := range map[string]any{"?ip=192.0.2.7": 0.0, "?ip=192.0.2.8": 1.0} {
		if got := used(query); got != want {
			t.Errorf("%q after the reset of one address: got %v used, want %v", query, got, want)
		}
	}
}

// batch creates a batch of alice.
func (d *deployment) batch() *batch.Batch {
	d.t.Helper()
	ctx := d.t.Context()
	blobs, err := blob.Open(ctx, d.t.TempDir())
	if err != nil {
		d.t.Fatal(err)
	}
	defer blobs.Close()
	kept := files.New(d.rdb, blobs, files.Options{})
	up, err := kept.Begin(ctx, files.Owner{Org: "acme", User: "alice"}, files.NewID())
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := up.Commit(ctx, "lines.jsonl", files.Batch, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := batch.NewStore(d.rdb, kept, nil).Create(ctx, batch.Request{
		Owner: batch.Owner{Org: "acme", User: "alice", Key: "k1"}, File: f, Endpoint: wire.ChatCompletions,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}
