package guard

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// requestOf has one request of each endpoint; its model has token prices.
var requestOf = map[wire.Endpoint]string{
	wire.ChatCompletions:  `{"model":"cheap","messages":[{"role":"user","content":"hi"}],"max_tokens":900}`,
	wire.Completions:      `{"model":"cheap","prompt":"hi","max_tokens":900}`,
	wire.Responses:        `{"model":"cheap","input":"hi","max_output_tokens":900}`,
	wire.Embeddings:       `{"model":"cheap","input":"hi"}`,
	wire.Moderations:      `{"model":"cheap","input":"hi"}`,
	wire.ImageGenerations: `{"model":"painter","prompt":"hi"}`,
	wire.Speech:           `{"model":"cheap","input":"hi","voice":"x"}`,
}

// streamBy lists the endpoints with streams, by the member that asks for one.
var streamBy = map[wire.Endpoint]string{
	wire.ChatCompletions: `"stream":true`, wire.Completions: `"stream":true`, wire.Responses: `"stream":true`,
	wire.ImageGenerations: `"stream":true`, wire.Speech: `"stream_format":"sse"`,
}

// TestErrorsWhateverTheirStatus checks that an answer that is none is an error on every endpoint,
// plain, in place of a stream and as its first event: with the status that it names, else 502. It
// leaves no trace.
func TestErrorsWhateverTheirStatus(t *testing.T) {
	r := newRig(t, roomy()...)
	for _, x := range []struct {
		status int // of the answer; 0: 200
		body   string
		want   int
	}{
		{body: `{"error":{"message":"upstream rate limited","code":429}}`, want: 429},
		{body: `{"error":{"message":"slow","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, want: 429},
		{body: `{"error":{"message":"no money","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, want: 429},
		{body: `{"error":{"message":"no","type":"invalid_request_error","param":"x","code":null}}`, want: 400},
		{body: `{"error":{"message":"no","type":"x","param":null,"code":"content_filter"},"choices":[]}`, want: 400},
		{body: `{"error":"something broke"}`, want: 502},
		{body: `{"error":"model_not_found"}`, want: 404},
		{body: `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, want: 503},
		{body: `{"type":"error","code":"server_error","message":"x","param":null}`, want: 500},
		{body: `{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`, want: 400},
		{body: `{"detail":"Service down","status_code":"503"}`, want: 503},
		{body: `{"message":"x","code":"deadline_exceeded"}`, want: 504},
		{body: `[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]`, want: 429},
		{body: `{"id":"x","status":"failed","error":{"code":"server_error","message":"x"},"output":[],"usage":null}`, want: 500},
		{body: `{"choices":[{"index":0,"message":{"content":"ha"},"delta":{},"finish_reason":"error","error":{"code":502,"message":"x"}}]}`, want: 502},
		{body: `{"error":{"message":"bad key sk-vendor","code":401}}`, want: 502},
		{body: `{"errors":[{"message":"x","code":500}],"success":false}`, want: 500},
		{body: `{"error":[{"message":"x","code":"rate_limit_exceeded"}]}`, want: 429},
		{body: `{"__type":"ThrottlingException","message":"Rate exceeded"}`, want: 429},
		{body: `{"choices":null,"usage":{"total_tokens":0},"base_resp":{"status_code":1002,"status_msg":"rate limit"}}`, want: 429},
		{body: "\xEF\xBB\xBF" + `{"error":{"message":"x","code":400}}`, want: 400},
		{body: `<html>502 Bad Gateway</html>`, want: 502},
		{body: "", want: 502},
		{body: `null`, want: 502},
		{body: `{}`, want: 502},
		{body: `{"choices":[null],"data":[null],"results":[null]}`, want: 502},
		{body: `{"choices":[{"index":0,"message":null}],"data":[{}],"results":[{}]}`, want: 502},
		{status: 204, want: 502},
		{status: 206, body: `{"choices":[{"message":{"content":"half"}}],"output":[],"data":[1],"results":[1]}`, want: 502},
		{status: 302, body: "elsewhere", want: 502},
		{status: 999, body: `{"error":{"message":"x","type":"y"}}`, want: 502},
	} {
		for ep, body := range requestOf {
			forms := map[string]*vendor{"application/json": {kind: "application/json", body: x.body}}
			streams := streamBy[ep]
			if streams != "" && x.status == 0 && !strings.Contains(x.body, "null]") && !strings.Contains(x.body, "{}]") {
				first := "data: " + x.body + "\n\n"
				if x.body == "" || x.body[0] == '<' {
					first = ""
				}
				forms["first event"] = &vendor{kind: "text/event-stream", body: first + "data: [DONE]\n\n"}
				if x.body != "{}" && x.body != "null" { // without [DONE] these are broken streams
					forms["event without end"] = &vendor{kind: "text/event-stream", body: strings.TrimSpace(first)}
				} else if ep == wire.ImageGenerations || ep == wire.Speech {
					delete(forms, "first event")
				}
				if ep == wire.ChatCompletions || ep == wire.Responses {
					forms["after the role"] = &vendor{kind: "text/event-stream", body: ": wait\n" + event(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"type":"response.created","response":{"id":"r","error":null}}`) + first}
				}
				if first == "" || len(x.body) < 5 {
					delete(forms, "after the role")
				}
			}
			for form, v := range forms {
				for _, chatOnly := range []bool{false, true} {
					if chatOnly && ep != wire.Responses {
						continue
					}
					v.status = max(x.status, 200)
					r.dearer(t, v, func(p *providers.Provider) { p.ChatOnly = chatOnly })
					ask := body
					if form != "application/json" {
						ask = strings.TrimSuffix(body, "}") + "," + streams + "}"
					}
					if form != "application/json" && ep == wire.Responses && strings.Contains(x.body, "choices") ||
						chatOnly && strings.Contains(x.body, `"status":"failed"`) || ep == wire.Speech && x.status == 206 {
						continue
					}
					name := fmt.Sprintf("%s %q, %s, chat only %v", ep, x.body, form, chatOnly)
					before := r.used()
					c, w, err := r.ask(ep, ask, false)
					if got := statusGiven(w, err); got != x.want {
						t.Errorf("%s: %d (%v, %s), want %d", name, got, err, w.Body, x.want)
					}
					if res := c.Result; res.Cost != 0 || !res.void() || res.Ended || res.Relayed {
						t.Errorf("%s: %+v", name, res)
					}
					if strings.Contains(w.Body.String()+fmt.Sprint(err), "sk-vendor") {
						t.Errorf("%s names our key", name)
					}
					r.charged(before, c)
				}
			}
		}
	}
}

