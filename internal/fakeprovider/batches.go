package fakeprovider

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// batchJob is a batch in OpenAI's format.
type batchJob struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Endpoint   string            `json:"endpoint"`
	Errors     *batchErrors      `json:"errors"`
	Input      string            `json:"input_file_id"`
	Window     string            `json:"completion_window"`
	Status     string            `json:"status"`
	Output     *string           `json:"output_file_id"`
	ErrorFile  *string           `json:"error_file_id"`
	Created    int64             `json:"created_at"`
	Expires    int64             `json:"expires_at"`
	Counts     batchCounts       `json:"request_counts"`
	Metadata   map[string]string `json:"metadata"`
	script     BatchScript
	cancelling bool
	header     http.Header   // of its lines
	messages   *messageBatch // set if it is one of Anthropic's API
}

type batchErrors struct {
	Object string         `json:"object"`
	Data   []BatchProblem `json:"data"`
}

type batchCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// BatchProblem is an error that fails a whole batch.
type BatchProblem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    *int   `json:"line"`
}

// BatchScript controls how a batch runs. The zero value runs every line immediately.
type BatchScript struct {
	Each   time.Duration  // before every line
	Fail   []BatchProblem // validation fails with these
	Expire int            // expires after this many lines; 0: never
	Drop   int            // every nth line is missing from both files; 0: none
	Twice  int            // every nth line appears twice in its file; 0: none
	Cut    int            // every nth line has no end; 0: none
	Fails  int            // every nth line has an error with status 200; 0: none
}

// Batch is a batch created on the server. The Status of a batch of messages may be in_progress, ended or deleted.
type Batch struct {
	ID, Status, Input string
	Metadata          map[string]string
	Total             int // lines that have run
}

// Batches returns all batches, oldest first.
func (s *Server) Batches() []Batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Batch
	for _, b := range s.batches {
		out = append(out, Batch{b.ID, b.Status, b.Input, b.Metadata, b.Counts.Completed + b.Counts.Failed})
	}
	return out
}

// ScriptBatches controls batches created from now on, by their number, starting at 1.
func (s *Server) ScriptBatches(fn func(number int) BatchScript) {
	s.change(func() { s.batchScript = fn })
}

// routeBatches returns the handler for a path below /v1/batches.
func routeBatches(x *exchange) (method string, handle handler) {
	id, what, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(x.r.URL.Path, "/v1/batches"), "/"), "/")
	switch {
	case id == "" && x.r.Method == http.MethodPost:
		return http.MethodPost, scripted(createBatch)
	case id == "":
		return http.MethodGet, scripted(listBatches)
	case what == "cancel":
		return http.MethodPost, withBatch(id, (*batchJob).cancel)
	}
	return http.MethodGet, withBatch(id, func(*batchJob) {})
}

// withBatch returns a handler that calls do under the lock and responds with the batch.
func withBatch(id string, do func(*batchJob)) handler {
	return scripted(func(x *exchange, lost bool) error {
		var seen any
		x.s.change(func() {
			if b := x.s.batch(id); b != nil {
				do(b)
				seen = b.shown()
			}
		})
		if seen == nil {
			return missing("batch", id)
		}
		return x.show(seen, lost)
	})
}

// deleted is the status of a batch of messages that was deleted.
const deleted = "deleted"

// batch returns a batch of either API, nil if there is none. It needs the lock.
func (s *Server) batch(id string) *batchJob {
	i := slices.IndexFunc(s.batches, func(b *batchJob) bool { return b.ID == id && b.Status != deleted })
	if i < 0 {
		return nil
	}
	return s.batches[i]
}

// shown returns a copy of the batch in the format of its API. It needs the lock.
func (b *batchJob) shown() any {
	if b.messages != nil {
		return *b.messages
	}
	return *b
}

func (b *batchJob) cancel() {
	if b.Status == "validating" || b.Status == "in_progress" {
		b.Status, b.cancelling = "cancelling", true
	}
}

func listBatches(x *exchange, _ bool) error {
	var all []batchJob
	x.s.change(func() {
		for _, b := range slices.Backward(x.s.batches) {
			if b.messages == nil {
				all = append(all, *b)
			}
		}
	})
	return x.show(pageOf(x.r, all, 100, func(b batchJob) string { return b.ID }), false)
}

func createBatch(x *exchange, lost bool) error {
	b := &batchJob{ID: newID("batch_"), Object: "batch", Status: "validating", Created: time.Now().Unix()}
	if err := json.Unmarshal(x.q.Body, b); err != nil {
		return invalid("", "", "We could not parse the JSON body of your request.")
	}
	f := x.s.file(b.Input)
	if f == nil {
		return invalid("input_file_id", "", "No such File object: %s", b.Input)
	}
	if b.Window != "24h" {
		return invalid("completion_window", "", "Invalid value: '%s'. Supported values are: '24h'.", b.Window)
	}
	b.Expires = b.Created + 24*3600
	seen := x.s.addBatch(b)
	b.header = http.Header{"Authorization": x.r.Header.Values("Authorization")}
	x.s.running.Go(func() { x.s.runBatch(b, f.content) })
	return x.show(seen, lost)
}

// addBatch lists a batch, and returns it as it is then.
func (s *Server) addBatch(b *batchJob) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, b)
	if s.batchScript != nil {
		b.script = s.batchScript(len(s.batches))
	}
	return b.shown()
}

// batchesAtOnce is how many lines of a batch run concurrently.
const batchesAtOnce = 4

// batchLine is one request of an input file.
type batchLine struct {
	CustomID string          `json:"custom_id"`
	Method   string          `json:"method"`
	URL      string          `json:"url"`
	Body     json.RawMessage `json:"body"`
}

