package messages_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/messages"
	"github.com/llmguard/llmguard/internal/neutral"
)

// converse returns a chat request with members, and messages unless it has some.
func converse(members string) string {
	if !strings.Contains(members, `"messages"`) {
		members = `"messages":[{"role":"user","content":"hi"}],` + members
	}
	return `{"model":"m",` + strings.TrimSuffix(members, ",") + `}`
}

func TestChatToMessages(t *testing.T) {
	f := func(members, want string) {
		t.Helper()
		if !strings.Contains(want, `"messages"`) {
			want = `"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],` + want
		}
		if !strings.Contains(want, `"max_tokens"`) {
			want = `"max_tokens":4096,` + want
		}
		checkTranslation(t, converse(members), `{"model":"m",`+strings.TrimSuffix(want, ",")+`}`, openAI, anthropic)
	}
	f(``, ``)
	f(`"max_tokens":7`, `"max_tokens":7`)
	f(`"max_completion_tokens":8,"stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0.9`, `"max_tokens":8,"stream":true,"temperature":0.5,"top_p":0.9`)
	f(`"stop":"x"`, `"stop_sequences":["x"]`)
	f(`"stop":["x","y"],"user":"u"`, `"stop_sequences":["x","y"],"metadata":{"user_id":"u"}`)
	f(`"user":"u","safety_identifier":"s","service_tier":"default"`, `"metadata":{"user_id":"s"},"service_tier":"standard_only"`)
	f(`"service_tier":"auto","top_k":5,"inference_geo":"us","cache_control":{"type":"ephemeral"}`, `"service_tier":"auto","top_k":5,"inference_geo":"us","cache_control":{"type":"ephemeral"}`)
	f(`"n":1,"logprobs":false,"frequency_penalty":0.0,"presence_penalty":0,"store":false,"modalities":["text"],"metadata":{"a":"b"},"prompt_cache_key":"k","prediction":{"type":"content","content":"x"}`, ``)

	// Effort and format.
	f(`"reasoning_effort":"minimal"`, `"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}`)
	f(`"reasoning_effort":"xhigh"`, `"thinking":{"type":"adaptive"},"output_config":{"effort":"xhigh"}`)
	f(`"reasoning_effort":"none"`, `"thinking":{"type":"disabled"}`)
	f(`"response_format":{"type":"text"}`, ``)
	f(`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}`, `"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`)

	// Tools.
	f(`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true},"cache_control":{"type":"ephemeral"}},{"type":"function","function":{"name":"g"}}],
		"tool_choice":"required","parallel_tool_calls":false`,
		`"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"}},{"name":"g","input_schema":{"type":"object","properties":{}}}],
		"tool_choice":{"type":"any","disable_parallel_tool_use":true}`)
	const tool, made = `"tools":[{"type":"function","function":{"name":"f"}}],`, `"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],`
	f(tool+`"parallel_tool_calls":true`, made)
	f(tool+`"parallel_tool_calls":false`, made+`"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`)
	f(tool+`"tool_choice":"none","parallel_tool_calls":false`, made+`"tool_choice":{"type":"none"}`)
	f(tool+`"tool_choice":{"type":"function","function":{"name":"f"}}`, made+`"tool_choice":{"type":"tool","name":"f"}`)
	f(`"tool_choice":"auto","parallel_tool_calls":false`, ``)

	// Roles: what one side says becomes one message.
	f(`"messages":[{"role":"system","content":"s1"},{"role":"developer","content":"s2"},{"role":"user","name":"bob","content":"a"},{"role":"user","content":[{"type":"text","text":"b","cache_control":{"type":"ephemeral"}},{"type":"text","text":""}]},
		{"role":"assistant","content":"","refusal":"no","tool_calls":[{"id":"functions.f:0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":""}},
			{"id":"c3","type":"function","function":{"name":"h","arguments":"{\"a\":"}}]},
		{"role":"tool","tool_call_id":"functions.f:0","content":"r1"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"r2"}]},{"role":"tool","tool_call_id":"c3","content":""},
		{"role":"user","content":"c"},{"role":"system","content":"late"},{"role":"assistant","content":"d"},{"role":"system","content":"first"},{"role":"user","content":"e"}]`,
		`"system":[{"type":"text","text":"s1"},{"type":"text","text":"s2"},{"type":"text","text":"first"}],"messages":[
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]},
		{"role":"assistant","content":[{"type":"text","text":"no"},{"type":"tool_use","id":"functions.f:0","name":"f","input":{"a":1}},{"type":"tool_use","id":"c2","name":"g","input":{}},
			{"type":"tool_use","id":"c3","name":"h","input":{"INVALID_JSON":"{\"a\":"}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"functions.f:0","content":[{"type":"text","text":"r1"}]},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"r2"}]},
			{"type":"tool_result","tool_use_id":"c3"},{"type":"text","text":"c"}]},
		{"role":"system","content":[{"type":"text","text":"late"}]},{"role":"assistant","content":[{"type":"text","text":"d"}]},{"role":"user","content":[{"type":"text","text":"e"}]}]`)

	// Reasoning that clients send back.
	f(`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"so","reasoning_content":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","signature":"sig","format":"anthropic-claude-v1","index":0},
		{"type":"reasoning.text","text":"unsigned","format":"anthropic-claude-v1"},{"type":"reasoning.encrypted","data":"gAAA","format":"openai-responses-v1"},{"type":"reasoning.encrypted","data":"xx","format":"anthropic-claude-v1"},{"type":"reasoning.text","signature":"hidden","format":"anthropic-claude-v1"}]},{"role":"user","content":"y","reasoning_details":[{"type":"reasoning.encrypted","data":"xx","format":"anthropic-claude-v1"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},
		{"type":"thinking","thinking":"","signature":"hidden"},{"type":"text","text":"so"}]},{"role":"user","content":[{"type":"text","text":"y"}]}]`)

	// Pictures and files.
	f(`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image\/png;base64,AA==","detail":"low"}},{"type":"image_url","image_url":"https://x/y"},
		{"type":"file","file":{"file_data":"data:application/pdf;base64,BB==","filename":"t.pdf"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"image","source":{"type":"url","url":"https://x/y"}},
		{"type":"document","title":"t.pdf","source":{"type":"base64","media_type":"application/pdf","data":"BB=="}}],"role":"user"}]`)
	f(`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":{"url":"https://x"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}]`)
}