// ask makes a whole call of an endpoint.
func (r *rig) ask(ep wire.Endpoint, body string, repeats bool) (*Call, *httptest.ResponseRecorder, error) {
	r.t.Helper()
	req, err := wire.Scan(ep, []byte(body), wire.Limits{})
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	c, w := r.begin(p), httptest.NewRecorder()
	err = c.Forward(r.t.Context(), w, Forwarding{Header: http.Header{}, Repeats: repeats})
	c.End(r.t.Context())
	r.settle()
	return c, w, err
}

// statusGiven returns the status that a caller gets; 0 if it is given something else than one error.
func statusGiven(w *httptest.ResponseRecorder, err error) int {
	var busy *BusyError
	var public *wire.Error
	var failed *FailureError
	_, standard := wire.ParseError(0, w.Body.Bytes())
	switch {
	case err != nil && w.Body.Len() > 0:
		return 0
	case errors.As(err, &busy):
		return busy.Status
	case errors.As(err, &failed):
		return -failed.Answer.Status
	case errors.As(err, &public):
		return public.Status
	case !standard:
		return 0
	}
	return w.Code
}

// TestFailedCallsAreCharged checks that a provider may charge the input of calls that it began, and
// that the usage that comes with an error is charged.
func TestFailedCallsAreCharged(t *testing.T) {
	r := newRig(t, roomy()...)
	const ep = wire.ChatCompletions
	for _, x := range []struct {
		status      int
		body        string
		charge      bool // the provider's setting
		in, out     int64
		estimated   bool
		want, again int // for a job: negative if it is made again
	}{
		{500, `{"error":{"message":"x","type":"server_error"}}`, false, 0, 0, false, 500, -500},
		{500, `{"error":{"message":"x","type":"server_error"}}`, true, -1, 0, true, 500, -500},
		{200, `<html>`, true, -1, 0, true, 502, -502},
		{400, `{"error":{"message":"x","type":"y"}}`, true, 0, 0, false, 400, 400},
		{400, `{"error":{"message":"x","type":"y","code":"content_filter"}}`, true, -1, 0, true, 400, 400},
		{429, `{"error":{"message":"x","type":"y"}}`, true, 0, 0, false, 429, 429},
		{200, `{"error":{"message":"x","code":500},"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`, false, 9, 3, false, 500, -500},
	} {
		r.dearer(t, &vendor{status: x.status, kind: "application/json", body: x.body}, func(p *providers.Provider) { p.ChargeFailed = x.charge })
		for _, repeats := range []bool{false, true} {
			before := r.used()
			c, w, err := r.ask(ep, requestOf[ep], repeats)
			want := map[bool]int{false: x.want, true: x.again}[repeats]
			if got := statusGiven(w, err); got != want {
				t.Errorf("%s: %d (%v), want %d", x.body, got, err, want)
			}
			input := x.in
			if input < 0 {
				input = c.Plan.Input
			}
			if res := c.Result; int64(res.Cost) != input*1000+x.out*2000 || res.Estimated != x.estimated {
				t.Errorf("%d %s: %s costs %v, estimated %v", x.status, x.body, res.Outcome, res.Cost, res.Estimated)
			}
			r.charged(before, c)
		}
	}
}

