package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
)

// aRequest is a request of a batch of messages.
const aRequest = `{"custom_id":"a","params":{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}}`

func (r *rig) messageBatch(body string, header ...string) answer {
	r.t.Helper()
	return r.call(http.MethodPost, "/v1/messages/batches", body, header...)
}

// faults fails the test unless the answer is an error in Anthropic's form.
func (a *answer) faults(t *testing.T, what string, status int, kind, code string) {
	t.Helper()
	var e struct {
		Type  string
		Error struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != status || e.Type != "error" || e.Error.Type != kind ||
		e.Error.Code != code || e.Error.Message == "" {
		t.Errorf("%s: got %d, %s; want %d, %s, %s", what, a.status, a.body, status, kind, code)
	}
}

// TestMessageBatchRefusals: what is refused has an error in Anthropic's form and leaves no key in Redis.
func TestMessageBatchRefusals(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	r.proxy.opts.MaxBody, r.proxy.opts.MaxFile = 2000, 5000
	r.proxy.opts.Batches.Bound(batch.Bounds{Lines: 3})
	edit := func(old, with string) string { return `{"requests":[` + strings.Replace(aRequest, old, with, 1) + `]}` }
	list := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, strings.Replace(aRequest, `"a"`, fmt.Sprintf(`"a%d"`, i), 1))
		}
		return `{"requests":[` + strings.Join(all, ",") + `]}`
	}
	r.messageBatch(`{"requests":[]}`) // writes what exists once
	_, _, before := r.sizes()
	for code, bodies := range map[string][]string{
		"invalid_json": {
			``, `[]`, `{}`, `null`, `{"requests":{}}`, `{"requests":[`, `{"requests":[]`, `{"requests":["a"]}`, `{"requests":[` + aRequest + `}`,
			`{"model":"x","requests":[]}`, `{"requests":[` + aRequest + `],"more":1}`, edit(`"params"`, `"body"`), edit(`"a"`, `5`), edit(`{"model"`, `{model`),
		},
		"missing_required_parameter": {`{"requests":[]}`, `{"requests":[{"custom_id":"a","params":[]}]}`, `{"requests":[{"custom_id":"a"}]}`, edit(`"max_tokens":5,`, ``), edit(`"model":"gpt-4o",`, ``)},
		"invalid_value": {
			edit(`"a"`, `""`), edit(`"a"`, `"a.b"`), edit(`"a"`, `"`+strings.Repeat("x", 65)+`"`), edit(`"custom_id":"a",`, ``), edit(`5`, `5,"stream":true`),
		},
		"duplicate_custom_id": {`{"requests":[` + aRequest + `,` + aRequest + `]}`},
		"too_many_tasks":      {list(4)},
		"line_too_large":      {edit(`hi`, strings.Repeat("x", 1900)), edit(`hi`, strings.Repeat("x", 4000)), `{"requests":[` + strings.Repeat(" ", 4000) + aRequest + `]}`},
		"model_mismatch":      {`{"requests":[` + aRequest + `,` + strings.NewReplacer(`"a"`, `"b"`, "4o", "4o-mini").Replace(aRequest) + `]}`},
	} {
		for _, body := range bodies {
			a := r.messageBatch(body)
			a.faults(t, fmt.Sprintf("%.200s", body), 400, "invalid_request_error", code)
		}
	}
	large := r.messageBatch(`{"requests":[` + strings.Repeat(" ", 6000) + `]}`)
	large.faults(t, "a large body", 413, "request_too_large", "request_too_large")
	a := r.messageBatch(list(3), "Llmguard-Priority", "urgent")
	a.faults(t, "a wrong priority", 400, "invalid_request_error", "invalid_priority")
	if _, _, after := r.sizes(); after != before {
		t.Errorf("refused requests left %d keys", after-before)
	}
	if n := r.rdb.ZCard(t.Context(), files.DueKey).Val(); n != 0 {
		t.Errorf("refused requests left %d files", n)
	}
	if a := r.messageBatch(list(3)); a.status != 200 || !strings.Contains(a.body, `"processing":3`) {
		t.Errorf("the most requests: got %d, %s", a.status, a.body)
	}
}

