package fakeprovider_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// batch is a batch in OpenAI's format.
type batch struct {
	ID, Object, Status, Endpoint string
	Input                        string  `json:"input_file_id"`
	Output                       *string `json:"output_file_id"`
	Errors                       *struct {
		Data []struct {
			Code, Message string
			Line          *int
		}
	}
	ErrorFile *string `json:"error_file_id"`
	Counts    struct {
		Total, Completed, Failed int
	} `json:"request_counts"`
	Created  int64 `json:"created_at"`
	Expires  int64 `json:"expires_at"`
	Metadata map[string]string
}

// upload uploads a file and returns its id.
func (f *fake) upload(name, purpose, content string, status int) string {
	f.t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	_ = form.WriteField("purpose", purpose)
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		f.t.Fatal(err)
	}
	_, _ = part.Write([]byte(content))
	_ = form.Close()
	var made struct {
		ID, Object, Filename, Purpose string
		Bytes                         int
	}
	f.get(status, &made, http.MethodPost, "/files", b.String(), "Content-Type: "+form.FormDataContentType())
	if status == 200 && (made.Object != "file" || made.Filename != name || made.Purpose != purpose || made.Bytes != len(content)) {
		f.t.Errorf("uploaded %+v", made)
	}
	return made.ID
}

// inputLine returns a line of an input file.
func inputLine(id, directives string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", id, chat(directives, ""))
}

// inputLines returns n lines with ids l1, l2 and so on.
func inputLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(inputLine(fmt.Sprintf("l%d", i+1), "output=3"))
	}
	return b.String()
}

// create creates a batch from a file with this content.
func (f *fake) create(content string) batch {
	f.t.Helper()
	file := f.upload("in.jsonl", "batch", content, 200)
	var b batch
	f.get(200, &b, "POST", "/batches", `{"input_file_id":"`+file+`","endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"ticket":"81"}}`)
	if b.Object != "batch" || b.Status != "validating" || b.Input != file || b.Expires != b.Created+86_400 || b.Metadata["ticket"] != "81" {
		f.t.Errorf("made %+v", b)
	}
	return b
}

// state returns the current state of a batch.
func (f *fake) state(id string) (b batch) {
	f.t.Helper()
	f.get(200, &b, "GET", "/batches/"+id, "")
	return b
}

// results returns the lines of a result file: custom id -> status or error code.
func (f *fake) results(file *string) map[string]string {
	f.t.Helper()
	out := map[string]string{}
	if file == nil {
		return out
	}
	for line := range strings.Lines(f.do("GET", "/files/"+*file+"/content", "").Body.String()) {
		var r struct {
			ID       string
			CustomID string `json:"custom_id"`
			Response *struct {
				Status int `json:"status_code"`
			}
			Error *struct{ Code string }
		}
		err := json.Unmarshal([]byte(line), &r)
		if err != nil || !strings.HasPrefix(r.ID, "batch_req_") {
			f.t.Errorf("%v: %s", err, line)
		}
		if r.Response != nil {
			out[r.CustomID] += fmt.Sprint(r.Response.Status)
		} else {
			out[r.CustomID] += r.Error.Code
		}
	}
	return out
}

// TestBatchLife: a batch goes from validating to completed, counts its lines, and each line is
// in one file.
func TestBatchLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		f.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Each: time.Second} })
		b := f.create(inputLines(4) + inputLine("l5", "status=500") + inputLine("l6", "status=429"))
		synctest.Wait()
		if now := f.state(b.ID); now.Status != "in_progress" || now.Counts.Total != 6 || now.Counts.Completed != 0 || now.Output != nil {
			t.Errorf("at first: %+v", now)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if now := f.state(b.ID); now.Status != "in_progress" || now.Counts.Completed != 4 {
			t.Errorf("after four lines: %+v", now)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		now := f.state(b.ID)
		if now.Status != "completed" || now.Counts.Completed != 4 || now.Counts.Failed != 2 {
			t.Errorf("at the end: %+v", now)
		}
		good := map[string]string{"l1": "200", "l2": "200", "l3": "200", "l4": "200"}
		if got := f.results(now.Output); !reflect.DeepEqual(got, good) {
			t.Errorf("output %v, want %v", got, good)
		}
		if got := f.results(now.ErrorFile); !reflect.DeepEqual(got, map[string]string{"l5": "500", "l6": "429"}) {
			t.Errorf("errors %v", got)
		}
		ran := 0
		for _, rec := range f.Log() {
			if rec.Header.Get("X-Fake-Batch") == b.ID {
				ran++
			}
		}
		if all := f.Batches(); ran != 6 || len(all) != 1 || all[0].Total != 6 || all[0].Status != "completed" {
			t.Errorf("the log has %d lines of it, the list %+v", ran, all)
		}
	})
}

