package fakeprovider_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// claudeHeader is what every request to Anthropic's API must have.
var claudeHeader = []string{"X-Api-Key: sk-ant", "Anthropic-Version: 2023-06-01"}

// claudeBody returns a request to the Messages API with a text and more members.
func claudeBody(text, more string) string {
	return fmt.Sprintf(`{"model":"claude-opus-5","max_tokens":500,"messages":[{"role":"user","content":%q}]%s}`, text, more)
}

// claudeUsage is the usage of a message.
type claudeUsage struct {
	Input    int64 `json:"input_tokens"`
	Written  int64 `json:"cache_creation_input_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Output   int64 `json:"output_tokens"`
	Creation struct {
		Short int64 `json:"ephemeral_5m_input_tokens"`
		Long  int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Details struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	Server struct {
		Searches int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
	Tier       string `json:"service_tier"`
	Speed      string
	Geo        string `json:"inference_geo"`
	Iterations []struct {
		Type, Model string
		Input       int64 `json:"input_tokens"`
		Output      int64 `json:"output_tokens"`
	}
}

func (u claudeUsage) input() int64 { return u.Input + u.Written + u.Read }

// claudeMessage is a message of the assistant.
type claudeMessage struct {
	ID, Type, Role, Model string

	Content []map[string]any
	Stop    string `json:"stop_reason"`
	Usage   claudeUsage
}

// kinds returns the types of the blocks.
func (m claudeMessage) kinds() (kinds []string) {
	for _, b := range m.Content {
		kinds = append(kinds, b["type"].(string))
	}
	return kinds
}

func (f *fake) message(body string) (m claudeMessage) {
	f.t.Helper()
	f.get(200, &m, "POST", "/messages?beta=true", body, claudeHeader...)
	return m
}

// claudeFault is an error in Anthropic's format.
type claudeFault struct {
	Type  string
	Error struct {
		Type, Message string
		Details       struct {
			Code string `json:"error_code"`
		}
	}
	RequestID string `json:"request_id"`
}

// call and result are a tool call with a result that answers it.
const (
	call   = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}]}`
	result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"x"}]}`
	tools  = `,"tools":[{"name":"f","input_schema":{"type":"object","properties":{"city":{"type":"string"}}}}]`
)

// turns returns a request with these messages after the first one.
func turns(messages ...string) string {
	all := append([]string{`{"role":"user","content":"hi"}`}, messages...)
	return `{"model":"claude-opus-5","max_tokens":500,"messages":[` + strings.Join(all, ",") + `]}`
}

// TestMessageRefusals: what Anthropic refuses is refused, in its format and with its reason.
func TestMessageRefusals(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	old := func(more string) string {
		return strings.Replace(claudeBody("hi", more), "claude-opus-5", "claude-sonnet-4-5", 1)
	}
	five := strings.Repeat(`,{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}`, 5)
	for _, test := range []struct{ body, want string }{
		{`{`, "valid JSON"},
		{`{"max_tokens":1,"messages":[]}`, "model: Field required"},
		{`{"model":"claude-opus-5","messages":[{"role":"user","content":"hi"}]}`, "max_tokens: Field required"},
		{claudeBody("hi", `,"max_tokens":-1`), "max_tokens: Input should be greater"},
		{claudeBody("hi", `,"max_tokens":-2`), "max_tokens: Input should be greater"},
		{`{"model":"claude-opus-5","max_tokens":1,"messages":[]}`, "at least one message"},
		{claudeBody("hi", `,"n":1`), "n: Extra inputs are not permitted"},
		{claudeBody("hi", `,"context_management":{}`), "context_management: Extra inputs are not permitted"},
		{old(`,"temperature":1.5`), "temperature: range"},
		{old(`,"temperature":0.5,"top_p":0.5`), "cannot both be specified"},
		{claudeBody("hi", `,"temperature":0.5`), "deprecated for this model"},
		{claudeBody("hi", `,"service_tier":"flex"`), "service_tier:"},
		{claudeBody("hi", `,"speed":"slow"`), "speed:"},
		{claudeBody("hi", `,"output_config":{"effort":"minimal"}`), "output_config.effort:"},
		{claudeBody("hi", `,"thinking":{"type":"enabled","budget_tokens":1024}`), "is not supported for this model"},
		{old(`,"thinking":{"type":"enabled","budget_tokens":100}`), "at least 1024"},
		{old(`,"thinking":{"type":"enabled","budget_tokens":1024}`), "must be greater than `thinking.budget_tokens`"},
		{claudeBody("hi", `,"tool_choice":{"type":"any"}`), "while providing tools"},
		{claudeBody("hi", tools+`,"tool_choice":{"type":"tool","name":"g"}`), "not found in provided tools"},
		{claudeBody("hi", tools+`,"tool_choice":{"type":"any"},"thinking":{"type":"adaptive"}`), "forces tool use"},
		{claudeBody("hi", `,"tools":[{"name":"a b","input_schema":{"type":"object"}}]`), "should match pattern"},
		{claudeBody("hi", `,"tools":[{"name":"f"}]`), "input_schema: Field required"},
		{claudeBody("hi", `,"tools":[{"name":"f","input_schema":{"type":"string"}}]`), "Input should be 'object'"},
		{claudeBody("hi", tools[:len(tools)-1]+`,{"name":"f","input_schema":{"type":"object"}}]`), "must be unique"},
		{`{"model":"claude-opus-5","max_tokens":1,"messages":[{"role":"assistant","content":"hi"}]}`, "first message must use"},
		{turns(`{"role":"tool","content":"x"}`), "Unexpected role"},
		{turns(`{"role":"user","content":"x","name":"y"}`), "messages.1.name: Extra inputs"},
		{turns(`{"role":"user","content":[{"type":"text","text":"x","name":"y"}]}`), "content.0.text.name: Extra inputs"},
		{turns(`{"role":"user","content":[]}`), "non-empty content"},
		{turns(`{"role":"user"}`), "non-empty content"},
		{turns(`{"role":"user","content":""}`), "text content blocks must be non-empty"},
		{turns(`{"role":"user","content":[{"type":"input_text","text":"x"}]}`), "Input tag 'input_text'"},
		{turns(`{"role":"assistant","content":"x"}`), "assistant message prefill"},
		{turns(result), "unexpected `tool_use_id`"},
		{turns(call), "without `tool_result` blocks"},
		{turns(call, result, result), "unexpected `tool_use_id`"},
		{turns(call, `{"role":"assistant","content":"x"}`, result), "messages.2: `tool_use` ids were found"},
		{turns(strings.Replace(call, `{}`, `"{}"`, 1), result), "should be a valid dictionary"},
		{turns(strings.Replace(call, "assistant", "user", 1)), "can only be in `assistant` messages"},
		{turns(`{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"y"}]}`, result), "Invalid `signature`"},
		{turns(`{"role":"user","content":[{"type":"text","text":"x"}` + five + `]}`), "maximum of 4 blocks"},
		{turns(`{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"2h"}}]}`), "ttl of '5m' or '1h'"},
		{
			turns(`{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},` +
				`{"type":"text","text":"y","cache_control":{"type":"ephemeral","ttl":"1h"}}]}`),
			"must not come after a ttl='5m'",
		},
	} {
		var got claudeFault
		w := f.do("POST", "/messages", test.body, claudeHeader...)
		err := json.Unmarshal(w.Body.Bytes(), &got)
		if err != nil || w.Code != 400 || got.Type != "error" || got.Error.Type != "invalid_request_error" ||
			!strings.Contains(got.Error.Message, test.want) {
			t.Errorf("%s: status %d %s, want 400 with %q", test.body, w.Code, w.Body, test.want)
		}
		if got.RequestID == "" || got.RequestID != w.Header().Get("Request-Id") {
			t.Errorf("request id %q, header %q", got.RequestID, w.Header().Get("Request-Id"))
		}
	}
}

// TestMessageCredentials: either header is accepted, or both with the same key, and the version is
// required.
func TestMessageCredentials(t *testing.T) {
	f := newFake(t, fakeprovider.Options{Key: "sk-ant", Models: []string{"claude-opus-5"}})
	const version, key, bearer = "Anthropic-Version: 2026-10-21", "X-Api-Key: sk-ant", "Authorization: Bearer sk-ant"
	for _, test := range []struct {
		header []string
		status int
		kind   string
	}{
		{[]string{version, key}, 200, ""},
		{[]string{version, bearer}, 200, ""},
		{[]string{version, key, bearer}, 200, ""},
		{[]string{version, key, "Authorization: Bearer sk-other"}, 401, "authentication_error"},
		{[]string{version, "X-Api-Key: sk-other"}, 401, "authentication_error"},
		{[]string{version, "Authorization: sk-ant"}, 401, "authentication_error"},
		{[]string{version}, 401, "authentication_error"},
		{[]string{key}, 400, "invalid_request_error"},
		{[]string{key, "Anthropic-Version: latest"}, 400, "invalid_request_error"},
	} {
		var got claudeFault
		f.get(test.status, &got, "POST", "/messages", claudeBody("hi", ""), test.header...)
		if got.Error.Type != test.kind {
			t.Errorf("%v: error %q, want %q", test.header, got.Error.Type, test.kind)
		}
	}
	var got claudeFault
	f.get(404, &got, "POST", "/messages", strings.Replace(claudeBody("hi", ""), "opus", "none", 1), version, key)
	if got.Error.Type != "not_found_error" {
		t.Errorf("an unknown model: %+v", got)
	}
}

// messageEvents returns the events of a stream, each of which must be named by its type.
func messageEvents(t *testing.T, body string) (events []map[string]any) {
	t.Helper()
	for _, part := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(part, "event: "), "\ndata: ")
		var event map[string]any
		err := json.Unmarshal([]byte(data), &event)
		if err != nil || event["type"] != name {
			t.Fatalf("event %q: %v, type %v", part, err, event["type"])
		}
		events = append(events, event)
	}
	return events
}

// kindsOf returns the types of events, where repeated ones count once.
func kindsOf(events []map[string]any) string {
	var kinds []string
	for _, e := range events {
		kind := strings.TrimPrefix(e["type"].(string), "content_block_")
		if d, ok := e["delta"].(map[string]any); ok && kind == "delta" {
			kind = strings.TrimSuffix(d["type"].(string), "_delta")
		}
		kinds = append(kinds, kind)
	}
	return strings.Join(slices.Compact(kinds), " ")
}

// added returns the message that the events of a stream add up to.
func added(t *testing.T, events []map[string]any) (m claudeMessage) {
	t.Helper()
	read := func(v any, into any) {
		raw, _ := json.Marshal(v)
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	input := ""
	for _, e := range events {
		delta, _ := e["delta"].(map[string]any)
		switch e["type"] {
		case "message_start":
			read(e["message"], &m)
		case "content_block_start":
			m.Content = append(m.Content, e["content_block"].(map[string]any))
			input = ""
		case "content_block_delta":
			block := m.Content[int(e["index"].(float64))]
			for _, member := range []string{"text", "thinking", "signature"} {
				if text, ok := delta[member].(string); ok {
					block[member] = block[member].(string) + text
				}
			}
			if text, ok := delta["partial_json"].(string); ok {
				input += text
			}
		case "content_block_stop":
			if block := m.Content[int(e["index"].(float64))]; input != "" {
				var v any
				read(json.RawMessage(input), &v)
				block["input"] = v
			}
		case "message_delta":
			m.Stop, _ = delta["stop_reason"].(string)
			read(e["usage"], &m.Usage)
		}
	}
	return m
}

// TestMessageStream: the events of a stream are in Anthropic's order, and add up to the plain
// answer to the same request.
func TestMessageStream(t *testing.T) {
	search := `,"tools":[{"type":"web_search_20260318","name":"web_search","max_uses":1}]`
	for _, test := range []struct{ name, text, more, want string }{
		{"text", "hi", "", "start text stop message_delta"},
		{"nothing", "hi", `,"max_tokens":0`, "message_delta"},
		{"limit", "hi", `,"max_tokens":5`, "start text stop message_delta"},
		{"tools", "hi [fake: tools=2]", tools, "start input_json stop start input_json stop message_delta"},
		{"thinking", "hi", `,"thinking":{"type":"adaptive","display":"summarized"}`, "start thinking signature stop start text stop message_delta"},
		{"omitted", "hi", `,"thinking":{"type":"adaptive"}`, "start signature stop start text stop message_delta"},
		{"search", "hi", search, "start input_json stop start stop start text stop message_delta"},
		{"every", "hi [fake: usage=every output=2]", "", "start text message_delta text message_delta stop message_delta"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t, fakeprovider.Options{})
			plain := f.message(claudeBody(test.text, test.more))
			w := f.do("POST", "/messages?beta=true", claudeBody(test.text, `,"stream":true`+test.more), claudeHeader...)
			events := messageEvents(t, w.Body.String())
			if got, want := kindsOf(events), "message_start ping "+test.want+" message_stop"; got != want {
				t.Errorf("events %s\nwant   %s", got, want)
			}
			got := added(t, events)
			got.ID = plain.ID
			for _, m := range []claudeMessage{got, plain} {
				for _, b := range m.Content {
					delete(b, "id")
					delete(b, "tool_use_id")
				}
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", plain) {
				t.Errorf("the stream adds up to %+v\nthe plain answer is  %+v", got, plain)
			}
			first := added(t, events[:1]).Usage
			if test.name == "search" && first.Input != plain.Usage.Input-500 || first.Output != 1 {
				t.Errorf("usage in message_start %+v, at the end %+v", first, plain.Usage)
			}
		})
	}
}

// TestMessageTools: an offered tool is called once, its result is answered with text, and
// tool_choice is obeyed.
func TestMessageTools(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	for _, test := range []struct{ name, body, stop, kinds string }{
		{"offered", claudeBody("hi", tools), "tool_use", "[tool_use]"},
		{"three", claudeBody("hi [fake: tools=3]", tools), "tool_use", "[tool_use tool_use tool_use]"},
		{"alone", claudeBody("hi [fake: tools=3]", tools+`,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`), "tool_use", "[tool_use]"},
		{"none", claudeBody("hi", tools+`,"tool_choice":{"type":"none"}`), "end_turn", "[text]"},
		{"deferred", claudeBody("hi", strings.Replace(tools, `"f"`, `"f","defer_loading":true`, 1)), "end_turn", "[text]"},
		{"result", strings.TrimSuffix(turns(call, result), "}") + tools + "}", "end_turn", "[text]"},
		{"system after the result", strings.TrimSuffix(turns(call, result, `{"role":"system","content":"x"}`), "}") + tools + "}", "end_turn", "[text]"},
		{"forced", strings.TrimSuffix(turns(call, result), "}") + tools + `,"tool_choice":{"type":"any"}}`, "tool_use", "[tool_use]"},
		{"next question", strings.TrimSuffix(turns(call, result, `{"role":"assistant","content":"x"}`, `{"role":"user","content":"y"}`), "}") + tools + "}", "tool_use", "[tool_use]"},
	} {
		m := f.message(test.body)
		if m.Stop != test.stop || fmt.Sprint(m.kinds()) != test.kinds {
			t.Errorf("%s: %s %v, want %s %s", test.name, m.Stop, m.kinds(), test.stop, test.kinds)
		}
		if b := m.Content[0]; b["type"] == "tool_use" {
			input, _ := b["input"].(map[string]any)
			if b["name"] != "f" || input["city"] == "" || !strings.HasPrefix(b["id"].(string), "toolu_") {
				t.Errorf("%s: block %v", test.name, b)
			}
		}
	}
}

// TestMessageThinking: thinking counts as output whether it is shown or not, and a changed block is
// refused.
func TestMessageThinking(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	for display, shown := range map[string]bool{"summarized": true, "omitted": false} {
		m := f.message(claudeBody("hi [fake: reasoning=128 output=10]", `,"thinking":{"type":"adaptive","display":"`+display+`"}`))
		if m.Usage.Details.Thinking != 128 || m.Usage.Output != 138 || (m.Content[0]["thinking"] != "") != shown {
			t.Errorf("%s: usage %+v, %v", display, m.Usage, m.Content[0])
		}
		next := func(thinking any) string {
			b, _ := json.Marshal(map[string]any{"role": "assistant", "content": []any{
				map[string]any{"type": "thinking", "thinking": thinking, "signature": m.Content[0]["signature"]},
				map[string]any{"type": "text", "text": "x"},
			}})
			return turns(string(b), `{"role":"user","content":"y"}`)
		}
		f.message(next(m.Content[0]["thinking"]))
		if w := f.do("POST", "/messages", next("changed"), claudeHeader...); w.Code != 400 {
			t.Errorf("changed thinking: status %d", w.Code)
		}
	}
}

// TestMessageCache: a breakpoint writes the prompt before it for as long as it says, and later
// requests with the same beginning read it.
func TestMessageCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{})
		long := strings.Repeat("one two three four ", 300) // 1,200 tokens
		block := func(text, ttl string) string {
			control := ""
			if ttl != "" {
				control = `,"cache_control":{"type":"ephemeral","ttl":"` + ttl + `"}`
			}
			return fmt.Sprintf(`{"type":"text","text":%q%s}`, text, control)
		}
		send := func(more string, blocks ...string) string {
			u := f.message(claudeBody("hi", more+`,"system":[`+strings.Join(blocks, ",")+`]`)).Usage
			if u.Written != u.Creation.Short+u.Creation.Long {
				t.Errorf("usage %+v", u)
			}
			return fmt.Sprintf("read %d, written %d %d", u.Read/100, u.Creation.Short/100, u.Creation.Long/100)
		}
		a, b := "a "+long, "b "+long
		for _, step := range []struct {
			name  string
			after time.Duration
			got   func() string
			want  string
		}{
			{"no breakpoint", 0, func() string { return send("", block(a, "")) }, "read 0, written 0 0"},
			{"the first", 0, func() string { return send("", block(a, "5m")) }, "read 0, written 12 0"},
			{"the same", 4 * time.Minute, func() string { return send("", block(a, "5m")) }, "read 12, written 0 0"},
			{"renewed", 4 * time.Minute, func() string { return send("", block(a, "5m")) }, "read 12, written 0 0"},
			{"expired", 5 * time.Minute, func() string { return send("", block(a, "5m")) }, "read 0, written 12 0"},
			{"longer", 4 * time.Minute, func() string { return send("", block(a, ""), block(b, "5m")) }, "read 12, written 12 0"},
			{"renewed without a breakpoint", 4 * time.Minute, func() string { return send("", block(a, "5m")) }, "read 12, written 0 0"},
			{"another model", 0, func() string { return send(`,"model":"claude-sonnet-5"`, block(a, "5m")) }, "read 0, written 12 0"},
			{"another beginning", 0, func() string { return send("", block(b, "5m")) }, "read 0, written 12 0"},
			{"two lives", time.Hour, func() string { return send("", block(a, "1h"), block(b, "5m")) }, "read 0, written 12 12"},
			{"the short one has expired", 6 * time.Minute, func() string { return send("", block(a, "1h"), block(b, "5m")) }, "read 12, written 12 0"},
			{"automatic", time.Hour, func() string { return send(`,"cache_control":{"type":"ephemeral"}`, block(a, "")) }, "read 0, written 12 0"},
			{"automatic again", 0, func() string { return send(`,"cache_control":{"type":"ephemeral"}`, block(a, "")) }, "read 12, written 0 0"},
			{"too short", 0, func() string { return send("", block(long[:1000], "5m")) }, "read 0, written 0 0"},
		} {
			time.Sleep(step.after)
			if got := step.got(); got != step.want {
				t.Errorf("%s: %s, want %s", step.name, got, step.want)
			}
		}
		var counted struct {
			Input int64 `json:"input_tokens"`
		}
		body := strings.Replace(claudeBody("hi", `,"system":[`+block(a, "5m")+`]`), `"max_tokens":500,`, "", 1)
		f.get(200, &counted, "POST", "/messages/count_tokens?beta=true", body, claudeHeader...)
		if u := f.message(claudeBody("hi", `,"system":[`+block(a, "5m")+`]`)).Usage; counted.Input != u.input() {
			t.Errorf("counted %d, the usage is %+v", counted.Input, u)
		}
		f.get(400, &counted, "POST", "/messages/count_tokens", claudeBody("hi", ""), claudeHeader...)
	})
}

// TestMessageCharges: the record of a call has all that it costs, by model and class, and it equals
// what the answer reports.
func TestMessageCharges(t *testing.T) {
	for _, stream := range []bool{false, true} {
		f := newFake(t, fakeprovider.Options{})
		text := "hi [fake: iterations=compaction,advisor_message:claude-opus-4-8,fallback_message:claude-sonnet-5 geo=us tier=priority]"
		more := `,"speed":"fast","tools":[{"type":"web_search_20260318","name":"web_search"}],"cache_control":{"type":"ephemeral","ttl":"1h"}` +
			`,"system":"` + strings.Repeat("one two three four ", 300) + `"`
		var m claudeMessage
		if stream {
			w := f.do("POST", "/messages", claudeBody(text, more+`,"stream":true`), claudeHeader...)
			events := messageEvents(t, w.Body.String())
			start := added(t, events[:1]).Usage
			m = added(t, events)
			if start.Tier != "priority" || start.Speed != "fast" || start.Geo != "us" || start.Creation.Long != m.Usage.Written {
				t.Errorf("usage in message_start %+v", start)
			}
			if last, _ := json.Marshal(events[len(events)-2]); strings.Contains(string(last), "service_tier") {
				t.Errorf("message_delta has what only message_start may have: %s", last)
			}
		} else {
			m = f.message(claudeBody(text, more))
		}
		log := f.Log()
		rec, total := log[0], int64(0)
		charges := rec.Charges()
		for i, entry := range m.Usage.Iterations {
			c, model := charges[i], entry.Model
			if entry.Type == "compaction" {
				model = "claude-opus-5"
			}
			if c.Model != model || entry.Input != c.Prompt-c.Cached-c.CacheWrite-c.CacheWrite1h || entry.Output != c.Completion {
				t.Errorf("reported %+v, charged %+v", entry, c)
			}
			total += c.Total()
		}
		own := charges[len(charges)-1]
		if len(charges) != 4 || own.Model != "claude-sonnet-5" || m.Model != own.Model || own.Searches != 1 || m.Usage.Server.Searches != 1 {
			t.Errorf("charges %+v, model %s, %+v", charges, m.Model, m.Usage)
		}
		if own.CacheWrite1h != m.Usage.Written || own.CacheWrite1h < 1200 || own.Prompt != m.Usage.input() || own.Completion != m.Usage.Output {
			t.Errorf("charged %+v, reported %+v", own, m.Usage)
		}
		if rec.Tier != "priority" || rec.Speed != "fast" || rec.Geo != "us" || total <= own.Total() {
			t.Errorf("tier %q speed %q geo %q", rec.Tier, rec.Speed, rec.Geo)
		}
	}
}

// TestMessageFaults: errors and broken streams are requested as those of other endpoints.
func TestMessageFaults(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	for _, test := range []struct {
		directives, kind, code, retry string
		status                        int
	}{
		{"status=529", "overloaded_error", "", "", 529},
		{"status=429 retry-after=7", "rate_limit_error", "", "7", 429},
		{"status=429 code=enforced_spend_limit_reached", "rate_limit_error", "enforced_spend_limit_reached", "", 429},
		{"status=402", "billing_error", "", "", 402},
		{"status=503", "api_error", "", "", 503},
		{"status=400 type=billing_error", "billing_error", "", "", 400},
	} {
		var got claudeFault
		w := f.do("POST", "/messages", claudeBody("hi [fake: "+test.directives+"]", ""), claudeHeader...)
		err := json.Unmarshal(w.Body.Bytes(), &got)
		if err != nil || w.Code != test.status || got.Error.Type != test.kind || got.Error.Details.Code != test.code ||
			got.Error.Message == "" || w.Header().Get("Retry-After") != test.retry {
			t.Errorf("%s: %d %v %s", test.directives, w.Code, w.Header(), w.Body)
		}
	}
	for directives, last := range map[string]string{
		"cut=error type=overloaded_error": "error", "cut=eof": "content_block_delta", "cut=nodone": "message_delta",
		"cut=eof early": "", "cut=eof long=100000 after=3": "ping", "usage=none": "message_stop",
	} {
		w := f.do("POST", "/messages", claudeBody("hi [fake: output=10 "+directives+"]", `,"stream":true`), claudeHeader...)
		got := ""
		if w.Body.Len() > 0 {
			events := messageEvents(t, w.Body.String())
			got = events[len(events)-1]["type"].(string)
		}
		if got != last || strings.HasPrefix(directives, "usage") == strings.Contains(w.Body.String(), `"usage"`) && got != "" {
			t.Errorf("%s: ends with %q, want %q: %s", directives, got, last, w.Body)
		}
		if last == "error" && !strings.Contains(w.Body.String(), `"type":"overloaded_error"`) {
			t.Errorf("%s: %s", directives, w.Body)
		}
	}
}

// TestMessageQuota: input that is read from the cache is not counted, output is counted when it has
// been generated, and the headers say what is left.
func TestMessageQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, fakeprovider.Options{Quota: fakeprovider.Quota{RPM: 4, TPM: 2000, OTPM: 100}})
		send := func(directives string) *httptest.ResponseRecorder {
			body := claudeBody("hi [fake: "+directives+"]", `,"system":[{"type":"text","text":"`+strings.Repeat("one two three four ", 300)+
				`","cache_control":{"type":"ephemeral"}}]`)
			return f.do("POST", "/messages", body, claudeHeader...)
		}
		left := func(w *httptest.ResponseRecorder) (all string) {
			for _, what := range []string{"Requests", "Input-Tokens", "Output-Tokens"} {
				all += w.Header().Get("Anthropic-Ratelimit-"+what+"-Limit") + " " + w.Header().Get("Anthropic-Ratelimit-"+what+"-Remaining") + ", "
			}
			return all
		}
		w := send("output=60")
		reset, err := time.Parse(time.RFC3339, w.Header().Get("Anthropic-Ratelimit-Requests-Reset"))
		if w.Code != 200 || left(w) != "4 3, 2000 1000, 100 0, " || err != nil || time.Until(reset) != time.Minute {
			t.Errorf("status %d, left %s, reset %v %v", w.Code, left(w), reset, err)
		}
		if w = send("output=60"); w.Code != 200 {
			t.Errorf("input that is read from the cache: %d %s", w.Code, w.Body)
		}
		w = send("output=1")
		if w.Code != 429 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "100 output tokens per minute") ||
			!strings.Contains(w.Body.String(), `"rate_limit_error"`) || w.Header().Get("X-Ratelimit-Limit-Requests") != "" {
			t.Errorf("beyond the output: %d %v %s", w.Code, w.Header(), w.Body)
		}
		body := strings.Replace(claudeBody("hi", ""), `"max_tokens":500,`, "", 1)
		for range 5 {
			if w := f.do("POST", "/messages/count_tokens", body, claudeHeader...); w.Code != 200 {
				t.Errorf("counting tokens: %d %s", w.Code, w.Body)
			}
		}
	})
}