// TestMessageBatchBetas: a batch keeps the betas of its request up to a bound, and no other header.
func TestMessageBatchBetas(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	body := `{"requests":[` + aRequest + `]}`
	a := r.messageBatch(body, "Anthropic-Beta", strings.Repeat("b", maxBeta+1))
	a.faults(t, "long betas", 400, "invalid_request_error", "invalid_value")
	betas := "a-1," + strings.Repeat("b", maxBeta-4)
	a = r.messageBatch(body, "Anthropic-Beta", betas, "Anthropic-Version", "2023-06-01")
	if a.status != 200 {
		t.Fatalf("got %d, %s", a.status, a.body)
	}
	b, err := r.proxy.opts.Batches.Batch(t.Context(), "acme", "alice", ownID(a.id()))
	if err != nil {
		t.Fatal(err)
	}
	if b.Header.Get("Anthropic-Beta") != betas || len(b.Header) != 1 {
		t.Errorf("kept %.100v", b.Header)
	}
}

// TestMessageBatches: a batch is shown and listed in Anthropic's form; those of other endpoints are not.
func TestMessageBatches(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	var ids []string
	for range 3 {
		a := r.messageBatch(`{"requests":[`+aRequest+`]}`, "Llmguard-Priority", "high")
		var b map[string]any
		if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != 200 || !strings.Contains(a.body, `"priority":"high"`) {
			t.Fatalf("%v: got %d, %s; want a batch", err, a.status, a.body)
		}
		for _, field := range []string{"ended_at", "cancel_initiated_at", "archived_at", "results_url"} {
			if v, there := b[field]; !there || v != nil {
				t.Errorf("%s is %v, there: %v; Anthropic has null", field, v, there)
			}
		}
		ids = append(ids, a.id())
		file := r.upload(false, purpose, lines).id()
		other := r.call(http.MethodPost, "/v1/batches", fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/embeddings","completion_window":"24h"}`, file))
		for _, method := range []string{"GET", "DELETE"} {
			gone := r.call(method, "/v1/messages/batches/"+other.id(), "")
			gone.faults(t, method+" of a batch of embeddings", 404, "not_found_error", "batch_not_found")
		}
	}
	for query, want := range map[string]string{
		"":                                 ids[2] + ids[1] + ids[0] + "false",
		"?limit=1000":                      ids[2] + ids[1] + ids[0] + "false",
		"?limit=2":                         ids[2] + ids[1] + "true",
		"?limit=1&after_id=" + ids[2]:      ids[1] + "true",
		"?after_id=" + ids[1][len("msg"):]: ids[0] + "false",
		"?after_id=" + ids[0]:              "false",
	} {
		a := r.call(http.MethodGet, "/v1/messages/batches"+query, "")
		var page struct {
			Data []struct{ ID string }
			More bool `json:"has_more"`
		}
		err := json.Unmarshal([]byte(a.body), &page)
		got := ""
		for _, b := range page.Data {
			got += b.ID
		}
		if got += fmt.Sprint(page.More); err != nil || got != want {
			t.Errorf("%s: got %d, %s; want %s", query, a.status, a.body, want)
		}
	}
	for query, code := range map[string]string{
		"limit=0": "invalid_value", "limit=1001": "invalid_value", "after_id=msgbatch_x": "invalid_value", "before_id=" + ids[0]: "unsupported_parameter",
	} {
		a := r.call(http.MethodGet, "/v1/messages/batches?"+query, "")
		a.faults(t, query, 400, "invalid_request_error", code)
	}
}

// TestMessageBatchScope: a batch of messages needs the scopes of batches and of messages.
func TestMessageBatchScope(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	for scope, want := range map[string]int{"batches": 403, "messages": 403, "batches messages": 200, "batches calls": 200} {
		r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
			keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: "alice", Key: "k1", Scopes: strings.Fields(scope)},
		}})
		a := r.messageBatch(`{"requests":[` + aRequest + `]}`)
		if want == 200 && a.status == 200 {
			continue
		}
		a.faults(t, scope, want, "permission_error", "missing_scope")
	}
}

