package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseUsage(t *testing.T) {
	for _, c := range []struct {
		name, usage string
		want        Usage
		has         bool
		fault       string
	}{
		{"plain", `{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}`, Usage{Input: 10, Output: 20}, true, ""},
		{
			"details", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,
			"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":20,"audio_tokens":3,"image_tokens":4,"text_tokens":9},
			"completion_tokens_details":{"reasoning_tokens":30,"audio_tokens":5,"image_tokens":1,"accepted_prediction_tokens":1,"rejected_prediction_tokens":2}}`,
			Usage{Input: 100, CachedInput: 40, CacheWrite: 20, AudioIn: 3, ImageIn: 4, Output: 50, Reasoning: 30, AudioOut: 5, ImageOut: 1},
			true, "",
		},
		{
			"null details", `{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":null}}`,
			Usage{Input: 1, Output: 2},
			true, "",
		},
		{
			"names of /responses", `{"input_tokens":1,"output_tokens":2,"input_tokens_details":{"cached_tokens":1},"output_tokens_details":{"reasoning_tokens":1}}`,
			Usage{Input: 1, CachedInput: 1, Output: 2, Reasoning: 1},
			true, "",
		},
		{
			"DeepSeek", `{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}`,
			Usage{Input: 10, CachedInput: 8, Output: 2},
			true, "",
		},
		{
			"Anthropic", `{"prompt_tokens":10,"completion_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}`,
			Usage{Input: 10, CachedInput: 3, CacheWrite: 4, Output: 2},
			true, "",
		},
		{
			"LiteLLM, writes by their time", `{"prompt_tokens":10,"completion_tokens":2,"cache_creation_input_tokens":7,
			"prompt_tokens_details":{"cached_tokens":1,"cache_creation_tokens":7,"cache_creation_token_details":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":3}}}`,
			Usage{Input: 10, CachedInput: 1, CacheWrite: 4, CacheWrite1h: 3, Output: 2},
			true, "",
		},
		{
			"Anthropic, writes by their time", `{"prompt_tokens":10,"completion_tokens":2,"cache_creation":{"ephemeral_1h_input_tokens":3,"ephemeral_5m_input_tokens":4}}`,
			Usage{Input: 10, CacheWrite: 4, CacheWrite1h: 3, Output: 2},
			true, "",
		},
		{
			"writes, none for an hour", `{"prompt_tokens":10,"completion_tokens":2,"cache_creation":{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":4}}`,
			Usage{Input: 10, CacheWrite: 4, Output: 2},
			true, "",
		},
		{
			"writes for an hour apart", `{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cache_write_tokens":4,"cache_write_1h_tokens":3}}`,
			Usage{Input: 10, CacheWrite: 4, CacheWrite1h: 3, Output: 2},
			true, "",
		},
		{
			"negative writes for an hour", `{"prompt_tokens":10,"completion_tokens":2,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_1h_input_tokens":-9223372036854775808}}`,
			Usage{Input: 10, CacheWrite: 4, Output: 2},
			true, "negative cache_write_1h_tokens",
		},
		{
			"more writes for an hour than input", `{"prompt_tokens":10,"completion_tokens":2,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_1h_input_tokens":99}}`,
			Usage{Input: 109, CacheWrite1h: 99, Output: 2},
			true, "",
		},
		{"floats that are whole", `{"prompt_tokens":10.0,"completion_tokens":2e1}`, Usage{Input: 10, Output: 20}, true, ""},
		{
			"reasoning beside the output", `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35,"completion_tokens_details":{"reasoning_tokens":20}}`,
			Usage{Input: 10, Output: 25, Reasoning: 20},
			true, "",
		},
		{"unexplained total", `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35}`, Usage{Input: 10, Output: 25}, true, "total_tokens"},
		{"small total", `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":0}`, Usage{Input: 10, Output: 5}, true, ""},
		{"absurd total", `{"prompt_tokens":10,"completion_tokens":5,"total_tokens":1e30}`, Usage{Input: 10, Output: 5}, true, ""},
		{"no completion but a total", `{"prompt_tokens":10,"total_tokens":15}`, Usage{Input: 10, Output: 5}, true, ""},
		{"no prompt but a total", `{"completion_tokens":10,"total_tokens":15}`, Usage{Input: 5, Output: 10}, true, ""},
		{"twice", `{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens":2}`, Usage{Input: 2, Output: 1}, true, ""},

		{"null", `null`, Usage{}, false, ""},
		{"empty", `{}`, Usage{}, false, "lacks"},
		{"only a total", `{"total_tokens":15}`, Usage{}, false, "lacks"},
		{"only a prompt", `{"prompt_tokens":15}`, Usage{}, false, "lacks"},
		{"no object", `[1]`, Usage{}, false, "not an object"},
		{"number", `5`, Usage{}, false, "not an object"},
		{"string count", `{"prompt_tokens":"1","completion_tokens":2}`, Usage{Input: 1, Output: 2}, true, ""},
		{"text", `{"prompt_tokens":"one","completion_tokens":2}`, Usage{}, false, "not a number"},
		{"fraction", `{"prompt_tokens":1.5,"completion_tokens":2}`, Usage{Input: 2, Output: 2}, true, ""},
		{"negative fraction", `{"prompt_tokens":-1.5,"completion_tokens":2}`, Usage{}, false, "not a number"},
		{"bool", `{"prompt_tokens":1,"completion_tokens":true}`, Usage{}, false, "not a number"},
		{"negative", `{"prompt_tokens":-1,"completion_tokens":2}`, Usage{Output: 2}, true, "negative prompt_tokens"},
		{"huge", `{"prompt_tokens":1e30,"completion_tokens":99999999999999999999}`, Usage{Input: 1 << 30, Output: 1 << 30}, true, "implausibly large completion_tokens"},
		{"total below the prompt", `{"prompt_tokens":10,"total_tokens":5}`, Usage{Input: 10}, true, "negative completion_tokens"},
		{
			"more cached than sent", `{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":11}}`,
			Usage{Input: 21, CachedInput: 11, Output: 2},
			true, "",
		},
		{
			"classes that overlap", `{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8,"cache_write_tokens":4}}`,
			Usage{Input: 22, CachedInput: 8, CacheWrite: 4, Output: 2},
			true, "",
		},
		{
			"negative detail", `{"prompt_tokens":10,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":-5}}`,
			Usage{Input: 10, Output: 2},
			true, "negative reasoning_tokens",
		},
		{"details of another type", `{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":"x"}`, Usage{Input: 10, Output: 2}, true, "details"},
		{
			"detail of another type", `{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":"x"}}`,
			Usage{Input: 10, Output: 2},
			true, "cached_tokens",
		},
	} {
		body := `{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-\u0035","service_tier":"default","choices":[{"message":{"content":"\ud800 \"usage\""}}],"usage":` + c.usage + `,"x":1}`
		a, ok := ParseUsage(ChatCompletions, []byte(body))
		if a.ID != "chatcmpl-1" || a.Model != "gpt-5" || a.ServiceTier != "default" {
			t.Errorf("%s: %+v", c.name, a)
		}
		if ok != c.has || a.HasUsage != ok || a.Usage != c.want || !strings.Contains(a.Fault, c.fault) || (c.fault == "") != (a.Fault == "") {
			t.Errorf("%s: %+v, %v\nwant %+v, %v, %q", c.name, a, ok, c.want, c.has, c.fault)
		}
	}
}

