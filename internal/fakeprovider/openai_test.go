package fakeprovider_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// fake is a server that is called without a network.
type fake struct {
	*fakeprovider.Server
	t *testing.T
}

func newFake(t *testing.T, opts fakeprovider.Options) *fake {
	t.Helper()
	s := fakeprovider.New(opts)
	t.Cleanup(func() { _ = s.Close() })
	return &fake{s, t}
}

// do sends a request; header is "Name: value" lines.
func (f *fake) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequest(method, "/v1"+path, strings.NewReader(body))
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	return w
}

// get sends a request, checks the status and decodes the response.
func (f *fake) get(status int, into any, method, path, body string, header ...string) {
	f.t.Helper()
	w := f.do(method, path, body, header...)
	if w.Code != status {
		f.t.Fatalf("%s %s: status %d, want %d: %s", method, path, w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		f.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
	}
}

// chat returns a chat request with directives in its text.
func chat(directives, more string) string {
	return `{"model":"gpt-4o","messages":[{"role":"user","content":"hi [fake: ` + directives + `]"}]` + more + `}`
}

// apiFault is an error in OpenAI's format.
type apiFault struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// text returns a string that may be null.
func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// TestRefusals: status, type, code and param of each error match OpenAI's documentation.
func TestRefusals(t *testing.T) {
	f := newFake(t, fakeprovider.Options{Key: "sk-right-0123456789", Models: []string{"gpt-4o", "gpt-5"}, MaxBody: 2000})
	right := "Authorization: Bearer sk-right-0123456789"
	for _, test := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code, param              string
	}{
		{"no key", "POST", "/chat/completions", chat("", ""), nil, 401, "null", "null"},
		{"wrong key", "POST", "/chat/completions", chat("", ""), []string{"Authorization: Bearer sk-wrong-0123456789"}, 401, "invalid_api_key", "null"},
		{"basic", "POST", "/chat/completions", chat("", ""), []string{"Authorization: Basic c2s="}, 401, "invalid_api_key", "null"},
		{"two keys", "POST", "/chat/completions", chat("", ""), []string{right, right}, 401, "invalid_api_key", "null"},
		{"unknown path", "POST", "/chat", "{}", []string{right}, 404, "unknown_url", "null"},
		{"wrong method", "PUT", "/chat/completions", "", []string{right}, 405, "method_not_supported", "null"},
		{"unknown model", "POST", "/chat/completions", strings.Replace(chat("", ""), "gpt-4o", "gpt-none", 1), []string{right}, 404, "model_not_found", "null"},
		{"too large", "POST", "/chat/completions", chat(strings.Repeat(" ", 2000), ""), []string{right}, 413, "null", "null"},
		{"no messages", "POST", "/chat/completions", `{"model":"gpt-4o"}`, []string{right}, 400, "missing_required_parameter", "messages"},
		{"temperature of n", "POST", "/chat/completions", chat("", `,"n":0`), []string{right}, 400, "integer_out_of_range", "n"},
		{"limit below one", "POST", "/chat/completions", chat("", `,"max_tokens":0`), []string{right}, 400, "integer_below_min_value", "max_tokens"},
		{"old limit", "POST", "/chat/completions", strings.Replace(chat("", `,"max_tokens":9`), "gpt-4o", "gpt-5", 1), []string{right}, 400, "unsupported_parameter", "max_tokens"},
		{"two limits", "POST", "/chat/completions", chat("", `,"max_tokens":9,"max_completion_tokens":9`), []string{right}, 400, "invalid_parameter_combination", "max_tokens"},
		{"wrong type", "POST", "/chat/completions", chat("", `,"stream":"yes"`), []string{right}, 400, "invalid_type", "stream"},
		{"stream options alone", "POST", "/chat/completions", chat("", `,"stream_options":{"include_usage":true}`), []string{right}, 400, "null", "stream_options"},
		{"no input", "POST", "/embeddings", `{"model":"gpt-4o"}`, []string{right}, 400, "missing_required_parameter", "input"},
		{"small response", "POST", "/responses", `{"model":"gpt-4o","input":"x","max_output_tokens":15}`, []string{right}, 400, "integer_below_min_value", "max_output_tokens"},
		{"forgotten response", "POST", "/responses", `{"model":"gpt-4o","input":"x","previous_response_id":"resp_0"}`, []string{right}, 400, "previous_response_not_found", "previous_response_id"},
		{"unknown response", "GET", "/responses/resp_0", "", []string{right}, 404, "null", "id"},
		{"unknown file", "GET", "/files/file-0", "", []string{right}, 404, "null", "id"},
		{"unknown batch", "GET", "/batches/batch_0", "", []string{right}, 404, "null", "id"},
		{"unknown directive", "POST", "/chat/completions", chat("spped=1", ""), []string{right}, 400, "fake_directive", "null"},
	} {
		var got apiFault
		f.t.Run(test.name, func(t *testing.T) {
			f := &fake{f.Server, t}
			f.get(test.status, &got, test.method, test.path, test.body, test.header...)
			if got.Error.Type != "invalid_request_error" || text(got.Error.Code) != test.code || text(got.Error.Param) != test.param || got.Error.Message == "" {
				t.Errorf("error %q code %s param %s, want code %s param %s", got.Error.Type, text(got.Error.Code), text(got.Error.Param), test.code, test.param)
			}
			if strings.Contains(got.Error.Message, "sk-wrong-0123456789") || strings.Contains(got.Error.Message, "sk-right-0123456789") {
				t.Errorf("the message repeats a key: %s", got.Error.Message)
			}
		})
	}
}

