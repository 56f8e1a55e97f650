package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestBatch checks that every line ends up in one of the two files, with counts, usage and
// cost that agree with the lines.
func TestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	r.runner(r.options())
	text := strings.Replace(chats(450), "\n", "\r\n\n", 1)                                                            // a blank line, another line ending
	text += strings.Replace(chat("bad", "x"), `"max_tokens":5`, `"max_tokens":5,"response_format":{"type":"xml"}`, 1) // and none at the end
	b := r.create(r.upload(text), wire.ChatCompletions)
	if b.Status != Validating || b.Expires.Sub(b.Created) != Window {
		t.Errorf("new batch %+v", b)
	}
	b = r.ended(b.ID)
	output, errs := r.results(b)
	if b.Status != Completed || b.Total != 451 || int(b.Succeeded) != len(output) || int(b.Unsuccessful) != len(errs) || len(output)+len(errs) != 451 {
		t.Fatalf("%s: total %d, %d succeeded, %d not; %d and %d lines", b.Status, b.Total, b.Succeeded, b.Unsuccessful, len(output), len(errs))
	}
	var in, out int64
	for id, res := range output {
		a, ok := wire.ParseUsage(wire.ChatCompletions, res.Response.Body)
		if !ok || res.Response.StatusCode != 200 || res.Response.RequestID == "" || res.Error != nil || !strings.HasPrefix(res.ID, "batch_req_") {
			t.Fatalf("%s: %+v", id, res)
		}
		in, out = in+a.Usage.Input, out+a.Usage.Output
	}
	if b.InputTokens != in || b.OutputTokens != out || in == 0 || b.Charged <= 0 || b.Charged > b.Estimate {
		t.Errorf("usage %d in, %d out, charged %d of at most %d; the lines say %d and %d", b.InputTokens, b.OutputTokens, b.Charged, b.Estimate, in, out)
	}
	if b.Model != "gpt-4o-mini" || b.Started.IsZero() || b.Finalized.IsZero() || b.Completed.IsZero() {
		t.Errorf("got %+v, want gpt-4o-mini and the times of all steps", b)
	}
	r.leavesNothing(b)
}

// TestFailedLineSaysHowOftenItWasTried checks that a failed line in the error file, and
// only there, reports its attempts.
func TestFailedLineSaysHowOftenItWasTried(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	r.runner(r.options())
	faults := map[string]int{
		"status=500": 500, "status=200+body=html": 502, "status=200+body=empty": 502, "status=200+body=string": 502,
		"status=200+body=" + url.QueryEscape(`{"error":{"message":"x","code":500}}`): 500,
	}
	text := chat("good", "x")
	for fault := range faults {
		text += "\n" + chat(fault, "[fake: "+strings.ReplaceAll(fault, "+body", " body")+"] x")
	}
	busy := url.QueryEscape(`{"error":{"message":"slow down","code":429}}`)
	text += "\n" + chat("busy", "[fake: status=200 times=1 body="+busy+"] x")
	b := r.ended(r.create(r.upload(text), wire.ChatCompletions).ID)
	output, errs := r.results(b)
	for fault, status := range faults {
		if res := errs[fault]; res.Attempts != 1 || res.Response == nil || res.Response.StatusCode != status {
			t.Errorf("the line that failed with %s: %+v", fault, res)
		}
	}
	cost := int64(0)
	for _, name := range []string{"good", "busy"} {
		good := output[name]
		if good.Attempts != 0 || good.Response == nil || good.Response.StatusCode != 200 {
			t.Errorf("the line that succeeded: %s: %+v", name, good)
			continue
		}
		a, _ := wire.ParseUsage(wire.ChatCompletions, good.Response.Body)
		cost += a.Usage.Input*150 + a.Usage.Output*600 // gpt-4o-mini
	}
	if b.Charged != cost || b.Succeeded != 2 {
		t.Errorf("%d are charged for %d lines, want %d for 2", b.Charged, b.Succeeded, cost)
	}
}