func (s *Server) runBatch(b *batchJob, input []byte) {
	lines, problems := b.read(input)
	if len(problems) > 0 {
		s.change(func() { b.Status, b.Errors = "failed", &batchErrors{"list", problems} })
		return
	}
	s.runLines(b, lines)
}

// runLines runs the lines through the server's own handler, so that each is logged like a call,
// with the header X-Fake-Batch.
func (s *Server) runLines(b *batchJob, lines []batchLine) {
	s.change(func() {
		b.Counts.Total = len(lines)
		if !b.cancelling {
			b.Status = "in_progress"
		}
	})
	var mu sync.Mutex
	var output, errs bytes.Buffer
	var wait sync.WaitGroup
	slots := make(chan struct{}, batchesAtOnce)
	for i, line := range lines {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			into, text := &output, s.runLine(b, i+1, line)
			if text.Response == nil || text.Response.Status >= http.StatusBadRequest {
				into = &errs
			}
			mu.Lock()
			defer mu.Unlock()
			b.write(into, i+1, text)
		})
	}
	wait.Wait()
	s.finishBatch(b, output.Bytes(), errs.Bytes())
}

func (b *batchJob) read(input []byte) (lines []batchLine, problems []BatchProblem) {
	if len(b.script.Fail) > 0 {
		return nil, b.script.Fail
	}
	seen, scan := map[string]bool{}, bufio.NewScanner(bytes.NewReader(input))
	scan.Buffer(nil, 64<<20)
	for n := 1; scan.Scan(); n++ {
		var line batchLine
		code := ""
		switch err := json.Unmarshal(scan.Bytes(), &line); {
		case err != nil:
			code = "invalid_json_line"
		case seen[line.CustomID]:
			code = "duplicate_custom_id"
		case line.URL != b.Endpoint:
			code = "url_mismatch"
		}
		if code != "" {
			problems = append(problems, BatchProblem{code, "This line is wrong.", &n})
		}
		seen[line.CustomID] = true
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		problems = append(problems, BatchProblem{"empty_file", "The input file is empty.", nil})
	}
	return lines, problems
}

type lineResult struct {
	ID       string        `json:"id"`
	CustomID string        `json:"custom_id"`
	Response *lineResponse `json:"response"`
	Error    *BatchProblem `json:"error"`
}

type lineResponse struct {
	Status    int             `json:"status_code"`
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
}

// runLine runs one line, unless its batch has ended.
func (s *Server) runLine(b *batchJob, number int, line batchLine) lineResult {
	r := lineResult{ID: newID("batch_req_"), CustomID: line.CustomID}
	over := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case b.cancelling:
			r.Error = &BatchProblem{
				Code:    "batch_cancelled",
				Message: "This request was not executed because the batch was cancelled.",
			}
		case b.script.Expire > 0 && number > b.script.Expire:
			r.Error = &BatchProblem{
				Code:    "batch_expired",
				Message: "This request could not be executed before the completion window expired.",
			}
		}
		return r.Error != nil
	}
	if over() || !s.sleep(s.closed, b.script.Each) || over() {
		return r
	}
	req, err := http.NewRequestWithContext(s.closed, line.Method, line.URL, bytes.NewReader(line.Body))
	if err != nil {
		r.Error = &BatchProblem{Code: "invalid_request", Message: err.Error()}
		return r
	}
	maps.Copy(req.Header, b.header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Fake-Batch", b.ID)
	w := &answerBuffer{header: http.Header{}}
	s.Handler().ServeHTTP(w, req)
	r.Response = &lineResponse{Status: w.status, RequestID: w.header.Get("X-Request-Id"), Body: w.body.Bytes()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.status < http.StatusBadRequest {
		b.Counts.Completed++
	} else {
		b.Counts.Failed++
	}
	return r
}

func (b *batchJob) write(into *bytes.Buffer, number int, r lineResult) {
	every := func(n int) bool { return n > 0 && number%n == 0 }
	if every(b.script.Drop) {
		return
	}
	if every(b.script.Fails) {
		r.Response = &lineResponse{Status: http.StatusOK, Body: []byte(`{"error":{"message":"slow down","code":429}}`)}
	}
	text := append(b.line(r), '\n')
	if every(b.script.Cut) {
		text = append(text[:len(text)/2], '\n')
	}
	into.Write(text)
	if every(b.script.Twice) {
		into.Write(text)
	}
}

// line returns a result as the batch's API writes it.
func (b *batchJob) line(r lineResult) []byte {
	if b.messages != nil {
		return b.messages.line(r)
	}
	return encode(r)
}

func (s *Server) finishBatch(b *batchJob, output, errs []byte) {
	if b.messages != nil {
		s.change(func() { b.endMessages(append(errs, output...)) })
		return
	}
	keep := func(what string, content []byte) *string {
		if len(content) == 0 {
			return nil
		}
		return &s.keepFile(b.ID+"_"+what+".jsonl", "batch_output", content).ID
	}
	out, bad := keep("output", output), keep("error", errs)
	s.change(func() {
		b.Output, b.ErrorFile = out, bad
		switch {
		case b.cancelling:
			b.Status = "cancelled"
		case b.script.Expire > 0 && b.Counts.Total > b.script.Expire:
			b.Status = "expired"
		default:
			b.Status = "completed"
		}
	})
}

// change calls a function under the lock.
func (s *Server) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// answerBuffer is a ResponseWriter that keeps the response.
type answerBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answerBuffer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answerBuffer) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *answerBuffer) Write(p []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.body.Write(p)
}