// TestErrorsAfterComments checks that a stream that shows nothing but comments and the beginning of an answer
// before it fails costs nothing, although its head is out, and that a call that will be repeated has not begun.
func TestErrorsAfterComments(t *testing.T) {
	r := newRig(t, roomy()...)
	begin := strings.Repeat(": wait\n\n", 5) + event(`{"choices":[{"index":0,"delta":{"role":"assistant"}}],"type":"response.created","response":{"id":"r"}}`)
	for _, end := range []string{
		event(`{"error":{"message":"x","code":502}}`), event(`{"error":{"message":"x","code":429}}`), "event: error\n" + event(`{"reason":"x"}`),
		"event:error\n" + event("upstream died"),
	} {
		for ep, streams := range streamBy {
			if ep == wire.ImageGenerations || ep == wire.Speech {
				begin = strings.Repeat(": wait\n\n", 5)
			}
			for _, repeats := range []bool{false, true} {
				r.dearer(t, &vendor{status: 200, kind: "text/event-stream", body: begin + end}, nil)
				before := r.used()
				c, w, err := r.ask(ep, strings.TrimSuffix(requestOf[ep], "}")+","+streams+"}", repeats)
				begun := err == nil && w.Code == 200 && strings.Count(w.Body.String(), `"error"`) > 0
				if res := c.Result; res.Cost != 0 || !res.void() || res.Ended || begun == repeats {
					t.Errorf("%s, %q, repeats %v: %+v, %v, %s", ep, end, repeats, res, err, w.Body)
				}
				r.charged(before, c)
			}
		}
	}
}

