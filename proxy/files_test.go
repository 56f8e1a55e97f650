package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/queue"
)

// fileRig is a rig with a file store.
func fileRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, queue.Pool{}, func(o *Options) { o.MaxFile = 1000 })
	blobs, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	log := slog.New(slog.DiscardHandler)
	r.proxy.opts.Files = files.New(r.redis.DB(), blobs, files.Options{Log: log, OrgBytes: 1500})
	r.proxy.opts.Batches = batch.NewStore(r.redis.DB(), r.proxy.opts.Files, log)
	return r
}

// part is a part of a form: a file if it has a name.
type part struct{ field, filename, text string }

// upload sends a form, in chunks if chunked is true.
func (r *rig) upload(chunked bool, parts ...part) answer {
	r.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, p := range parts {
		open := form.CreateFormField
		if p.filename != "" {
			open = func(field string) (io.Writer, error) { return form.CreateFormFile(field, p.filename) }
		}
		w, err := open(p.field)
		if err != nil {
			r.t.Fatal(err)
		}
		_, _ = io.WriteString(w, p.text)
	}
	_ = form.Close()
	var from io.Reader = &body
	if chunked {
		from = struct{ io.Reader }{&body}
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.http.URL+"/v1/files", from)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", form.FormDataContentType())
	resp, err := r.http.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(text), err: err}
}

var (
	purpose = part{field: "purpose", text: "batch"}
	lines   = part{"file", "in.jsonl", "{}\n{}"}
)

// TestUpload: the forms that clients send, and those that are refused.
func TestUpload(t *testing.T) {
	r := fileRig(t)
	anchor, hour := part{field: "expires_after[anchor]", text: "created_at"}, part{field: "expires_after[seconds]", text: "3600"}
	for _, test := range []struct {
		name    string
		chunked bool
		parts   []part
		lives   int64
		code    string
	}{
		{"go-openai", false, []part{purpose, lines}, 30 * 86400, ""},
		{"openai-node", false, []part{lines, purpose, anchor, hour}, 3600, ""},
		{"openai-node, stream", true, []part{lines, purpose}, 30 * 86400, ""},
		{"no file", false, []part{purpose}, 0, "missing_required_parameter"},
		{"two files", false, []part{purpose, lines, lines}, 0, "invalid_multipart"},
		{"no purpose", false, []part{lines}, 0, "invalid_value"},
		{"a purpose that is not served", false, []part{lines, {field: "purpose", text: "fine-tune"}}, 0, "invalid_value"},
		{"not JSONL", false, []part{{"file", "in.txt", "{}"}, purpose}, 0, "invalid_file_format"},
		{"no anchor", false, []part{lines, purpose, hour}, 0, "invalid_value"},
		{"too short a life", false, []part{lines, purpose, anchor, {field: "expires_after[seconds]", text: "60"}}, 0, "invalid_value"},
		{"a long field", false, []part{{field: "purpose", text: strings.Repeat("x", 2000)}, lines}, 0, "invalid_value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := r.upload(test.chunked, test.parts...)
			if test.code != "" {
				a.fails(t, http.StatusBadRequest, test.code)
				return
			}
			var f fileView
			if err := json.Unmarshal([]byte(a.body), &f); err != nil || a.status != http.StatusOK {
				t.Fatalf("got %d %v: %s, want 200 and a file", a.status, err, a.body)
			}
			if f.Object != "file" || f.Bytes != 5 || f.Purpose != "batch" || f.Filename != "in.jsonl" || f.Expires-f.Created != test.lives {
				t.Errorf("got %+v, want what was uploaded", f)
			}
			if a := r.call(http.MethodGet, "/v1/files/"+f.ID+"/content", ""); a.body != lines.text || a.header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("content %q, %v; want what was uploaded", a.body, a.header)
			}
		})
	}
	r.upload(true, purpose, part{"file", "in.jsonl", strings.Repeat("x", 1001)}).fails(t, http.StatusRequestEntityTooLarge, "request_too_large")
	if a := r.upload(false, purpose, part{"file", "in.jsonl", strings.Repeat("x", 1000)}); a.status != http.StatusOK {
		t.Errorf("the largest file: got status %d, %s; want 200", a.status, a.body)
	}
	r.upload(false, purpose, part{"file", "in.jsonl", strings.Repeat("x", 600)}).fails(t, http.StatusPaymentRequired, "insufficient_quota")
	r.call(http.MethodPost, "/v1/files", "{}", "Content-Type", "application/json").fails(t, http.StatusBadRequest, "invalid_multipart")
	r.call(http.MethodPost, "/v1/files", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\nhalf",
		"Content-Type", "multipart/form-data; boundary=x").fails(t, http.StatusBadRequest, "body_unreadable")
}