// TestEndpoints checks every endpoint that lines may use.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	r.runner(r.options())
	bodies := map[wire.Endpoint]string{
		wire.ChatCompletions: `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],"max_tokens":5}`,
		wire.Responses:       `{"model":"gpt-4o-mini","input":"hello","max_output_tokens":20}`,
		wire.Embeddings:      `{"model":"text-embedding-3-small","input":["hello","you"]}`,
		wire.Completions:     `{"model":"gpt-4o-mini","prompt":"hello","max_tokens":5}`,
		wire.Messages:        `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],"max_tokens":5}`,
		wire.Rerank:          `{"model":"text-embedding-3-small","query":"hello","documents":["a","b"]}`,
		wire.Moderations:     `{"model":"omni-moderation-latest","input":"hello"}`,
	}
	ids := map[wire.Endpoint]string{}
	for _, ep := range endpoints() {
		text := fmt.Sprintf(`{"custom_id":"a","method":"POST","url":"%s","body":%s}`, ep.Path(), bodies[ep])
		ids[ep] = r.create(r.upload(text), ep).ID
	}
	for _, ep := range endpoints() {
		t.Run(string(ep), func(t *testing.T) {
			b := r.ended(ids[ep])
			output, _ := r.results(b)
			res := output["a"]
			if b.Status != Completed || res.Response == nil || res.Response.StatusCode != 200 {
				t.Fatalf("%+v, errors %s", b, r.content(b.Errors))
			}
			if usage := b.InputTokens > 0 && b.Charged > 0; usage == ep.Traits().Free {
				t.Errorf("%d input tokens, charged %d", b.InputTokens, b.Charged)
			}
		})
	}
}

// leavesNothing checks that an ended batch keeps no lines, chunks, bodies or answers.
func (r *rig) leavesNothing(b *Batch) {
	r.t.Helper()
	var left []string
	for range 6000 {
		left = nil
		for _, pattern := range []string{"lg:{job_*", Keys(b.ID)[1], Keys(b.ID)[2]} {
			found, err := r.rdb.Keys(r.t.Context(), strings.ReplaceAll(pattern, "batch_*", b.ID)).Result()
			if err != nil {
				r.t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(left) > 0 {
		r.t.Errorf("%d keys are left, such as %v", len(left), left[:min(len(left), 3)])
	}
	if _, err := r.files.Blobs().Open(r.t.Context(), "acme/"+b.ID+"/1", 0); err == nil {
		r.t.Error("chunks are left")
	}
}

// TestValidation checks that errors in a file are reported with their line, and that
// nothing of the file runs.
func TestValidation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.options()
	o.MaxLine = 2000
	r.store.Bound(Bounds{Lines: 20})
	r.runner(o)
	good := chat("a", "x")
	edit := func(old, with string) string { return strings.Replace(chat("b", "x"), old, with, 1) }
	tests := []struct {
		name, text string
		code       string
		line       int
		param      string
	}{
		{"empty", "\n \n", "empty_file", 0, ""},
		{"no JSON", good + "\n\nnot json\n", "invalid_json_line", 3, ""},
		{"an array", good + "\n[1]", "invalid_json_line", 2, ""},
		{"null", good + "\nnull", "invalid_json_line", 2, ""},
		{"custom_id twice", good + "\n" + good, "duplicate_custom_id", 2, "custom_id"},
		{"no custom_id", good + "\n" + edit(`"custom_id":"b",`, ""), "missing_required_parameter", 2, "custom_id"},
		{"custom_id is a number", good + "\n" + edit(`"b"`, "7"), "invalid_type", 2, "custom_id"},
		{"method", good + "\n" + edit("POST", "GET"), "invalid_method", 2, "method"},
		{"url", good + "\n" + edit("/v1/chat/completions", "/v1/embeddings"), "url_mismatch", 2, "url"},
		{"body", good + "\n" + edit(`"body":`, `"bodies":`), "missing_required_parameter", 2, "body"},
		{"another model", good + "\n" + edit("gpt-4o-mini", "gpt-4o"), "model_mismatch", 2, "body.model"},
		{"unknown model", strings.ReplaceAll(good, "gpt-4o-mini", "nope"), "model_not_priced", 1, "body.model"},
		{"a stream", good + "\n" + edit(`"max_tokens":5`, `"stream":true`), "invalid_value", 2, "body.stream"},
		{"a wrong type", good + "\n" + edit(`"max_tokens":5`, `"max_tokens":"5"`), "", 2, "body.max_tokens"},
		{"a name twice", good + "\n" + edit(`"max_tokens":5`, `"max_tokens":5,"max_tokens":500`), "", 2, ""},
		{"too many", chats(21), "too_many_tasks", 21, ""},
		{"a long line", good + "\n" + chat("b", strings.Repeat("x", 2000)) + "\n" + good, "line_too_large", 2, ""},
	}
	ids := make([]string, len(tests))
	for i, test := range tests {
		ids[i] = r.create(r.upload(test.text), wire.ChatCompletions).ID
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := r.ended(ids[i])
			if b.Status != Failed || b.Failed.IsZero() || len(b.Problems) == 0 || b.Output+b.Errors != "" {
				t.Fatalf("got %+v, want a failed batch with problems and without files", b)
			}
			p := b.Problems[0]
			line, param := 0, ""
			if p.Line != nil {
				line = *p.Line
			}
			if p.Param != nil {
				param = *p.Param
			}
			if test.code != "" && p.Code != test.code || line != test.line || test.param != "" && param != test.param || p.Message == "" || p.Code == "" {
				text, _ := json.Marshal(p)
				t.Errorf("%s; want code %q, line %d, param %q", text, test.code, test.line, test.param)
			}
		})
	}
	if n := r.requests(); n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
}