// TestHeadersOfEveryAnswer: each response, including errors, has its own id and the headers
// that OpenAI sends.
func TestHeadersOfEveryAnswer(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	seen := map[string]bool{}
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/chat/completions", chat("", "")},
		{"POST", "/chat/completions", chat("", `,"stream":true`)},
		{"POST", "/chat/completions", chat("status=500", "")},
		{"POST", "/chat/completions", "{}"},
		{"POST", "/embeddings", `{"model":"m","input":"x"}`},
		{"GET", "/models", ""},
		{"GET", "/nothing", ""},
	} {
		w := f.do(test.method, test.path, test.body)
		id := w.Header().Get("X-Request-Id")
		if !strings.HasPrefix(id, "req_") || seen[id] {
			t.Errorf("%s %s: request id %q, want a new one", test.method, test.path, id)
		}
		seen[id] = true
		for _, name := range []string{"Openai-Version", "Openai-Organization", "Openai-Processing-Ms", "Set-Cookie", "Content-Type"} {
			if w.Header().Get(name) == "" {
				t.Errorf("%s %s: no header %s", test.method, test.path, name)
			}
		}
	}
}

// events returns the data lines of a stream.
func events(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		data, ok := strings.CutPrefix(lines[len(lines)-1], "data: ")
		if !ok {
			t.Fatalf("no data in %q", block)
		}
		out = append(out, data)
	}
	return out
}