// TestBatchProblems: a file with an invalid line fails as a whole, each problem is reported by
// line, and nothing runs.
func TestBatchProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		for _, test := range []struct{ content, want string }{
			{"", "empty_file 0"},
			{"not JSON\n", "invalid_json_line 1"},
			{inputLine("a", "") + inputLine("a", ""), "duplicate_custom_id 2"},
			{inputLine("a", "") + strings.Replace(inputLine("b", ""), "chat/completions", "embeddings", 1), "url_mismatch 2"},
			{inputLine("a", "") + "{\n" + inputLine("a", ""), "invalid_json_line 2, duplicate_custom_id 3"},
		} {
			b := f.create(test.content)
			synctest.Wait()
			now := f.state(b.ID)
			if now.Errors == nil {
				t.Errorf("%q: %s without an error, want %s", test.content, now.Status, test.want)
				continue
			}
			var got []string
			for _, p := range now.Errors.Data {
				line := 0
				if p.Line != nil {
					line = *p.Line
				}
				got = append(got, fmt.Sprint(p.Code, " ", line))
			}
			if now.Status != "failed" || strings.Join(got, ", ") != test.want || now.Output != nil || now.Counts.Completed != 0 {
				t.Errorf("%q: %s with %v, want failed with %s", test.content, now.Status, got, test.want)
			}
		}
		for _, rec := range f.Log() {
			if rec.Path == "/v1/chat/completions" {
				t.Errorf("a line of a failed batch has run: %+v", rec)
			}
		}
	})
}

// TestBatchCut: a cancelled or expired batch keeps the results so far, and the other lines are
// marked.
func TestBatchCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		f.ScriptBatches(func(number int) fakeprovider.BatchScript {
			return []fakeprovider.BatchScript{{Each: time.Second}, {Expire: 3}}[number-1]
		})
		b := f.create(inputLines(10))
		time.Sleep(1500 * time.Millisecond)
		var now batch
		f.get(200, &now, "POST", "/batches/"+b.ID+"/cancel", "")
		if now.Status != "cancelling" {
			t.Errorf("when it is cancelled: %s", now.Status)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now = f.state(b.ID); now.Status != "cancelled" || now.Counts.Completed != 4 || len(f.results(now.Output)) != 4 || len(f.results(now.ErrorFile)) != 6 {
			t.Errorf("cancelled: %+v", now)
		}
		f.get(200, &now, "POST", "/batches/"+b.ID+"/cancel", "")
		if now.Status != "cancelled" {
			t.Errorf("cancelled twice: %s", now.Status)
		}
		b = f.create(inputLines(5))
		time.Sleep(time.Minute)
		synctest.Wait()
		now = f.state(b.ID)
		want := map[string]string{"l4": "batch_expired", "l5": "batch_expired"}
		if got := f.results(now.ErrorFile); now.Status != "expired" || len(f.results(now.Output)) != 3 || !reflect.DeepEqual(got, want) {
			t.Errorf("expired: %+v with %v, want %v", now, got, want)
		}
	})
}

// TestBatchFaults: lines are lost and duplicated according to the script.
func TestBatchFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		f.ScriptBatches(func(number int) fakeprovider.BatchScript {
			return []fakeprovider.BatchScript{{Drop: 3}, {Twice: 2}, {Fail: []fakeprovider.BatchProblem{{Code: "token_limit", Message: "Too many."}}}}[number-1]
		})
		for i, want := range []map[string]string{
			{"l1": "200", "l2": "200", "l4": "200", "l5": "200"},
			{"l1": "200", "l2": "200200", "l3": "200", "l4": "200200", "l5": "200", "l6": "200200"},
			{},
		} {
			b := f.create(inputLines(6))
			synctest.Wait()
			now := f.state(b.ID)
			if got := f.results(now.Output); !reflect.DeepEqual(got, want) {
				t.Errorf("batch %d: %v, want %v", i+1, got, want)
			}
			if i == 2 && (now.Status != "failed" || now.Errors.Data[0].Code != "token_limit") {
				t.Errorf("batch 3: %+v", now)
			}
		}
	})
}