// TestCancel checks that running lines end, waiting ones do not run, and each line has one
// result; also before validation.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, budget.Limit{ID: "c", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 2}})
	o := r.options()
	o.InQueue = 50
	early := r.create(r.upload(chats(10)), wire.ChatCompletions)
	if early, _ = r.store.Cancel(t.Context(), "acme", "alice", early.ID); early.Status != Cancelling {
		t.Fatalf("got %+v, want status %s", early, Cancelling)
	}
	r.runner(o)
	if early = r.ended(early.ID); early.Status != Cancelled || early.Output+early.Errors != "" {
		t.Errorf("cancelled before validation: %+v", early)
	}
	b := r.create(r.upload(chats(300)), wire.ChatCompletions)
	r.await(b.ID, "expanding", func(b *Batch) bool { return b.next.line >= 50 })
	stop := r.worker()
	defer stop()
	r.await(b.ID, "running", func(b *Batch) bool { ok, _ := b.Done(); return ok > 0 })
	if _, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil {
		t.Fatal(err)
	}
	b = r.ended(b.ID)
	output, errs := r.results(b)
	if b.Status != Cancelled || b.CancelAsked.IsZero() || b.Cancelled.IsZero() || len(output)+len(errs) != 300 || len(output) == 0 || len(errs) == 0 || int(b.Succeeded) != len(output) || b.Unsuccessful != 0 {
		t.Fatalf("%s, %d+%d lines, counts %d/%d/%d", b.Status, len(output), len(errs), b.Total, b.Succeeded, b.Unsuccessful)
	}
	for id, res := range errs {
		if res.Response != nil || res.Error == nil || res.Error.Code != "batch_cancelled" {
			t.Fatalf("%s: %+v", id, res)
		}
	}
	if again, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil || again.Status != Cancelled {
		t.Errorf("cancelled again: %v %+v", err, again)
	}
	if n := r.requests(); n != len(output) {
		t.Errorf("%d requests reached the provider, %d lines have results", n, len(output))
	}
}

// TestExpiry checks that a batch whose window is over keeps what is done, and that the rest
// is distinguishable.
func TestExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.options()
	o.InQueue = 50
	b := r.create(r.upload(chats(120)), wire.ChatCompletions)
	stop := r.runner(o)
	r.await(b.ID, "expanding", func(b *Batch) bool { return b.next.line >= 50 })
	stop()
	done := r.worker()
	for range 6000 {
		if r.requests() >= 50 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	done()
	if err := r.rdb.HSet(t.Context(), recordKey(b.ID), "expires", time.Now().Unix()-1).Err(); err != nil {
		t.Fatal(err)
	}
	r.runner(o)
	b = r.ended(b.ID)
	output, errs := r.results(b)
	if b.Status != Expired || b.Expired.IsZero() || len(output) != 50 || len(errs) != 70 || b.Succeeded != 50 || b.Unsuccessful != 0 {
		t.Fatalf("%s, %d+%d lines, counts %d/%d/%d", b.Status, len(output), len(errs), b.Total, b.Succeeded, b.Unsuccessful)
	}
	for id, res := range errs {
		if res.Response != nil || res.Error == nil || res.Error.Code != "batch_expired" {
			t.Fatalf("%s: %+v", id, res)
		}
	}
}