// TestClaudeModels: models are listed in Anthropic's form if its version is requested, otherwise in
// OpenAI's.
func TestClaudeModels(t *testing.T) {
	f := newFake(t, fakeprovider.Options{Models: []string{"claude-a", "claude-b"}})
	var got struct {
		Object string
		Data   []struct{ ID, Type, Object string }
		More   bool   `json:"has_more"`
		Last   string `json:"last_id"`
	}
	f.get(200, &got, "GET", "/models?limit=1", "", claudeHeader...)
	if len(got.Data) != 1 || got.Data[0].Type != "model" || !got.More || got.Last != "claude-a" || got.Object != "" {
		t.Errorf("the first page: %+v", got)
	}
	f.get(200, &got, "GET", "/models?after_id=claude-a", "", claudeHeader...)
	if len(got.Data) != 1 || got.Data[0].ID != "claude-b" || got.More {
		t.Errorf("the second page: %+v", got)
	}
	f.get(200, &got.Data[0], "GET", "/models/claude-a", "", claudeHeader...)
	var fault claudeFault
	f.get(404, &fault, "GET", "/models/claude-c", "", claudeHeader...)
	if got.Data[0].ID != "claude-a" || fault.Error.Type != "not_found_error" {
		t.Errorf("%+v, %+v", got.Data[0], fault)
	}
	f.get(200, &got, "GET", "/models", "")
	if got.Object != "list" || got.Data[0].Object != "model" {
		t.Errorf("in OpenAI's form: %+v", got)
	}
}