// TestMessageBatchBounds: the bounds of files and batches hold, and a batch that is refused leaves no file.
func TestMessageBatchBounds(t *testing.T) {
	t.Parallel()
	r := fileRig(t)
	r.proxy.opts.Batches.Bound(batch.Bounds{Open: 1})
	body := `{"requests":[` + aRequest + `]}`
	if a := r.messageBatch(body); a.status != 200 {
		t.Fatalf("got %d, %s", a.status, a.body)
	}
	a := r.messageBatch(body)
	a.faults(t, "a second open batch", 429, "rate_limit_error", "rate_limit_exceeded")
	if list := r.call(http.MethodGet, "/v1/files", ""); !strings.Contains(list.body, `"data":[]`) {
		t.Errorf("files %s, want none", list.body)
	}
	r.proxy.opts.Files = files.New(redistest.DB(r.rdb), r.proxy.opts.Files.Blobs(), files.Options{OrgFiles: 1})
	a = r.messageBatch(body)
	a.faults(t, "a second file", 402, "billing_error", "insufficient_quota")
}

// TestMessageBatchCounts: the counts add up to the number of requests, whatever became of the batch.
func TestMessageBatchCounts(t *testing.T) {
	t.Parallel()
	for status, want := range map[batch.Status]messageCounts{
		batch.Validating: {Processing: 4, Succeeded: 5, Errored: 1}, batch.InProgress: {Processing: 4, Succeeded: 5, Errored: 1},
		batch.Cancelling: {Processing: 4, Succeeded: 5, Errored: 1}, batch.Finalizing: {Processing: 4, Succeeded: 5, Errored: 1},
		batch.Completed: {Succeeded: 5, Errored: 5}, batch.Failed: {Succeeded: 5, Errored: 5},
		batch.Expired: {Succeeded: 5, Errored: 1, Expired: 4}, batch.Cancelled: {Succeeded: 5, Errored: 1, Canceled: 4},
	} {
		b := &batch.Batch{ID: "batch_x", Status: status, Total: 10, Succeeded: 5, Unsuccessful: 1, Created: time.Unix(1, 0)}
		v := viewMessageBatch(b)
		if v.Counts != want || (v.Results != nil) != status.Terminal() || *v.Created != "1970-01-01T00:00:01Z" {
			t.Errorf("%s: got %+v, want %+v", status, v, want)
		}
	}
}

// TestMessageResults: every kind of outcome has its result.
func TestMessageResults(t *testing.T) {
	t.Parallel()
	for want, line := range map[string]string{
		`"succeeded","message":{"id":"m<"}`: `"response":{"status_code":200,"body":{"id":"m<"}}`,
		`"canceled"`:                        `"error":{"code":"batch_cancelled"}`,
		`"expired"`:                         `"error":{"code":"batch_expired"}`,
		`"errored","error":{"type":"error","error":{"type":"odd","message":"m"},"x":1}`:                                     `"response":{"status_code":400,"body":{"type":"error","error":{"type":"odd","message":"m"},"x":1}}`,
		`"errored","error":{"type":"error","error":{"type":"api_error","message":"m","code":"result_lost","param":null}}`:   `"error":{"code":"result_lost","message":"m"}`,
		`"errored","error":{"type":"error","error":{"type":"invalid_request_error","message":"m","code":"c","param":null}}`: `"error":{"code":"c","message":"m"}`,
		`"errored","error":{"type":"error","error":{"type":"rate_limit_error","message":"m","code":"c","param":null},"request_id":"r"}`: `"response":{
			"status_code":429,"request_id":"r","body":{"error":{"message":"m","type":"t","param":null,"code":"c"}}}`,
	} {
		var o batch.Result
		if err := json.Unmarshal([]byte(`{"custom_id":"a",`+line+`}`), &o); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(viewResult(&o)); err != nil || text.String() != `{"custom_id":"a","result":{"type":`+want+"}}\n" {
			t.Errorf("%v: got %s, want %s", err, &text, want)
		}
	}
}