func TestFiles(t *testing.T) {
	r := fileRig(t)
	var ids []string
	for range 3 {
		var f fileView
		if err := json.Unmarshal([]byte(r.upload(false, purpose, lines).body), &f); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.ID)
	}
	var page list[fileView]
	a := r.call(http.MethodGet, "/v1/files?limit=2&purpose=batch", "")
	if err := json.Unmarshal([]byte(a.body), &page); err != nil || len(page.Data) != 2 || !page.HasMore || *page.FirstID != ids[2] || *page.LastID != ids[1] {
		t.Errorf("got %v: %s, want the two newest", err, a.body)
	}
	if a := r.call(http.MethodGet, "/v1/files?order=asc&after="+ids[1], ""); !strings.Contains(a.body, ids[2]) || strings.Contains(a.body, ids[0]) {
		t.Errorf("the next page: %s, want the newest alone", a.body)
	}
	for _, query := range []string{"limit=0", "limit=10001", "limit=x", "order=up", "after=file-x"} {
		r.call(http.MethodGet, "/v1/files?"+query, "").fails(t, http.StatusBadRequest, "invalid_value")
	}
	if a := r.call(http.MethodDelete, "/v1/files/"+ids[0], ""); a.status != http.StatusOK || !strings.Contains(a.body, `"deleted":true`) {
		t.Errorf("got status %d, %s; want 200", a.status, a.body)
	}
	for _, path := range []string{"/v1/files/" + ids[0], "/v1/files/" + ids[0] + "/content", "/v1/files/file-x"} {
		r.call(http.MethodGet, path, "").fails(t, http.StatusNotFound, "file_not_found")
	}
	r.call(http.MethodDelete, "/v1/files/"+ids[0], "").fails(t, http.StatusNotFound, "file_not_found")
}