// TestClaudeCode: a request as Claude Code sends it is accepted.
func TestClaudeCode(t *testing.T) {
	f := newFake(t, fakeprovider.Options{})
	body := `{"model":"claude-opus-5-5","max_tokens":128000,"stream":true,
 "system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}},{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}],
 "messages":[
  {"role":"user","content":[{"type":"text","text":"reminder"},{"type":"text","text":"prompt"}]},
  {"role":"system","content":[{"type":"text","text":"d","cache_control":{"type":"ephemeral"}}],"output_config":{"effort":"medium"}}],
 "tools":[{"name":"Bash","description":"x","input_schema":{"type":"object"}},{"name":"Placeholder","defer_loading":true,"input_schema":{"type":"object"}}],
 "metadata":{"user_id":"x"},"thinking":{"type":"adaptive","display":"omitted"},
 "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"output_config":{"effort":"medium"}}`
	w := f.do("POST", "/messages?beta=true", body, append(claudeHeader, "Anthropic-Beta: claude-code-20250219,context-management-2025-06-27")...)
	if w.Code != 200 || added(t, messageEvents(t, w.Body.String())).Stop != "tool_use" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := f.do("POST", "/messages?beta=true", body, claudeHeader...); w.Code != 400 {
		t.Errorf("without the beta: %d %s", w.Code, w.Body)
	}
}
