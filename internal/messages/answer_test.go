package messages_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// request has the model that an answer without one has.
const (
	claudeRequest = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`
	chatRequest   = `{"model":"m","stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}`
	respRequest   = `{"model":"m","input":"x"}`
)

// events writes a Messages stream of the given data.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(d), &e); err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, strings.ReplaceAll(d, "\n\t", ""))
	}
	return b.String()
}

// chunks writes a chat stream of the given choices, deltas and chunks.
func chunks(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		fmt.Fprintf(&b, "data: %s\n\n", d)
	}
	return b.String()
}

// aStream has every event that the API documents, and one that it does not.
var aStream = events(
	`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,
	"usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1,"service_tier":"standard"}}}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
	`{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"hidden"}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"xx"}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"H\u00e9\""}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"llo"}}`,
	`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{}}}`,
	`{"type":"content_block_stop","index":3}`,
	`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"1}"}}`,
	`{"type":"content_block_stop","index":4}`,
	`{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_2","name":"g","input":{}}}`,
	`{"type":"content_block_stop","index":5}`,
	`{"type":"content_block_start","index":6,"content_block":{"type":"future","text":"?"}}`,
	`{"type":"content_block_stop","index":6}`,
	`{"type":"future","usage":{"input_tokens":1}}`,
	`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":50,"output_tokens_details":{"thinking_tokens":20},"server_tool_use":{"web_search_requests":0}}}`,
	`{"type":"message_stop"}`,
)

// aMessage is the same as a whole message.
const aMessage = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"thinking","thinking":"","signature":"hidden"},
	{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"H\u00e9\"llo"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}},{"type":"future","text":"?"}],
	"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},
	"output_tokens":50,"service_tier":"standard","output_tokens_details":{"thinking_tokens":20},"server_tool_use":{"web_search_requests":0}}}`

const aChatMessage = `{"role":"assistant","content":"H\u00e9\"llo","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"sig","format":"anthropic-claude-v1","index":0},
	{"type":"reasoning.text","text":"","signature":"hidden","format":"anthropic-claude-v1","index":1},{"type":"reasoning.encrypted","data":"xx","format":"anthropic-claude-v1","index":2}],
	"tool_calls":[{"id":"toolu_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"toolu_2","type":"function","function":{"name":"g","arguments":"{}"}}]}`

const aChatUsage = `{"prompt_tokens":140,"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":10,"cache_write_1h_tokens":20},"completion_tokens":50,"completion_tokens_details":{"reasoning_tokens":20},
	"total_tokens":190,"server_tool_use":{"web_search_requests":0}}`

var created = regexp.MustCompile(`"created":\d+,`)

func TestMessageToChat(t *testing.T) {
	got := answers(t, aMessage, chatRequest, 0, anthropic, openAI)
	got = created.ReplaceAllString(got, "")
	sameJSON(t, got, `{"id":"id","object":"chat.completion","model":"claude","service_tier":"default","choices":[{"index":0,"message":`+aChatMessage+`,"finish_reason":"tool_calls"}],"usage":`+aChatUsage+`}`)
}

func TestStreamToChat(t *testing.T) {
	got := answers(t, aStream, chatRequest, 1000, anthropic, openAI)
	got = created.ReplaceAllString(got, "")
	const head = `{"id":"id","object":"chat.completion.chunk","model":"claude","service_tier":"default",`
	delta := func(d string) string { return head + `"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}` }
	want := []string{
		delta(`{"role":"assistant","content":""}`), delta(`{"reasoning_content":"h"}`), delta(`{"reasoning_content":"m"}`),
		delta(`{"reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"sig","format":"anthropic-claude-v1","index":0}]}`),
		delta(`{"reasoning_details":[{"type":"reasoning.text","text":"","signature":"hidden","format":"anthropic-claude-v1","index":1}]}`),
		delta(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"xx","format":"anthropic-claude-v1","index":2}]}`),
		delta(`{"content":"Hé\""}`), delta(`{"content":"llo"}`),
		delta(`{"tool_calls":[{"index":0,"id":"toolu_1","type":"function","function":{"name":"f","arguments":""}}]}`),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`),
		delta(`{"tool_calls":[{"index":1,"id":"toolu_2","type":"function","function":{"name":"g","arguments":""}}]}`),
		delta(`{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]}`),
		head + `"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		head + `"choices":[],"usage":` + aChatUsage + `}`,
	}
	list := strings.Split(strings.TrimSuffix(got, "\n\n"), "\n\n")
	if len(list) != len(want)+1 || list[len(want)] != "data: [DONE]" {
		t.Fatalf("%d events, the last %s", len(list), list[len(list)-1])
	}
	for i := range want {
		sameJSON(t, strings.TrimPrefix(list[i], "data: "), want[i])
	}
	if got := answers(t, aStream, strings.Replace(chatRequest, "true", "false", 1), 1000, anthropic, openAI); strings.Contains(got, "usage") {
		t.Errorf("it has usage that the caller did not request: %s", got)
	}
}

// A message is the same after it was read and written, but for what only other APIs send.
func TestMessageRoundTrip(t *testing.T) {
	want := strings.NewReplacer(`"id":"msg_1"`, `"id":"id"`, `,{"type":"future","text":"?"}`, ``, `"stop_sequence":null`, `"stop_sequence":null,"stop_details":null`).Replace(aMessage)
	sameJSON(t, answers(t, aMessage, claudeRequest, 0, anthropic, anthropic), want)
}

// A stream is the same after it was read and written, in pieces of any size, but for pings and what is unknown.
func TestStreamRoundTrip(t *testing.T) {
	dropped := regexp.MustCompile(`(?m)^event: (ping|future)\n.*\n\n`)
	unknown := regexp.MustCompile(`(?m)^.*\n.*("citations_delta"|"index":6|"partial_json":"").*\n\n`)
	want := unknown.ReplaceAllString(dropped.ReplaceAllString(aStream, ""), "")
	// A call without arguments gets some, for other wires.
	want = strings.Replace(want, `event: content_block_stop