func TestParseUsageOfEmbeddings(t *testing.T) {
	for _, c := range []struct {
		usage string
		input int64
		has   bool
		fault bool
	}{
		{`{"prompt_tokens":5,"total_tokens":5}`, 5, true, false},
		{`{"total_tokens":5}`, 5, true, false},
		{`{"prompt_tokens":5}`, 5, true, false},
		{`{"prompt_tokens":5,"total_tokens":7}`, 7, true, true},
		{`{}`, 0, false, true},
	} {
		a, ok := ParseUsage(Embeddings, []byte(`{"object":"list","data":[{"embedding":"AAAA"}],"model":"e","usage":`+c.usage+`}`))
		if ok != c.has || a.Usage != (Usage{Input: c.input}) || (a.Fault != "") != c.fault {
			t.Errorf("%s: %+v, %v", c.usage, a, ok)
		}
	}
}

func TestParseUsageTakesAnything(t *testing.T) {
	whole := `{"id":"1","usage":{"prompt_tokens":1,"completion_tokens":1},"model":["x"],"service_tier":null}`
	a, ok := ParseUsage(ChatCompletions, []byte(whole))
	if !ok || a.ID != "1" || a.Model != "" || a.ServiceTier != "" {
		t.Errorf("%+v, %v", a, ok)
	}
	const first = `{"usage":{"prompt_tokens":9,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":5}},"usage":`
	if a, ok := ParseUsage(ChatCompletions, []byte(first+`{"prompt_tokens":1,"completion_tokens":1}}`)); !ok || a.Usage != (Usage{Input: 1, Output: 1}) {
		t.Errorf("usage twice: %+v", a)
	}
	if a, ok := ParseUsage(ChatCompletions, []byte(first+`null}`)); ok || a.Usage != (Usage{}) {
		t.Errorf("usage, then null: %+v", a)
	}
	for n := range len(whole) {
		if a, ok := ParseUsage(ChatCompletions, []byte(whole[:n])); ok || a.Fault == "" {
			t.Errorf("%s: %+v", whole[:n], a)
		}
	}
	for _, body := range []string{"", "null", "[]", "<html>", "data: {}", strings.Repeat("[", 1<<20), strings.Repeat(`{"usage":`, 1<<20)} {
		if a, ok := ParseUsage(ChatCompletions, []byte(body)); ok || a.Fault == "" {
			t.Errorf("%.20q: %+v", body, a)
		}
	}
	long := `{"model":"` + strings.Repeat(`\u00e9`, 10_000) + `"}`
	if a, _ := ParseUsage(ChatCompletions, []byte(long)); len(a.Model) > 1000 {
		t.Errorf("model of %d bytes", len(a.Model))
	}
}