func TestBatches(t *testing.T) {
	r := fileRig(t)
	var f fileView
	if err := json.Unmarshal([]byte(r.upload(false, purpose, lines).body), &f); err != nil {
		t.Fatal(err)
	}
	create := func(format string, args ...any) answer {
		return r.call(http.MethodPost, "/v1/batches", fmt.Sprintf(format, args...))
	}
	for _, test := range []struct {
		body, code string
		status     int
	}{
		{`[]`, "invalid_json", 400},
		{`{"endpoint":"/v1/embeddings","completion_window":"24h"}`, "missing_required_parameter", 400},
		{`{"input_file_id":"ID","endpoint":"/v1/nope","completion_window":"24h"}`, "invalid_value", 400},
		{`{"input_file_id":"ID","endpoint":"/v1/embeddings","completion_window":"1h"}`, "invalid_value", 400},
		{`{"input_file_id":"file-x","endpoint":"/v1/embeddings","completion_window":"24h"}`, "file_not_found", 404},
		{`{"input_file_id":"ID","endpoint":"/v1/embeddings","completion_window":"24h","metadata":{"k":"` + strings.Repeat("x", 513) + `"}}`, "invalid_value", 400},
		{`{"input_file_id":"ID","endpoint":"/v1/embeddings","completion_window":"24h","output_expires_after":{"anchor":"created_at","seconds":5}}`, "invalid_value", 400},
	} {
		create("%s", strings.ReplaceAll(test.body, "ID", f.ID)).fails(t, test.status, test.code)
	}
	var b map[string]any
	a := create(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":null}`, f.ID)
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != http.StatusOK {
		t.Fatalf("got %d %v: %s, want 200 and a batch", a.status, err, a.body)
	}
	for _, field := range []string{"errors", "output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at", "metadata"} {
		if v, there := b[field]; !there || v != nil {
			t.Errorf("%s is %v, there: %v; OpenAI has null", field, v, there)
		}
	}
	id, _ := b["id"].(string)
	if b["status"] != "validating" || b["endpoint"] != "/v1/chat/completions" || b["input_file_id"] != f.ID {
		t.Errorf("got %s, want a batch that is validating", a.body)
	}
	if a := r.call(http.MethodGet, "/v1/batches?limit=1", ""); !strings.Contains(a.body, `"last_id":"`+id+`","has_more":false`) {
		t.Errorf("list: %s, want the batch alone", a.body)
	}
	for range 2 {
		if a := r.call(http.MethodPost, "/v1/batches/"+id+"/cancel", ""); a.status != http.StatusOK || !strings.Contains(a.body, `"status":"cancelling"`) {
			t.Errorf("cancel: got status %d, %s; want 200", a.status, a.body)
		}
	}
	if err := r.redis.Client().HSet(t.Context(), "lg:{"+id+"}:batch", "status", "completed").Err(); err != nil {
		t.Fatal(err)
	}
	r.call(http.MethodPost, "/v1/batches/"+id+"/cancel", "").fails(t, http.StatusBadRequest, "batch_ended")
	r.call(http.MethodGet, "/v1/batches/batch_x", "").fails(t, http.StatusNotFound, "batch_not_found")
	r.call(http.MethodGet, "/v1/batches?limit=101", "").fails(t, http.StatusBadRequest, "invalid_value")
	r.call(http.MethodGet, "/v1/batches?after=batch_x", "").fails(t, http.StatusBadRequest, "invalid_value")
}

// TestNoFiles: without a file store the answer says so.
func TestNoFiles(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	for _, path := range []string{"/v1/batches", "/v1/batches/batch_x"} {
		r.call(http.MethodGet, path, "").fails(t, http.StatusNotFound, "files_not_configured")
	}
	r.upload(false, purpose, lines).fails(t, http.StatusNotFound, "files_not_configured")
}

// TestForeignFiles: for a file or batch of another user and for one that never existed, the
// requests to Redis and the answer are the same, so callers cannot tell them apart.
func TestForeignFiles(t *testing.T) {
	r := fileRig(t)
	rdb := r.redis.Client()
	var asked commands
	rdb.AddHook(&asked)
	log := slog.New(slog.DiscardHandler)
	mine := r.proxy.opts.Files
	r.proxy.opts.Files = files.New(redistest.DB(rdb), mine.Blobs(), files.Options{Log: log})
	r.proxy.opts.Batches = batch.NewStore(redistest.DB(rdb), r.proxy.opts.Files, log)
	put := func(o files.Owner) string {
		id := files.NewID()
		up, err := mine.Begin(t.Context(), o, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := up.Commit(t.Context(), "in.jsonl", files.Batch, 0); err != nil {
			t.Fatal(err)
		}
		return id
	}
	ids := []string{files.NewID(), put(files.Owner{Org: "other", User: "alice"}), put(files.Owner{Org: "acme", User: "bob"})}
	r.call("GET", "/v1/files/"+ids[0], "") // the first use of a connection sends more commands
	for _, try := range [][3]string{
		{"GET", "/v1/files/ID", ""},
		{"GET", "/v1/files/ID/content", ""},
		{"DELETE", "/v1/files/ID", ""},
		{"POST", "/v1/batches", `{"input_file_id":"ID","endpoint":"/v1/chat/completions","completion_window":"24h"}`},
	} {
		var first answer
		n := 0
		for i, id := range ids {
			asked.n = 0
			a := r.call(try[0], strings.ReplaceAll(try[1], "ID", id), strings.ReplaceAll(try[2], "ID", id))
			a.body = strings.ReplaceAll(a.body, id, "ID")
			a.fails(t, 404, "file_not_found")
			if i == 0 {
				first, n = a, asked.n
			} else if asked.n != n || n == 0 || a.body != first.body {
				t.Errorf("%v of %d: %d commands and %s; of none: %d and %s", try, i, asked.n, a.body, n, first.body)
			}
		}
	}
}

// TestUploadTooSlow: an upload that trickles is ended, although bytes keep arriving.
func TestUploadTooSlow(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	r.proxy.opts.ReadBody = 2 * time.Second // the deadline moves once a second
	conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+r.key+
		"\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n")
	_, _ = io.WriteString(conn, "5b\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\nContent-Type: a/b\r\n\r\n\r\n")
	ended := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(conn)
		ended <- string(text)
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, _ = io.WriteString(conn, "1\r\nx\r\n")
		select {
		case answer := <-ended:
			if !strings.HasPrefix(answer, "HTTP/1.1 408") {
				t.Errorf("got %q, want a refusal with 408", answer)
			}
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatal("it goes on after a minute, want it ended")
		}
	}
}
