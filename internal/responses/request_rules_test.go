package responses_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/responses"
)

const noWord = " cannot be used with this model: its provider supports only chat completions, which have no equivalent"

// What chat has no equivalent for is rejected, with the member and the reason.
func TestWhatHasNoWord(t *testing.T) {
	with := func(member string) string { return `{"model":"m","input":"x",` + member + `}` }
	input := func(item string) string { return `{"model":"m","input":[` + item + `]}` }
	user := func(part string) string { return input(`{"role":"user","content":[` + part + `]}`) }
	for _, c := range []struct{ body, param, what string }{
		{with(`"conversation":"conv_1"`), "conversation", "conversation"},
		{with(`"prompt":{"id":"p"}`), "prompt", "prompt"},
		{with(`"moderation":{}`), "moderation", "moderation"},
		{with(`"context_management":[]`), "context_management", "context_management"},
		{with(`"tools":[{"type":"custom","name":"f"}]`), "tools[0].type", `The tool type "custom"`},
		{with(`"include":["a","message.output_text.logprobs"]`), "include[1]", `"message.output_text.logprobs"`},
		{input(`{"type":"compaction","encrypted_content":"xx"}`), "input[0].type", `An item of type "compaction"`},
		{user(`{"type":"input_text","text":"a"},{"type":"input_file","file_url":"x"}`), "input[0].content[1].file_url", "A file_url"},
		{with(`"truncation":"auto"`), "truncation", `truncation "auto"`},
		{with(`"top_logprobs":2`), "top_logprobs", "top_logprobs"},
		{with(`"include":["message.output_text.logprobs"]`), "include[0]", `"message.output_text.logprobs"`},
		{with(`"text":{"format":{"type":"grammar"}}`), "text.format.type", `The format "grammar"`},
		{with(`"tools":[{"type":"web_search"}]`), "tools[0].type", `The tool type "web_search"`},
		{with(`"tools":[{"type":"function","name":"f"},{"type":"mcp"}]`), "tools[1].type", `The tool type "mcp"`},
		{
			with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"mcp"}`), "tool_choice",
			`The tool_choice {"type":"mcp"}`,
		},
		{input(`{"type":"web_search_call"}`), "input[0].type", `An item of type "web_search_call"`},
		{
			input(`{"role":"user","content":"x"},{"type":"computer_call"}`), "input[1].type",
			`An item of type "computer_call"`,
		},
		{user(`{"type":"input_image","file_id":"file-1"}`), "input[0].content[0].file_id", "A file_id"},
		{user(`{"type":"input_file","file_url":"https://x"}`), "input[0].content[0].file_url", "A file_url"},
		{user(`{"type":"input_video"}`), "input[0].content[0].type", `Content of type "input_video"`},
		{
			input(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:"}]}`), "input[0].output",
			"The output of a function that is more than text",
		},
	} {
		_, err := responses.ChatRequest(requestOf(t, c.body), neutral.Options{}, "max_tokens")
		checkRefusal(t, c.body, err, 400, c.param, "unsupported_parameter", c.what+noWord)
	}
}

// Missing and unknown values are rejected in the words of OpenAI's own API.
func TestWhatIsMissing(t *testing.T) {
	input := func(item string) string { return `{"model":"m","input":[` + item + `]}` }
	for _, c := range []struct{ body, param, code, message string }{
		{
			`{"model":"m","previous_response_id":"resp_1"}`, "input", "missing_required_parameter",
			"Missing required parameter: 'input'.",
		},
		{
			`{"model":"m","input":"x","tools":[{"type":"function"}]}`, "tools[0].name", "missing_required_parameter",
			"Missing required parameter: 'tools[0].name'.",
		},
		{
			input(`{"type":"function_call","name":"f","arguments":"{}"}`), "input[0].call_id",
			"missing_required_parameter", "Missing required parameter: 'input[0].call_id'.",
		},
		{
			input(`{"type":"function_call","call_id":"c","arguments":"{}"}`), "input[0].name",
			"missing_required_parameter", "Missing required parameter: 'input[0].name'.",
		},
		{
			input(`{"type":"function_call","call_id":"c","name":"f"}`), "input[0].arguments",
			"missing_required_parameter", "Missing required parameter: 'input[0].arguments'.",
		},
		{
			input(`{"type":"function_call_output","output":"o"}`), "input[0].call_id", "missing_required_parameter",
			"Missing required parameter: 'input[0].call_id'.",
		},
		{
			input(`{"role":"king","content":"x"}`), "input[0].role", "invalid_value",
			`Invalid value for 'input[0].role': "king".`,
		},
		{
			`{"model":"m","input":"x","logprobs":true}`, "logprobs", "unknown_parameter",
			"Unknown parameter: 'logprobs'. It is a parameter of chat completions.",
		},
		{
			`{"model":"m","input":"x","n":3}`, "n", "unknown_parameter",
			"Unknown parameter: 'n'. It is a parameter of chat completions.",
		},
		{
			`{"model":"m","input":"x","max_tokens":5}`, "max_tokens", "unknown_parameter",
			"Unknown parameter: 'max_tokens'. It is a parameter of chat completions.",
		},
	} {
		_, err := responses.ChatRequest(requestOf(t, c.body), neutral.Options{}, "max_tokens")
		checkRefusal(t, c.body, err, 400, c.param, c.code, c.message)
	}
}