data: {"type":"content_block_stop","index":5}`, `event: content_block_delta
data: {"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":5}`, 1)
	for _, size := range []int{1, 7, 100, 1 << 20} {
		got := answers(t, aStream, claudeRequest, size, anthropic, anthropic)
		a, b := strings.Split(got, "\n\n"), strings.Split(want, "\n\n")
		if len(a) != len(b) {
			t.Fatalf("got %s\nwant %s", got, want)
		}
		for i := range a[:len(a)-1] {
			name, data, _ := strings.Cut(a[i], "\ndata: ")
			wantName, wantData, _ := strings.Cut(b[i], "\ndata: ")
			if name != wantName {
				t.Errorf("event %d is %s, want %s", i, name, wantName)
			}
			wantData = strings.NewReplacer(`"id":"msg_1"`, `"id":"id"`, `"stop_sequence":null`, `"stop_sequence":null,"stop_details":null`,
				`"output_tokens":1,`, `"output_tokens":1,"output_tokens_details":{"thinking_tokens":0},`).Replace(wantData)
			if name == "event: message_delta" { // usage is cumulative
				wantData = strings.Replace(wantData, `"output_tokens":50,`, `"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":100,"service_tier":"standard",
					"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":50,`, 1)
			}
			sameJSON(t, data, wantData)
		}
	}
}

func TestChatToMessage(t *testing.T) {
	f := func(choice, more, want string) {
		t.Helper()
		answer := `{"id":"c","object":"chat.completion","created":5,"model":"m-1","choices":[{"index":0,` + choice + `}]` + more + `}`
		got := answers(t, answer, claudeRequest, 0, openAI, anthropic)
		got = regexp.MustCompile(`"toolu_[0-9a-f]{48}"`).ReplaceAllString(got, `"ANY"`)
		sameJSON(t, got, `{"id":"id","type":"message","role":"assistant","model":"m-1",`+want+`}`)
	}
	const zero = `"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0}}`
	ends := func(reason string) string {
		return `"stop_reason":"` + reason + `","stop_sequence":null,"stop_details":null,`
	}
	f(`"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"`, ``, `"content":[{"type":"text","text":"hi"}],`+ends("end_turn")+zero)
	f(`"message":{"role":"assistant","content":""},"finish_reason":"length"`, ``, `"content":[],`+ends("max_tokens")+zero)
	f(`"message":{"content":"h"},"finish_reason":"content_filter"`, ``,
		`"content":[{"type":"text","text":"h"}],"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":null,"explanation":null},`+zero)
	f(`"message":{"content":null,"refusal":"no"},"finish_reason":"stop"`, ``,
		`"content":[{"type":"text","text":"no"}],"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":null,"explanation":null},`+zero)
	f(`"message":{"reasoning_content":"hm","content":"a","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"function":{"name":"g","arguments":""}},{"id":"c3","function":{"name":"h","arguments":"{\"a"}}]},"finish_reason":"tool_calls"`, ``,
		`"content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"a"},{"type":"tool_use","id":"c1","name":"f","input":{"a":1}},{"type":"tool_use","id":"ANY","name":"g","input":{}},
		{"type":"tool_use","id":"c3","name":"h","input":{"INVALID_JSON":"{\"a"}}],`+ends("tool_use")+zero)
	const hi = `"message":{"content":"hi"},"finish_reason":"stop"`
	const said = `"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","stop_sequence":null,"stop_details":null,`
	f(hi, `,"service_tier":"default","usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":3},"total_tokens":17,"cost":0.5}`,
		said+`"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7,"output_tokens_details":{"thinking_tokens":3},"service_tier":"standard","cost":0.5}`)
	// The forms of other servers: caches next to the prompt, hits by another name, output that only the total has.
	f(hi, `,"usage":{"prompt_tokens":10,"completion_tokens":2,"cache_read_input_tokens":30,"cache_creation_input_tokens":4}`,
		said+`"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":30,"output_tokens":2,"output_tokens_details":{"thinking_tokens":0}}`)
	f(hi, `,"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}`,
		said+`"usage":{"input_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":2,"output_tokens_details":{"thinking_tokens":0}}`)
	f(hi, `,"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":112}`,
		said+`"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":102,"output_tokens_details":{"thinking_tokens":0}}`)
	f(hi, `,"usage":"many"`, said+zero)
}