func TestChatRefused(t *testing.T) {
	user := func(part string) string { return `"messages":[{"role":"user","content":[` + part + `]}]` }
	for _, c := range []struct{ members, param string }{
		{`"n":2`, "n"},
		{`"logprobs":true`, "logprobs"},
		{`"top_logprobs":2`, "top_logprobs"},
		{`"store":true`, "store"},
		{`"frequency_penalty":0.5`, "frequency_penalty"},
		{`"presence_penalty":-1`, "presence_penalty"},
		{`"logit_bias":{"5":1}`, "logit_bias"},
		{`"seed":0`, "seed"},
		{`"modalities":["text","audio"]`, "modalities"},
		{`"web_search_options":{}`, "web_search_options"},
		{`"functions":[{"name":"f"}]`, "functions"},
		{`"function_call":"auto"`, "function_call"},
		{`"verbosity":"low"`, "verbosity"},
		{`"service_tier":"flex"`, "service_tier"},
		{`"response_format":{"type":"json_object"}`, "response_format.type"},
		{`"response_format":{"type":"json_schema"}`, "response_format.type"},
		{`"tools":[{"type":"custom","custom":{"name":"f"}}]`, "tools[0].type"},
		{`"tools":[{"type":"function","function":{}}]`, "tools[0].function.name"},
		{`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools"}`, "tool_choice.type"},
		{user(`{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}`), "messages[0].content[0].type"},
		{user(`{"type":"text","text":"a"},{"type":"file","file":{"file_id":"file-1"}}`), "messages[0].content[1].file"},
		{user(`{"type":"image_url","image_url":{}}`), "messages[0].content[0].image_url.url"},
		{`"messages":[{"role":"function","name":"f","content":"x"}]`, "messages[0].role"},
		{`"messages":[{"role":"tool","content":"x"}]`, "messages[0].tool_call_id"},
		{`"messages":[{"role":"assistant","audio":{"id":"a"}}]`, "messages[0].audio"},
		{`"messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}]`, "messages[0].function_call"},
		{`"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]}]`, "messages[0].tool_calls[0].type"},
		{`"messages":[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}]`, "messages[0].tool_calls[0].id"},
		{`"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"arguments":"{}"}}]}]`, "messages[0].tool_calls[0].function.name"},
		{`"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f"}}]}]`, "messages[0].tool_calls[0].function.arguments"},
	} {
		checkRefusal(t, converse(c.members), c.param, openAI, anthropic)
	}
}

