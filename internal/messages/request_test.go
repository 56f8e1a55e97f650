package messages_test

import (
	"strings"
	"testing"
)

// ask returns a Messages request with members, and messages unless it has some.
func ask(members string) string {
	if !strings.Contains(members, `"messages"`) {
		members = `"messages":[{"role":"user","content":"hi"}],` + members
	}
	if !strings.Contains(members, `"max_tokens"`) {
		members = `"max_tokens":9,` + members
	}
	return `{"model":"m",` + strings.TrimSuffix(members, ",") + `}`
}

func TestMessagesToChat(t *testing.T) {
	f := func(members, want string) {
		t.Helper()
		if !strings.Contains(want, `"messages"`) {
			want = `"messages":[{"role":"user","content":"hi"}],` + want
		}
		want = `{"model":"m","max_completion_tokens":9,` + strings.TrimSuffix(want, ",") + `}`
		checkTranslation(t, ask(members), want, anthropic, openAI)
	}
	f(``, ``)
	f(`"stream":true,"temperature":0.5,"top_p":1e-1,"stop_sequences":["a","b"]`, `"stream":true,"temperature":0.5,"top_p":0.1,"stop":["a","b"]`)
	f(`"metadata":{"user_id":"u"},"service_tier":"standard_only"`, `"user":"u","service_tier":"default"`)
	f(`"metadata":{"user_id":"`+strings.Repeat("u", 150)+`"},"service_tier":"auto"`, `"user":"32c70f6d78fa94e3cb1882a5fe305dc7","service_tier":"auto"`)
	f(`"future":{"a":1},"n":2,"max_completion_tokens":2,"models":["dear"]`, ``) // only Anthropic may know them

	// System prompts, also those that agents send among the messages.
	f(`"system":"be kind","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
		`"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"a\nb"}]`)
	f(`"system":[{"type":"text","text":"s1"},{"type":"text","text":"s2","cache_control":{"type":"ephemeral","ttl":"1h"}}],
		"messages":[{"role":"user","content":"u"},{"role":"system","content":[{"type":"text","text":"s3"}],"output_config":{"effort":"low"}},
		{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"system","content":"s4"}]`,
		`"messages":[{"role":"system","content":"s1\ns2"},{"role":"user","content":"u"},{"role":"system","content":"s3"},
		{"role":"assistant","content":"a"},{"role":"user","content":"v"},{"role":"system","content":"s4"}]`)

	// Tools, their calls and results.
	f(`"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"},"defer_loading":true},
		{"type":"custom","name":"g","input_schema":{}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true}`,
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},
		{"type":"function","function":{"name":"g","parameters":{}}}],"tool_choice":"required","parallel_tool_calls":false`)
	f(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"auto"}`, `"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"auto"`)
	f(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"}`, `"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":"none"`)
	f(`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"}`,
		`"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}}`)
	f(`"tools":[],"tool_choice":{"type":"any"}`, ``)
	f(`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
		{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"so"},
		{"type":"tool_use","id":"t1","name":"f","input":{"a":"\u00e9\""}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"r1","is_error":true},
		{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"r2"},{"type":"tool_reference","tool_name":"h"}],"cache_control":{"type":"ephemeral"}},
		{"type":"text","text":"go on"}]}]`,
		`"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"so","tool_calls":[
		{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\":\"\\u00e9\\\"\"}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"t1","content":"r1"},{"role":"tool","tool_call_id":"t2","content":"r2\nh"},{"role":"user","content":"go on"}]`)
	f(`"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1"}]}]`,
		`"messages":[{"role":"tool","tool_call_id":"t1","content":""}]`)

	// Pictures and documents.
	f(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"image","source":{"type":"url","url":"https://x/y"}},
		{"type":"document","title":"t.pdf","citations":{"enabled":false},"source":{"type":"base64","media_type":"application/pdf","data":"BB=="}},
		{"type":"document","title":"t","source":{"type":"text","media_type":"text/plain","data":"plain"}}]}]`,
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"image_url","image_url":{"url":"https://x/y"}},
		{"type":"file","file":{"file_data":"data:application/pdf;base64,BB==","filename":"t.pdf"}},
		{"type":"text","text":"plain"}]}]`)

	// How much to think, and the form of the output.
	f(`"thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"max"}`, `"reasoning_effort":"max"`)
	f(`"thinking":{"type":"adaptive"}`, `"reasoning_effort":"high"`)
	f(`"thinking":{"type":"disabled"},"output_config":{"effort":"low"}`, ``)
	f(`"output_config":{"effort":"xhigh","task_budget":{"type":"tokens","total":9}}`, `"reasoning_effort":"xhigh"`)
	f(`"thinking":{"type":"enabled","budget_tokens":1024}`, `"reasoning_effort":"low"`)
	f(`"thinking":{"type":"enabled","budget_tokens":8192}`, `"reasoning_effort":"medium"`)
	f(`"thinking":{"type":"enabled","budget_tokens":32000}`, `"reasoning_effort":"high"`)
	f(`"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"output","strict":true,"schema":{"type":"object"}}}`)
	f(`"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"cache_control":{"type":"ephemeral"},"speed":"standard","mcp_servers":[]`, ``)
}