// TestErrorsInAStream checks that a stream that fails after its first text ends in an error that
// clients know, exactly one, is charged like a broken one, and does not count as ended.
func TestErrorsInAStream(t *testing.T) {
	r := newRig(t, roomy()...)
	delta := map[wire.Endpoint]string{
		wire.ChatCompletions:  `{"choices":[{"index":0,"delta":{"content":"word"}}]}`,
		wire.Completions:      `{"choices":[{"index":0,"text":"word"}]}`,
		wire.Responses:        `{"type":"response.output_text.delta","delta":"word","sequence_number":1}`,
		wire.ImageGenerations: `{"type":"image_generation.partial_image","b64_json":"AAAA"}`,
		wire.Speech:           `{"type":"speech.audio.delta","audio":"AAAA"}`,
	}
	for name, end := range map[string]string{
		"error":          event(`{"error":{"message":"x","code":429}}`),
		"error and DONE": event(`{"error":{"message":"x","type":"y","param":null,"code":null}}`) + event("[DONE]"),
		"vLLM's error":   event(`{"object":"error","message":"x","type":"E","code":500}`) + event("[DONE]"),
		"Anthropic's":    "event: error\n" + event(`{"type":"error","error":{"type":"overloaded_error","message":"x"}}`),
		"detail":         event(`{"detail":"x"}`) + event("[DONE]"),
		"nothing":        "",
		"half an event":  `data: {"error`,
		"a page":         "<html>gone</html>\n\n",
	} {
		for ep, streams := range streamBy {
			for _, chatOnly := range []bool{false, true} {
				text := delta[ep]
				if chatOnly && ep != wire.Responses {
					continue
				} else if chatOnly {
					text = delta[wire.ChatCompletions]
				}
				r.dearer(t, &vendor{status: 200, kind: "text/event-stream", body: event(text) + end}, func(p *providers.Provider) { p.ChatOnly = chatOnly })
				c, w, err := r.ask(ep, strings.TrimSuffix(requestOf[ep], "}")+","+streams+"}", true)
				got := w.Body.String()
				form := `data: {"error":{`
				if ep == wire.Responses {
					form = `data: {"type":"error"`
				}
				if strings.Contains(end, `{"type":"error"`) && ep != wire.Responses {
					form = `data: {"type":"error","error":{`
				}
				at := strings.Index(got, form)
				if done := strings.Index(got, "[DONE]"); err != nil || at < 0 || done >= 0 && done < at || strings.Count(got, `"error":{`) != 1 || !strings.HasSuffix(got, "\n\n") {
					t.Errorf("%s, %s: %q, %v", ep, name, got, err)
				}
				if res := c.Result; res.Outcome != Broken || !res.Estimated || res.Ending == nil || res.Ended || res.Usage.Output > c.Plan.Output || res.Cost == 0 {
					t.Errorf("%s, %s: %+v", ep, name, res)
				}
			}
		}
	}
}