func TestScanChunk(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}`
	for _, c := range []struct {
		data                         string
		text                         string
		empty, usage, errors, finish bool
	}{
		{`{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}`, "", false, false, false, false},
		{`{"choices":[{"delta":{"content":"h\u00e9\n"},"finish_reason":null}]}`, "h\u00e9\n", false, false, false, false},
		{`{"choices":[{"delta":{"content":null,"refusal":"no"}}]}`, "no", false, false, false, false},
		{`{"choices":[{"delta":{"reasoning_content":"hm","reasoning":"hm"}}]}`, "hm", false, false, false, false},
		{`{"choices":[{"delta":{"reasoning_content":null,"reasoning":"hm"}}]}`, "hm", false, false, false, false},
		{`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}}]}`, `f{"a":`, false, false, false, false},
		{`{"choices":[{"delta":{"function_call":{"name":"f","arguments":"1"}}}]}`, "f1", false, false, false, false},
		{`{"choices":[{"delta":{"audio":{"id":"a","data":"AAAA","transcript":"hi"}}}]}`, "hi", false, false, false, false},
		{`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]},{"type":"text","text":"b"},"c"]}}]}`, "abc", false, false, false, false},
		{`{"choices":[{"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}`, "ab", false, false, false, false},
		{`{"choices":[{"index":0,"text":"legacy"}]}`, "legacy", false, false, false, false},
		// Text that is sent in two forms counts once: like Together's and like Perplexity's.
		{`{"choices":[{"index":0,"text":"hi","delta":{"role":"assistant","content":"hi"}},{"delta":{"content":"a"},"text":"a"}]}`, "hia", false, false, false, false},
		{`{"choices":[{"message":{"content":"all so far"},"delta":{"content":" far"}}]}`, " far", false, false, false, false},
		{`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "", false, false, false, true},
		{`{"choices":[],` + usage + `}`, "", true, true, false, false},
		{`{"choices":null,` + usage + `}`, "", true, true, false, false},
		{`{` + usage + `}`, "", true, true, false, false},
		{`{"choices":[{"delta":{"content":"x"}}],` + usage + `}`, "x", false, true, false, false},
		{`{"choices":[],"prompt_filter_results":[]}`, "", true, false, false, false},
		{`{"error":{"message":"x","code":"rate_limit_exceeded"}}`, "", true, false, true, false},
		{`{"error":null,"choices":[{"delta":{"content":"x"}}]}`, "x", false, false, false, false},
		{`{"choices":[5,null,"x",{"delta":5},{"delta":{"content":5}},{"delta":{"tool_calls":"x"}}]}`, "", false, false, false, false},
		{`{"choices":{},"usage":5}`, "", true, false, false, false},
		{`{"choices":[{"delta":{"content":"a\ud800b"}}]}`, "a\ufffdb", false, false, false, false},
		{" \n{}\r\n", "", true, false, false, false},
	} {
		got, err := ScanChunk([]byte(c.data), []byte(">"))
		if err != nil || string(got.Text) != ">"+c.text || got.ChoicesEmpty != c.empty || got.HasUsage != c.usage || got.Error != c.errors || got.Finish != c.finish {
			t.Errorf("%s: %+v (text %q), %v", c.data, got, got.Text, err)
		}
	}
	got, _ := ScanChunk([]byte(`{"id":"1","model":"m","service_tier":"flex","choices":[],`+usage+`}`), nil)
	if !reflect.DeepEqual(got.Answer, Answer{ID: "1", Model: "m", ServiceTier: "flex", Usage: Usage{Input: 1, Output: 2}, HasUsage: true}) {
		t.Errorf("answer: %+v", got.Answer)
	}
	for _, bad := range []string{"", "[DONE]", "null", `{"choices":[`, `{"usage":{"prompt_tokens":1,"completion_tokens":1}`, "{]", "\x00"} {
		if got, err := ScanChunk([]byte(bad), nil); err == nil || got.HasUsage {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// FuzzChunk compares with encoding/json for documents that both read alike: no duplicate names, and
// valid UTF-8.
func FuzzChunk(f *testing.F) {
	for _, c := range []string{
		`{"choices":[{"delta":{"content":"h\u00e9\n","tool_calls":[{"function":{"name":"f","arguments":"x"}}]},"finish_reason":"stop"}]}`,
		`{"choices":[],"error":{},"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`,
		`{"choices":[{"delta":{"reasoning":"x","content":[{"text":"a"},["b"]],"audio":{"transcript":"t"}},"text":"y"}]}`,
	} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ScanChunk(data, nil)
		ParseUsage(ChatCompletions, data)
		if !utf8.Valid(data) || !accepts(data, true) {
			return
		}
		var doc any
		if json.Unmarshal(data, &doc) != nil {
			return
		}
		top, ok := doc.(map[string]any)
		if ok != (err == nil) {
			t.Fatalf("error %v", err)
		}
		if !ok || strings.Contains(string(data), "reasoning") {
			return
		}
		choices, _ := top["choices"].([]any)
		var text string
		finish := false
		for _, choice := range choices {
			c, _ := choice.(map[string]any)
			_, ended := c["finish_reason"].(string)
			finish = finish || ended
			text += generated(c["text"], false)
			for _, name := range []string{"delta", "message"} {
				delta, _ := c[name].(map[string]any)
				text += generated(delta["content"], false) + generated(delta["refusal"], false)
				text += generated(delta["tool_calls"], true) + generated(delta["function_call"], true) + generated(delta["audio"], true)
			}
		}
		if got.ChoicesEmpty != (len(choices) == 0) || top["error"] == "x" && !got.Error || got.Finish != finish {
			t.Errorf("%+v", got)
		}
		if want := []byte(text); !reflect.DeepEqual(sorted(got.Text), sorted(want)) {
			t.Errorf("text %q, want %q in some order", got.Text, want)
		}
	})
}

func sorted(b []byte) []byte { return slices.Sorted(slices.Values(b)) }

// generated collects the text in v as ScanChunk should, in any order.
func generated(v any, call bool) (text string) {
	switch v := v.(type) {
	case string:
		if !call {
			text = v
		}
	case []any:
		for _, item := range v {
			text += generated(item, call)
		}
	case map[string]any:
		names := map[string]bool{"text": false, "thinking": false, "content": false, "refusal": false}
		if call {
			names = map[string]bool{"name": false, "arguments": false, "input": false, "transcript": false, "function": true, "custom": true}
		}
		for name, deeper := range names {
			text += generated(v[name], deeper)
		}
	}
	return text
}