// What chat completions say is the same after it was read and written.
func TestChatRoundTrip(t *testing.T) {
	for _, members := range []string{
		`"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"\u00e9"},{"type":"image_url","image_url":{"url":"https://x","detail":"low"}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}},
			{"type":"file","file":{"file_data":"data:,x","filename":"n"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1.50}"}}]},
			{"role":"tool","tool_call_id":"c","content":"r"},{"role":"assistant","content":"a"},{"role":"user","content":"b"}]`,
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false`,
		`"stream":true,"temperature":0.5,"top_p":1,"stop":["x"],"user":"u","service_tier":"flex","verbosity":"low","reasoning_effort":"minimal","max_completion_tokens":5,"future":1`,
		`"response_format":{"type":"json_object"}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":false,"schema":{}}}`,
	} {
		checkTranslation(t, converse(members), converse(members), openAI, openAI)
	}
}

func TestResponsesToMessages(t *testing.T) {
	f := func(members, want string) {
		t.Helper()
		checkTranslation(t, `{"model":"m",`+members+`}`, `{"model":"m","max_tokens":4096,`+want+`}`, respond, anthropic)
	}
	f(`"instructions":"i","input":"x","reasoning":{"effort":"high"}`,
		`"system":[{"type":"text","text":"i"}],"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}`)
	f(`"input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_file","file_url":"https://x/y.pdf"}]},
		{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":"signature:sig"},{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"redacted:xx"},
		{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":"gAAAA"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://x"}]}]`,
		`"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"document","source":{"type":"url","url":"https://x/y.pdf"}}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"so"},{"type":"tool_use","id":"c","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}]}]`)
	for _, c := range []struct{ members, param string }{
		{`"input":"x","text":{"verbosity":"low"}`, "text.verbosity"},
		{`"input":"x","text":{"format":{"type":"json_object"}}`, "text.format.type"},
		{`"input":"x","service_tier":"flex"`, "service_tier"},
		{`"input":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]`, "input[0].content[0].input_audio"},
	} {
		checkRefusal(t, `{"model":"m",`+c.members+`}`, c.param, respond, anthropic)
	}
}

// A provider's error names the caller's member.
func TestParamOfAnError(t *testing.T) {
	for param, want := range map[string]string{
		"messages[2].content[0]": "messages", "messages.2": "messages", "system": "messages", "max_tokens": "max_completion_tokens",
		"output_config.format.schema": "response_format", "output_config.effort": "reasoning_effort", "thinking.budget_tokens": "reasoning_effort",
		"stop_sequences": "stop", "metadata.user_id": "user", "tools[0]": "tools[0]", "top_p": "top_p", "": "",
	} {
		if got := chat.Names.Param(messages.Names.Field(param)); got != want {
			t.Errorf("%s: got %s, want %s", param, got, want)
		}
	}
	for param, want := range map[string]string{
		"messages[2].content[0]": "messages", "max_completion_tokens": "max_tokens", "max_tokens": "max_tokens", "response_format.json_schema": "output_config.format",
		"reasoning_effort": "output_config.effort", "stop": "stop_sequences", "user": "metadata.user_id", "tools[0]": "tools[0]", "": "",
	} {
		if got := messages.Names.Param(chat.Names.Field(param)); got != want {
			t.Errorf("%s: got %s, want %s", param, got, want)
		}
	}
}

// TestEffortOfOldModels: models before 4.6 get a budget of thinking, which leaves them half of the limit at least.
func TestEffortOfOldModels(t *testing.T) {
	for _, c := range []struct {
		model, effort string
		limit         int64
		want          string
	}{
		{"claude-sonnet-4-5", "high", 100_000, `"thinking":{"type":"enabled","budget_tokens":24576}`},
		{"claude-sonnet-4-5", "low", 3000, `"thinking":{"type":"enabled","budget_tokens":1500}`},
		{"claude-sonnet-4-5", "low", 2000, ""},
		{"claude-opus-4-20250514", "none", 2000, `"thinking":{"type":"disabled"}`},
		{"claude-sonnet-4-6", "high", 100_000, `"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}`},
		{"claude-opus-5", "high", 100_000, `"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}`},
	} {
		body, err := messages.Body(&neutral.Request{Model: neutral.Raw(`"m"`), Effort: c.effort, Limit: c.limit}, neutral.Form{Model: c.model})
		if err != nil || c.want == "" && strings.Contains(string(body), "thinking") || !strings.Contains(string(body), c.want) {
			t.Errorf("%s, %s of %d: %s, %v\nwant %s", c.model, c.effort, c.limit, body, err, c.want)
		}
	}
}