// TestBatchRefused: a batch with no file or another window is rejected.
func TestBatchRefused(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	file := f.upload("in.jsonl", "batch", inputLines(1), 200)
	for body, param := range map[string]string{
		`{"input_file_id":"file-0","endpoint":"/v1/chat/completions","completion_window":"24h"}`:      "input_file_id",
		`{"input_file_id":"` + file + `","endpoint":"/v1/chat/completions","completion_window":"1h"}`: "completion_window",
		`[]`: "null",
	} {
		var fault apiFault
		f.get(400, &fault, "POST", "/batches", body)
		if text(fault.Error.Param) != param {
			t.Errorf("%s: param %s, want %s", body, text(fault.Error.Param), param)
		}
	}
	if all := f.Batches(); len(all) != 0 {
		t.Errorf("made all the same: %+v", all)
	}
}

// TestFilesLife: a file is listed, shown, downloaded byte for byte and deleted; an unknown one
// is rejected.
func TestFilesLife(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	content := "{}\n\x00\xff"
	id := f.upload("a.jsonl", "batch", content, 200)
	if got := f.do("GET", "/files/"+id+"/content", "").Body.String(); got != content {
		t.Errorf("content %q, want %q", got, content)
	}
	f.upload("a.jsonl", "fine-tune", content, 400)
	f.upload("a.csv", "batch", content, 400)
	var fault apiFault
	f.get(400, &fault, "POST", "/files", "no form", "Content-Type: text/plain")
	var gone struct {
		ID      string
		Deleted bool
	}
	f.get(200, &gone, "DELETE", "/files/"+id, "")
	if !gone.Deleted || gone.ID != id || len(f.Files()) != 0 {
		t.Errorf("deleted %+v, left %v", gone, f.Files())
	}
	f.get(404, &fault, "GET", "/files/"+id, "")
	f.get(404, &fault, "GET", "/files/"+id+"/content", "")
}

// TestListsArePaged: the newest comes first, pages join without gaps or repeats, and the last
// page says so.
func TestListsArePaged(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	var want []string
	for range 5 {
		want = append(want, f.upload("a.jsonl", "batch", "{}", 200))
	}
	slices.Reverse(want)
	for limit := 1; limit <= 6; limit++ {
		var got []string
		for after, more := "", true; more; {
			var page struct {
				Object string
				Data   []struct{ ID string }
				More   bool   `json:"has_more"`
				First  string `json:"first_id"`
				Last   string `json:"last_id"`
			}
			f.get(200, &page, "GET", fmt.Sprintf("/files?limit=%d&after=%s", limit, after), "")
			if page.Object != "list" || len(page.Data) > limit || page.First != page.Data[0].ID || page.Last != page.Data[len(page.Data)-1].ID {
				t.Fatalf("page %+v", page)
			}
			for _, one := range page.Data {
				got = append(got, one.ID)
			}
			after, more = page.Last, page.More
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, want %v", limit, got, want)
		}
	}
}

// TestParseDirectives: each word sets its field, and errors name invalid words.
func TestParseDirectives(t *testing.T) {
	for text, want := range map[string]fakeprovider.Behaviour{
		"":                               {},
		"output=50":                      {Output: 50},
		"output=all":                     {Fill: true},
		"reasoning=64;cached=-1 tools=2": {Reasoning: 64, Cached: -1, Tools: 2},
		"text=a+b%5D%25":                 {Text: "a b]%"},
		"delay=1.5s\tgap=3ms\nfirst=1m":  {Delay: 1500 * time.Millisecond, Gap: 3 * time.Millisecond, First: time.Minute},
		"status=429 retry-after=7":       {Status: 429, RetryAfter: "7"},
		"type=t code=c message=m":        {Type: "t", Code: "c", Message: "m"},
		"header=X-A:1 header=X-A:2":      {Header: map[string][]string{"X-A": {"1", "2"}}},
		"cut=reset after=3 endless":      {Cut: fakeprovider.CutReset, After: 3, Endless: true},
		"usage=huge":                     {Usage: fakeprovider.UsageHuge},
		"garbage=true comments=1 early":  {Garbage: true, Comments: true, Early: true},
		"gzip=false":                     {},
		"newline=crlf split=byte":        {Newline: "crlf", Split: "byte"},
		"raw=x repeat=3 long=9 times=2":  {Raw: "x", Repeat: 3, LongLine: 9, Times: 2},
		"output=1 output=2":              {Output: 2},
	} {
		got, err := fakeprovider.ParseDirectives(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, word := range []string{
		"pace=1", "output=many", "output=1.5", "delay=soon", "cut=off", "usage=some", "newline=nl", "split=word", "text=%zz", "raw-usage={", "status=",
	} {
		if got, err := fakeprovider.ParseDirectives("output=1 " + word); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %+v, %v; want an error that names it", word, got, err)
		}
	}
}