func TestStreamToMessages(t *testing.T) {
	const choice = `{"id":"c","model":"m-1","service_tier":"flex","choices":[{"index":0,"delta":%s,"finish_reason":null}]}`
	delta := func(d string) string { return fmt.Sprintf(choice, d) }
	f := func(name, stream string, want ...string) {
		t.Run(name, func(t *testing.T) {
			got := answers(t, stream, claudeRequest, 100, openAI, anthropic)
			list := strings.Split(strings.TrimSuffix(got, "\n\n"), "\n\n")
			if len(list) != len(want) {
				t.Fatalf("got %s", got)
			}
			for i := range list {
				name, data, _ := strings.Cut(list[i], "\ndata: ")
				sameJSON(t, data, want[i])
				if !strings.Contains(want[i], `{"type":"`+strings.TrimPrefix(name, "event: ")+`"`) {
					t.Errorf("event %d is %s", i, name)
				}
			}
		})
	}
	const (
		start = `{"type":"message_start","message":{"id":"id","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0},"service_tier":"flex"}}}`
		stop  = `{"type":"message_stop"}`
		text0 = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
		stop0 = `{"type":"content_block_stop","index":0}`
		stop1 = `{"type":"content_block_stop","index":1}`
		stop2 = `{"type":"content_block_stop","index":2}`
	)
	f("all", chunks(delta(`{"role":"assistant","content":""}`), delta(`{"reasoning_content":"hm"}`), delta(`{"content":"a"}`), delta(`{"content":"b"}`),
		delta(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`),
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`, `[DONE]`),
		start,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, stop0,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}`, stop1,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}`, `{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, stop2,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4,"output_tokens_details":{"thinking_tokens":0},"service_tier":"flex"}}`, stop)
	f("nothing", chunks(delta(`{"role":"assistant"}`), `{"choices":[{"delta":{},"finish_reason":"stop"}]}`), start,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0},"service_tier":"flex"}}`, stop)
	f("breaks off", chunks(delta(`{"content":"a"}`)), start, text0, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`)
	f("an error", chunks(delta(`{"content":"a"}`), `{"error":{"message":"sorry","code":"c","type":"server_error"}}`, `[DONE]`), start, text0,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, `{"type":"error","error":{"type":"api_error","message":"sorry","code":"c","param":null}}`)
	f("failed", chunks(delta(`{"content":"a"}`), `{"choices":[{"delta":{},"finish_reason":"error"}]}`, `[DONE]`), start, text0,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, `{"type":"error","error":{"type":"api_error","message":"The provider ended the answer with an error","code":"upstream_error","param":null}}`)
	f("a call goes on too late", chunks(delta(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{"}},{"index":0,"function":{"arguments":"}"}}]}`)),
		start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"f","input":{}}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`, stop0,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c2","name":"g","input":{}}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
		`{"type":"error","error":{"type":"api_error","message":"The provider continued a function call that it had already finished","code":"upstream_error","param":null}}`)
}

// How a message ends, in every wire.
func TestHowAMessageEnds(t *testing.T) {
	for _, c := range []struct{ reason, chat, response, again string }{
		{`"stop_reason":"end_turn"`, `"stop"`, `"completed"`, `"end_turn"`},
		{`"stop_reason":"stop_sequence","stop_sequence":"x"`, `"stop"`, `"completed"`, `"stop_sequence","x"`},
		{`"stop_reason":"max_tokens"`, `"length"`, `"incomplete"`, `"max_tokens"`},
		{`"stop_reason":"model_context_window_exceeded"`, `"length"`, `"incomplete"`, `"max_tokens"`},
		{`"stop_reason":"pause_turn"`, `"length"`, `"incomplete"`, `"max_tokens"`},
		{`"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"because"}`, `"content_filter","because"`, `"incomplete"`, `"refusal","because"`},
		{`"stop_reason":"new"`, `"stop"`, `"completed"`, `"end_turn"`},
	} {
		message := `{"content":[{"type":"text","text":"a"}],` + c.reason + `,"usage":{"input_tokens":1,"output_tokens":1}}`
		var chat struct {
			Choices []struct {
				Message      struct{ Refusal *string }
				FinishReason string `json:"finish_reason"`
			}
		}
		decode(t, answers(t, message, chatRequest, 0, anthropic, openAI), &chat)
		checkEnd(t, c.chat, chat.Choices[0].FinishReason, chat.Choices[0].Message.Refusal)
		var response struct{ Status string }
		decode(t, answers(t, message, respRequest, 0, anthropic, respond), &response)
		checkEnd(t, c.response, response.Status, nil)
		var again struct {
			StopReason   string                        `json:"stop_reason"`
			StopSequence *string                       `json:"stop_sequence"`
			StopDetails  struct{ Explanation *string } `json:"stop_details"`
		}
		decode(t, answers(t, message, claudeRequest, 0, anthropic, anthropic), &again)
		if again.StopSequence == nil {
			again.StopSequence = again.StopDetails.Explanation
		}
		checkEnd(t, c.again, again.StopReason, again.StopSequence)
	}
	call := answers(t, `{"content":[{"type":"tool_use","id":"c","name":"f","input":{}}],"stop_reason":"tool_use"}`, chatRequest, 0, anthropic, openAI)
	if !strings.Contains(call, `"finish_reason":"tool_calls"`) {
		t.Errorf("got %s", call)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func checkEnd(t *testing.T, want, reason string, text *string) {
	t.Helper()
	got := fmt.Sprintf("%q", reason)
	if text != nil {
		got += fmt.Sprintf(",%q", *text)
	}
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Errors and broken streams of the provider.
func TestMessagesStreamBreaks(t *testing.T) {
	begun, _, _ := strings.Cut(aStream, "event: content_block_stop")
	got := answers(t, begun+events(`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)+events(`{"type":"message_stop"}`), chatRequest, 50, anthropic, openAI)
	if !strings.HasSuffix(got, "\n\ndata: {\"error\":{\"message\":\"busy\",\"type\":\"overloaded_error\",\"param\":null,\"code\":\"upstream_error\"}}\n\n") {
		t.Errorf("got %s", got)
	}
	if got := answers(t, begun, chatRequest, 50, anthropic, openAI); strings.Contains(got, "[DONE]") || strings.Contains(got, "error") {
		t.Errorf("a stream without its end has one: %s", got)
	}
	ended, _, _ := strings.Cut(aStream, "event: message_stop")
	if got := answers(t, ended, chatRequest, 50, anthropic, openAI); !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("a stream with a stop reason has no end: %s", got)
	}
	if got := answers(t, events(`{"type":"error","error":{"type":"api_error","message":"first"}}`), claudeRequest, 50, anthropic, anthropic); !strings.Contains(got, `"message":"first"`) {
		t.Errorf("got %s", got)
	}
	if got := answers(t, events(`{"type":"ping"}`, `{"type":"message_stop"}`), claudeRequest, 50, anthropic, anthropic); got != "" {
		t.Errorf("got %s", got)
	}
}

// A caller of Responses gets signatures, and sends them back.
func TestResponsesKeepSignatures(t *testing.T) {
	want := `"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"thinking","thinking":"","signature":"hidden"},
		{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"Hé\"llo"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}]}]`
	var response struct{ Output json.RawMessage }
	decode(t, answers(t, aMessage, respRequest, 0, anthropic, respond), &response)
	stream := answers(t, aStream, respRequest, 64, anthropic, respond)
	_, last, _ := strings.Cut(stream, "event: response.completed\ndata: ")
	var streamed struct {
		Response struct{ Output json.RawMessage }
	}
	decode(t, strings.TrimSpace(last), &streamed)
	for _, output := range []json.RawMessage{response.Output, streamed.Response.Output} {
		body := `{"model":"m","input":[{"role":"user","content":"x"},` + strings.TrimPrefix(string(output), "[") + `}`
		checkTranslation(t, body, `{"model":"m","max_tokens":4096,`+want+`}`, respond, anthropic)
	}
	// So does a caller of chat completions that sends messages back as they are.
	var chat struct {
		Choices []struct{ Message json.RawMessage }
	}
	decode(t, answers(t, aMessage, chatRequest, 0, anthropic, openAI), &chat)
	checkTranslation(t, `{"model":"m","messages":[{"role":"user","content":"x"},`+string(chat.Choices[0].Message)+`]}`, `{"model":"m","max_tokens":4096,`+want+`}`, openAI, anthropic)
}