// TestEndsOfTheWire checks that an answer counts as ended only with the end that the endpoint's wire
// sends; a server may leave out [DONE].
func TestEndsOfTheWire(t *testing.T) {
	r := newRig(t, roomy()...)
	const usage = `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"input_tokens":9,"output_tokens":3}}`
	chat := event(`{"choices":[{"index":0,"delta":{"content":"word"}}]}`) + event(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`+usage)
	image := event(`{"type":"image_generation.completed","b64_json":"` + strings.Repeat("A", 17<<20) + `"` + usage)
	for _, x := range []struct {
		name  string
		ep    wire.Endpoint
		body  string
		ended bool
	}{
		{"chat", wire.ChatCompletions, chat + event("[DONE]"), true},
		{"chat without [DONE]", wire.ChatCompletions, chat, false},
		{"response", wire.Responses, event(`{"type":"response.completed","response":{"id":"r","output":[],"status":"completed"` + usage + "}"), true},
		{"image of 17 MB", wire.ImageGenerations, image, true},
	} {
		r.dearer(t, &vendor{status: 200, kind: "text/event-stream", body: x.body}, nil)
		c, w, err := r.ask(x.ep, strings.TrimSuffix(requestOf[x.ep], "}")+","+streamBy[x.ep]+"}", false)
		if res := c.Result; err != nil || res.Outcome != Completed || res.Ended != x.ended || res.Cost != 9*1000+3*2000 || w.Body.Len() < len(x.body)-20 {
			t.Errorf("%s: %+v, %v, %d bytes", x.name, res, err, w.Body.Len())
		}
	}
	// The connection breaks after the text and before [DONE].
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(chat))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(srv.Close)
	r = newRig(t, roomy()...)
	r.moveTo(srv.URL)
	c, w, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":50,"stream":true`))
	if err != nil || c.Result.Ended || c.Result.Relayed || c.Result.Outcome != Completed || !strings.Contains(w.Body.String(), `{"error":{`) {
		t.Errorf("broken before the end: %+v, %v, %s", c.Result, err, w.Body)
	}
}

// TestResponsesThatFail checks the charge of a stream whose last event says that the response failed or
// is incomplete: by the usage in it, as far as it agrees with the text.
func TestResponsesThatFail(t *testing.T) {
	r := newRig(t, roomy()...)
	text := event(`{"type":"response.output_text.delta","delta":"` + strings.Repeat(" boat", 100) + `","sequence_number":1}`)
	end := func(state, usage string) string {
		return event(`{"type":"response.` + state + `","sequence_number":2,"response":{"id":"r","status":"` + state + `","error":{"code":"server_error","message":"x"},"usage":` + usage + `}}`)
	}
	for _, x := range []struct {
		name, end         string
		least, most       int64 // of output, of 900
		estimated, failed bool
	}{
		{"failed", end("failed", `{"input_tokens":9,"output_tokens":110,"total_tokens":119}`), 110, 110, false, true},
		{"failed with too little", end("failed", `{"input_tokens":9,"output_tokens":0,"total_tokens":9}`), 100, 900, true, true},
		{"failed without", end("failed", "null"), 100, 900, true, true},
		{"incomplete", strings.Replace(end("incomplete", `{"input_tokens":9,"output_tokens":110}`), `{"code":"server_error","message":"x"}`, "null", 1), 110, 110, false, false},
	} {
		r.dearer(t, &vendor{status: 200, kind: "text/event-stream", body: text + x.end}, nil)
		before := r.used()
		c, w, err := r.ask(wire.Responses, strings.TrimSuffix(requestOf[wire.Responses], "}")+`,"stream":true}`, false)
		res := c.Result
		output := (int64(res.Cost) - 9*1000) / 2000
		if err != nil || output < x.least || output > x.most || res.Estimated != x.estimated || res.Failed != x.failed || w.Body.String() != text+x.end {
			t.Errorf("%s: %d tokens of output, %+v, %v, %s", x.name, output, res, err, w.Body)
		}
		r.charged(before, c)
	}
}

// TestFetchedStreamsEnd checks that the stream of a stored response that ends without its last event
// gets exactly one error event, with the next number.
func TestFetchedStreamsEnd(t *testing.T) {
	r := newRig(t, roomy()...)
	created := event(`{"type":"response.created","sequence_number":4,"response":{"id":"r"}}`)
	done := event(`{"type":"response.completed","sequence_number":5,"response":{"id":"r","status":"completed"}}`)
	for _, x := range []struct {
		name, path, body string
		breaks, complete bool
	}{
		{"complete", "/responses/r", created + done, false, true},
		{"without the last blank line", "/responses/r", created + strings.TrimSpace(done), false, true},
		{"an error", "/responses/r", created + event(`{"type":"error","code":"x","message":"x","sequence_number":5}`), false, true},
		{"cut between events", "/responses/r", created, false, false},
		{"cut within an event", "/responses/r", created + done[:50], false, false},
		{"broken", "/responses/r", created, true, false},
		{"broken within an event", "/responses/r", created + done[:50], true, false},
		{"something else", "/files/f/content", created, false, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(x.body))
			if x.breaks {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}))
		r.moveTo(server.URL)
		w := httptest.NewRecorder()
		_, err := r.guard.Passthrough.Relay(t.Context(), w, Fetch{Org: r.org, Note: ownership.Note{Provider: "openai"}, Request: providers.Request{Path: x.path}})
		server.Close()
		got, passed := strings.CutPrefix(w.Body.String(), created)
		ours := "event: error\ndata: " + `{"type":"error","sequence_number":5,`
		if err != nil || !passed || x.complete != (created+got == x.body) || !x.complete && (!strings.HasPrefix(got, ours) || strings.Count(got, "data:") != 1) {
			t.Errorf("%s: %v, %s", x.name, err, w.Body)
		}
	}
}

// TestSpeechIsSound checks what counts as speech.
func TestSpeechIsSound(t *testing.T) {
	r := newRig(t, roomy()...)
	sound := string([]byte{0xff, 0xf3}) + base64.StdEncoding.EncodeToString(make([]byte, 3000))
	for _, x := range []struct {
		kind, body, format string
		ok                 bool
	}{
		{"audio/mpeg", sound, "mp3", true},
		{"application/octet-stream", sound, "mp3", true},
		{"", "{raw samples", "pcm", true},
		{"audio/mpeg", `{"error":"x"}`, "mp3", false},
		{"text/html", sound, "mp3", false},
		{"audio/mpeg", "", "pcm", false},
	} {
		r.dearer(t, &vendor{status: 200, kind: x.kind, body: x.body}, nil)
		c, w, err := r.ask(wire.Speech, strings.TrimSuffix(requestOf[wire.Speech], "}")+`,"response_format":"`+x.format+`"}`, false)
		if ok := err == nil && w.Body.String() == x.body && c.Result.Ended && c.Result.Cost > 0; ok != x.ok || !ok && c.Result.Cost > 0 {
			t.Errorf("%s %.20q: %+v, %v", x.kind, x.body, c.Result, err)
		}
	}
}