// Items are referenced by id; an unknown id is an error.
func TestReferences(t *testing.T) {
	items := map[string][]byte{
		"msg_1": []byte(`{"id":"msg_1","type":"message","role":"assistant","content":"kept"}`),
		"ref_1": []byte(`{"id":"ref_1","type":"item_reference"}`),
	}
	body := `{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`
	checkJSON(t, body, chatOf(t, body, neutral.Options{Items: items})["messages"],
		`[{"role":"assistant","content":"kept"}]`)
	missing := strings.Replace(body, "msg_1", "msg_2", 1)
	_, err := responses.ChatRequest(requestOf(t, missing), neutral.Options{Items: items}, "max_tokens")
	checkRefusal(t, missing, err, 404, "input[0].id", "item_not_found",
		"No such item: \"msg_2\". It must have been created through this proxy by the same organization")
	loop := strings.Replace(body, "msg_1", "ref_1", 1)
	_, err = responses.ChatRequest(requestOf(t, loop), neutral.Options{Items: items}, "max_tokens")
	checkRefusal(t, loop, err, 400, "input[0].id", "unsupported_parameter", "This item"+noWord)
}

// Members of both APIs are passed on unchanged; those without meaning for chat are omitted.
func TestMembersThatAreHandedOn(t *testing.T) {
	for _, c := range []struct{ member, want string }{
		{`"temperature":1e-1`, `"temperature":0.1`},
		{`"top_p":0.25`, `"top_p":0.25`},
		{`"user":"u"`, `"user":"u"`},
		{`"service_tier":"flex"`, `"service_tier":"flex"`},
		{`"stream":true`, `"stream":true`},
		{`"max_output_tokens":20`, `"max_completion_tokens":20`},
		{`"reasoning":{"effort":"high","summary":"auto"}`, `"reasoning_effort":"high"`},
		{`"text":{"verbosity":"low"}`, `"verbosity":"low"`},
		{`"text":{"format":{"type":"json_object"}}`, `"response_format":{"type":"json_object"}`},
		{
			`"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}}}`,
			`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}`,
		},
		{`"top_k":5`, `"top_k":5`}, // specific to a provider
		{`"text":{"format":{"type":"text"}}`, ``},
		{`"metadata":{"a":"b"}`, ``},
		{`"store":true`, ``},
		{`"background":true`, ``},
		{`"truncation":"disabled"`, ``},
		{`"top_logprobs":0`, ``},
		{`"include":["reasoning.encrypted_content"]`, ``},
		{`"stream_options":{"include_obfuscation":false}`, ``},
		{`"tool_choice":"required"`, ``}, // without tools
		{`"parallel_tool_calls":false`, ``},
	} {
		body := `{"model":"m","input":"x",` + c.member + `}`
		want := strings.TrimSuffix(`{"model":"m","messages":[{"role":"user","content":"x"}],`+c.want, ",") + "}"
		checkJSON(t, body, chatOf(t, body, neutral.Options{}), want)
	}
}

// Earlier turns come first, each with its output after its input.
func TestTurnsComeFirst(t *testing.T) {
	chat := chatOf(t, `{"model":"m","instructions":"i","previous_response_id":"resp_1"}`, neutral.Options{Turns: []neutral.Turn{
		{Input: []byte(`[{"role":"user","content":"1"}]`), Output: []byte(`[{"role":"assistant","content":"2"}]`)},
		{Input: []byte(`[{"role":"user","content":"3"}]`), Output: []byte(`[]`)},
	}})
	checkJSON(t, "messages", chat["messages"],
		`[{"role":"system","content":"i"},{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"3"}]`)
	_, err := responses.ChatRequest(requestOf(t, `{"model":"m","input":"x"}`), neutral.Options{Turns: []neutral.Turn{{Input: []byte(`[{"type":"mcp_call"}]`)}}}, "max_tokens")
	checkRefusal(t, "an earlier turn", err, 400, "previous_response_id.type", "unsupported_parameter",
		`An item of type "mcp_call"`)
}

// A provider's error names the corresponding member of Responses.
func TestParamOfAnError(t *testing.T) {
	for param, want := range map[string]string{
		"messages": "input", "messages[2].content[0]": "input", "messages.2": "input", "max_completion_tokens": "max_output_tokens",
		"max_tokens": "max_output_tokens", "response_format.json_schema": "text.format", "reasoning_effort": "reasoning.effort", "response_format": "text.format", "tools[0]": "tools[0]", "top_p": "top_p", "": "",
	} {
		if got := responses.Names.Param(chat.Names.Field(param)); got != want {
			t.Errorf("%s: got %s, want %s", param, got, want)
		}
	}
}