// TestOrderOfChatChunks: role, content, finish reason, usage, [DONE], all with the same id.
func TestOrderOfChatChunks(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	w := f.do("POST", "/chat/completions", chat("output=5", `,"stream":true,"n":2,"stream_options":{"include_usage":true}`))
	if got := w.Header().Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	list := events(t, w.Body.String())
	var order []string
	var first struct {
		ID, Model string
		Created   int64
	}
	for i, data := range list[:len(list)-1] {
		var c struct {
			ID, Object, Model string
			Created           int64
			Choices           []struct {
				Index  int
				Delta  struct{ Role, Content string }
				Finish *string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Total      int64 `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if i == 0 {
			first.ID, first.Model, first.Created = c.ID, c.Model, c.Created
		}
		if c.ID != first.ID || c.Model != first.Model || c.Created != first.Created || c.Object != "chat.completion.chunk" {
			t.Errorf("chunk %d is of another answer: %s", i, data)
		}
		switch {
		case len(c.Choices) == 0:
			order = append(order, "usage")
			if c.Usage.Completion != 10 || c.Usage.Total != c.Usage.Prompt+10 {
				t.Errorf("usage %+v, want 2 x 5 tokens", *c.Usage)
			}
		case c.Choices[0].Finish != nil:
			order = append(order, fmt.Sprint(*c.Choices[0].Finish, c.Choices[0].Index))
		case c.Choices[0].Delta.Role != "":
			order = append(order, fmt.Sprint("role", c.Choices[0].Index))
		default:
			order = append(order, fmt.Sprint("text", c.Choices[0].Index))
		}
	}
	want := "role0 role1" + strings.Repeat(" text0 text1", 5) + " stop0 stop1 usage"
	if got := strings.Join(order, " "); got != want || list[len(list)-1] != "[DONE]" {
		t.Errorf("order %s, then %s; want %s, then [DONE]", got, list[len(list)-1], want)
	}
}

// TestOrderOfResponseEvents: events are numbered from 0, end with the complete response, and
// their deltas form its text.
func TestOrderOfResponseEvents(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	body := f.do("POST", "/responses", `{"model":"gpt-5","input":"hi [fake: output=5 reasoning=64]","stream":true}`).Body.String()
	var order []string
	deltas, final := "", ""
	for i, data := range events(t, body) {
		var e struct {
			Type, Delta string
			Sequence    int `json:"sequence_number"`
			Response    struct {
				Status string
				Output []struct {
					Type    string
					Content []struct{ Text string }
				}
				Usage struct {
					Output  int64 `json:"output_tokens"`
					Details struct {
						Reasoning int64 `json:"reasoning_tokens"`
					} `json:"output_tokens_details"`
				}
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Sequence != i || !strings.Contains(body, "event: "+e.Type+"\ndata: "+data) {
			t.Fatalf("event %d: %v: %s", i, err, data)
		}
		deltas += e.Delta
		if len(order) == 0 || order[len(order)-1] != e.Type {
			order = append(order, e.Type)
		}
		if e.Type == "response.completed" {
			final = e.Response.Output[1].Content[0].Text
			if e.Response.Status != "completed" || e.Response.Output[0].Type != "reasoning" || e.Response.Usage.Output != 69 || e.Response.Usage.Details.Reasoning != 64 {
				t.Errorf("the final response %+v, want 64 hidden of 69 tokens", e.Response)
			}
		}
	}
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.output_item.done", "response.output_item.added",
		"response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done",
		"response.output_item.done", "response.completed",
	}
	if !slices.Equal(order, want) || deltas == "" || deltas != final {
		t.Errorf("order %v, want %v; the deltas are %q, the text %q", order, want, deltas, final)
	}
}

// TestResponsesAreKept: a stored response can be read, continued and deleted; one that was not
// stored is unknown.
func TestResponsesAreKept(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	var made, shown, next struct {
		ID    string
		Usage struct {
			Input int64 `json:"input_tokens"`
			Total int64 `json:"total_tokens"`
		}
	}
	f.get(200, &made, "POST", "/responses", `{"model":"gpt-4o","input":"hi"}`)
	f.get(200, &shown, "GET", "/responses/"+made.ID, "")
	if shown != made {
		t.Errorf("shown %+v, made %+v", shown, made)
	}
	f.get(200, &next, "POST", "/responses", `{"model":"gpt-4o","input":"hi","previous_response_id":"`+made.ID+`"}`)
	if next.Usage.Input < made.Usage.Total {
		t.Errorf("the next call has %d input tokens, want the %d before it at least", next.Usage.Input, made.Usage.Total)
	}
	var gone struct{ Deleted bool }
	f.get(200, &gone, "DELETE", "/responses/"+made.ID, "")
	var fault apiFault
	f.get(404, &fault, "GET", "/responses/"+made.ID, "")
	f.get(200, &made, "POST", "/responses", `{"model":"gpt-4o","input":"hi","store":false}`)
	f.get(404, &fault, "GET", "/responses/"+made.ID, "")
	if !gone.Deleted {
		t.Error("a deleted response does not say so")
	}
}

// TestUsageIsWhatTheLogHas: on each endpoint the reported usage adds up and matches the log.
func TestUsageIsWhatTheLogHas(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	for path, body := range map[string]string{
		"/chat/completions":   chat("", ""),
		"/completions":        `{"model":"gpt-3.5-turbo-instruct","prompt":["a b","c"],"n":2,"best_of":3,"max_tokens":7}`,
		"/responses":          `{"model":"gpt-5","input":"hi"}`,
		"/responses/compact":  `{"model":"gpt-5","input":"hi there"}`,
		"/embeddings":         `{"model":"text-embedding-3-small","input":["a","b c"]}`,
		"/images/generations": `{"model":"gpt-image-1","prompt":"a river","n":2,"quality":"low"}`,
	} {
		var got struct{ Usage map[string]json.RawMessage }
		f.get(200, &got, "POST", path, body)
		number := func(names ...string) (n int64) {
			for _, name := range names {
				if raw := got.Usage[name]; raw != nil {
					_ = json.Unmarshal(raw, &n)
				}
			}
			return n
		}
		in, out := number("prompt_tokens", "input_tokens"), number("completion_tokens", "output_tokens")
		log := f.Log()
		rec := log[len(log)-1]
		if total := number("total_tokens"); total != in+out || total == 0 || rec.Usage.Prompt != in || rec.Usage.Completion != out || rec.Outcome != fakeprovider.OK {
			t.Errorf("%s: usage %v, log %+v %s", path, got.Usage, rec.Usage, rec.Outcome)
		}
	}
	for _, rec := range f.Log() {
		if rec.Path == "/v1/images/generations" && rec.Usage.Completion != 2*272 {
			t.Errorf("two pictures have %d tokens, want 2 x 272", rec.Usage.Completion)
		}
	}
	totals, sum := f.Totals(), fakeprovider.Usage{}
	for _, rec := range f.Log() {
		sum = sum.Add(rec.Usage)
	}
	if totals.Usage != sum || totals.Requests != 6 || totals.Outcomes[fakeprovider.OK] != 6 {
		t.Errorf("totals %+v, the calls add up to %+v", totals, sum)
	}
}