// TestTakeover checks that the process that drives a batch may die between any two steps
// and during one, and its successor loses and repeats nothing.
func TestTakeover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.worker()
	const lines = 240
	b := r.create(r.upload(chats(lines)), wire.ChatCompletions)
	o := r.options()
	o.InQueue = lines / 8
	deaths := 0
	for i := 0; !b.Status.Terminal(); i++ {
		if r.drive(o, b.ID, 1+i%4) {
			deaths++
		}
		b = r.await(b.ID, "there", func(*Batch) bool { return true })
	}
	output, errs := r.results(b)
	if b.Status != Completed || len(output) != lines || len(errs) != 0 || b.Succeeded != lines {
		t.Errorf("%s: %d+%d lines, %d succeeded", b.Status, len(output), len(errs), b.Succeeded)
	}
	if n := r.requests(); n != lines {
		t.Errorf("%d requests reached the provider for %d lines", n, lines)
	}
	if deaths < 10 {
		t.Errorf("only %d deaths", deaths)
	}
}

// TestOverBudget checks that a batch that the budgets cannot cover is refused, and one that
// they may not cover gets a warning.
func TestOverBudget(t *testing.T) {
	t.Parallel()
	day := func(amount int64) budget.Limit {
		return budget.Limit{ID: "month", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Calendar, Calendar: "month", Amount: amount}}
	}
	r := newRig(t, day(1))
	o := r.options()
	r.runner(o)
	b := r.ended(r.create(r.upload(chats(100)), wire.ChatCompletions).ID)
	if b.Status != Failed || len(b.Problems) != 1 || b.Problems[0].Code != "insufficient_quota" || !strings.Contains(b.Problems[0].Message, `"month"`) {
		t.Fatalf("got %+v, want a failed batch with insufficient_quota for \"month\"", b)
	}
	// The input of 100 lines is about 120,000, its output up to 300,000 more.
	r.org.Limits = []budget.Limit{day(200_000)}
	b = r.create(r.upload(chats(100)), wire.ChatCompletions)
	b = r.await(b.ID, "checked", func(b *Batch) bool { return b.Status != Validating })
	if b.Status == Failed || len(b.Warnings) != 1 || b.Estimate <= 200_000 {
		t.Errorf("got %+v, want a batch with one warning and an estimate above 200,000", b)
	}
}

// TestLineReader checks that positions are those of a file read from the start, wherever a
// reader begins.
func TestLineReader(t *testing.T) {
	t.Parallel()
	text := "\xEF\xBB\xBFone\n\ntwo\r\n" + strings.Repeat("x", 100_000) + "\nthree"
	open := func(from position) *lineReader {
		return &lineReader{body: io.NopCloser(strings.NewReader("")), buf: newBuf(text[from.off:]), at: from, most: 1000}
	}
	var places []position
	for r := open(position{}); ; {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		places = append(places, r.at)
		if r.at.line == 1 && string(line) != "one" {
			t.Errorf("the first line is %q, want it without the byte order mark", line)
		}
		if long := errors.Is(err, errLong); long != (r.at.line == 4) {
			t.Errorf("line %d %q: %v", r.at.line, line, err)
		}
	}
	if fmt.Sprint(places) != "[1 7 3 13 4 100014 5 100019]" {
		t.Errorf("positions %v", places)
	}
	for i, from := range places[:len(places)-1] {
		r := open(from)
		if _, err := r.next(); err != nil && !errors.Is(err, errLong) || r.at != places[i+1] {
			t.Errorf("from %v: at %v, %v", from, r.at, err)
		}
	}
}