func TestMessagesRefused(t *testing.T) {
	user := func(block string) string {
		return `"messages":[{"role":"user","content":[{"type":"text","text":"a"},` + block + `]}]`
	}
	for _, c := range []struct{ members, param string }{
		{`"top_k":5`, "top_k"},
		{`"fallbacks":[{"model":"n"}]`, "fallbacks"},
		{`"inference_geo":"us"`, "inference_geo"},
		{`"mcp_servers":[{"type":"url","url":"https://x"}]`, "mcp_servers"},
		{`"container":"c"`, "container"},
		{`"speed":"fast"`, "speed"},
		{`"max_tokens":0`, "max_tokens"},
		{`"context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}`, "context_management.edits[1].type"},
		{`"tools":[{"name":"f","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}]`, "tools[1].type"},
		{`"tools":[{"type":"bash_20250124","name":"bash"}]`, "tools[0].type"},
		{`"tools":[{"input_schema":{}}]`, "tools[0].name"},
		{`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"many"}`, "tool_choice"},
		{`"thinking":{"type":"enabled"}`, "thinking.budget_tokens"},
		{`"output_config":{"format":{"type":"json_object"}}`, "output_config.format.type"},
		{`"service_tier":"flex"`, "service_tier"},
		{`"messages":[{"role":"king","content":"x"}]`, "messages[0].role"},
		{user(`{"type":"image","source":{"type":"file","file_id":"file_1"}}`), "messages[0].content[1].source.type"},
		{user(`{"type":"document","source":{"type":"url","url":"https://x"}}`), "messages[0].content[1].source.type"},
		{user(`{"type":"document","citations":{"enabled":true},"source":{"type":"text","data":"x"}}`), "messages[0].content[1].citations"},
		{user(`{"type":"document","context":"c","source":{"type":"text","data":"x"}}`), "messages[0].content[1].context"},
		{user(`{"type":"document","source":{"type":"content","content":[]}}`), "messages[0].content[1].source.type"},
		{user(`{"type":"search_result","source":"s","title":"t","content":[]}`), "messages[0].content[1].type"},
		{user(`{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`), "messages[0].content[1].type"},
		{user(`{"type":"tool_use","name":"f","input":{}}`), "messages[0].content[1].id"},
		{user(`{"type":"tool_use","id":"f","input":{}}`), "messages[0].content[1].name"},
		{user(`{"type":"tool_result","content":"x"}`), "messages[0].content[1].tool_use_id"},
		{
			user(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}`),
			"messages[0].content[1].content",
		},
	} {
		checkRefusal(t, ask(c.members), c.param, anthropic, openAI)
	}
}

// What Messages says is the same after it was read and written, in the fullest form.
func TestMessagesRoundTrip(t *testing.T) {
	for _, members := range []string{
		`"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[
			{"role":"user","content":[{"type":"text","text":"\u00e9","cache_control":{"type":"ephemeral"}},{"type":"image","source":{"type":"base64","media_type":"image\/png","data":"AA=="}},
				{"type":"image","source":{"type":"url","url":"https://x/y"}},{"type":"document","title":"t","source":{"type":"base64","media_type":"application/pdf","data":"BB=="}},
				{"type":"document","source":{"type":"url","url":"https://x/z.pdf"}}]},
			{"role":"system","content":[{"type":"text","text":"mid"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"sig"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"so"},
				{"type":"tool_use","id":"toolu_1","name":"f","input":{"a":[1.50]}},{"type":"tool_use","id":"toolu_2","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":true,"content":[{"type":"text","text":"r"}],"cache_control":{"type":"ephemeral"}},
				{"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"CC=="}}]},{"type":"text","text":"next"}]}]`,
		`"tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}`,
		`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}`,
		`"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"}`,
		`"stream":true,"temperature":0.5,"top_p":1,"top_k":40,"stop_sequences":["x"],"metadata":{"user_id":"u"},"service_tier":"standard_only"`,
		`"thinking":{"type":"adaptive"},"output_config":{"effort":"max","format":{"type":"json_schema","schema":{"type":"object"}}}`,
		`"thinking":{"type":"enabled","budget_tokens":2000}`,
	} {
		want := strings.ReplaceAll(ask(members), `"content":"hi"`, `"content":[{"type":"text","text":"hi"}]`)
		checkTranslation(t, ask(members), want, anthropic, anthropic)
	}
}
