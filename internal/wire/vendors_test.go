package wire_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
)

// vendors are the shapes in which servers report usage: as an object usage, or as members of the
// answer or of its choice. source is a public page that shows the shape.
var vendors = []struct {
	name, source, usage string
	answer              string // other members of the answer
	want                wire.Usage
	doubt               bool
}{
	{
		name: "OpenAI", source: "https://platform.openai.com/docs/api-reference/chat/object",
		usage: `{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},
		"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`,
		want: wire.Usage{Input: 19, Output: 10},
	},
	{
		name: "OpenAI with audio, partly cached", source: "https://github.com/langwatch/tasks/issues/641",
		usage: `{"prompt_tokens":1000,"completion_tokens":200,"total_tokens":1200,"prompt_tokens_details":{"cached_tokens":800,"audio_tokens":900,
		"cached_tokens_details":{"audio_tokens":750,"text_tokens":50}},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":150}}`,
		want: wire.Usage{Input: 1000, CachedInput: 800, AudioIn: 900, CachedAudio: 750, Output: 200, AudioOut: 150},
	},
	{
		name: "OpenAI Responses, with writes to the cache", source: "https://github.com/laravel/ai/pull/846",
		usage: `{"input_tokens":18014,"input_tokens_details":{"cache_write_tokens":18011,"cached_tokens":0},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":18101}`,
		want:  wire.Usage{Input: 18014, CacheWrite: 18011, Output: 87, Reasoning: 64},
	},
	{
		name: "OpenAI pictures", source: "https://github.com/openai/openai-dotnet/issues/415",
		usage: `{"input_tokens":22,"input_tokens_details":{"image_tokens":0,"text_tokens":22},"output_tokens":272,"total_tokens":294}`,
		want:  wire.Usage{Input: 22, Output: 272},
	},
	{
		name: "OpenAI transcripts", source: "https://platform.openai.com/docs/api-reference/audio/json-object",
		usage: `{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":10,"audio_tokens":4},"output_tokens":101,"total_tokens":115}`,
		want:  wire.Usage{Input: 14, AudioIn: 4, Output: 101},
	},
	{
		name: "OpenAI transcripts by their length", source: "https://platform.openai.com/docs/api-reference/audio/json-object",
		usage: `{"type":"duration","seconds":8.5}`, want: wire.Usage{AudioMillis: 8500},
	},
	{
		name: "Azure", source: "https://learn.microsoft.com/azure/ai-services/openai/reference",
		usage: `{"completion_tokens":5,"completion_tokens_details":null,"prompt_tokens":24,"prompt_tokens_details":null,"total_tokens":29}`,
		want:  wire.Usage{Input: 24, Output: 5},
	},
	{
		name: "DeepSeek", source: "https://github.com/BerriAI/litellm/issues/5017",
		usage: `{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"completion_tokens_details":{"reasoning_tokens":7},"prompt_cache_hit_tokens":24,"prompt_cache_miss_tokens":6}`,
		want:  wire.Usage{Input: 30, CachedInput: 24, Output: 9, Reasoning: 7},
	},
	{
		name: "xAI, reasoning only in the total", source: "https://docs.x.ai/docs/guides/reasoning",
		usage: `{"prompt_tokens":12,"completion_tokens":8,"total_tokens":120,"prompt_tokens_details":{"text_tokens":12,"audio_tokens":0,"image_tokens":0,"cached_tokens":4},
		"completion_tokens_details":{"reasoning_tokens":100,"audio_tokens":0},"num_sources_used":0}`,
		want: wire.Usage{Input: 12, CachedInput: 4, Output: 108, Reasoning: 100},
	},
	{
		name: "xAI with searches", source: "https://github.com/BerriAI/litellm/pull/39441",
		usage: `{"input_tokens":3834,"output_tokens":467,"total_tokens":4301,"server_side_tool_usage_details":{"web_search_calls":2}}`,
		want:  wire.Usage{Input: 3834, Output: 467, ToolCalls: 2},
	},
	{
		name: "Mistral", source: "https://docs.mistral.ai/api/",
		usage: `{"prompt_tokens":13,"total_tokens":447,"completion_tokens":434}`, want: wire.Usage{Input: 13, Output: 434},
	},
	{
		name: "Mistral with audio", source: "https://docs.mistral.ai/capabilities/audio/",
		usage: `{"prompt_audio_seconds":4,"prompt_tokens":4,"total_tokens":635,"completion_tokens":35}`, doubt: true,
		want: wire.Usage{Input: 4, Output: 631, AudioMillis: 4000},
	},
	{
		name: "Groq", source: "https://console.groq.com/docs/api-reference",
		usage: `{"queue_time":0.09,"prompt_tokens":18,"prompt_time":0.01,"completion_tokens":556,"completion_time":0.46,"total_tokens":574,"total_time":0.47}`,
		want:  wire.Usage{Input: 18, Output: 556},
	},
	{
		name: "Groq in its own member", source: "https://github.com/vercel/ai/issues/1651",
		answer: `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.07,"prompt_tokens":23,"completion_tokens":19,"total_tokens":42}}`,
		want:   wire.Usage{Input: 23, Output: 19},
	},
	{
		name: "Moonshot, in its choice", source: "https://github.com/earendil-works/pi/issues/2017",
		answer: `"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1336,"completion_tokens":31,"total_tokens":1367,"prompt_tokens_details":{"cached_tokens":1280}}}],"usage":null`,
		want:   wire.Usage{Input: 1336, CachedInput: 1280, Output: 31},
	},
	{
		name: "Moonshot, cached tokens at the top", source: "https://github.com/Bike4Mind/bike4mind/pull/1089",
		usage: `{"prompt_tokens":2000,"completion_tokens":20,"total_tokens":2020,"cached_tokens":1792}`,
		want:  wire.Usage{Input: 2000, CachedInput: 1792, Output: 20},
	},
	{
		name: "OpenRouter", source: "https://www.openrouter.ai/docs/use-cases/usage-accounting",
		usage: `{"prompt_tokens":14,"completion_tokens":163,"total_tokens":177,"cost":0.00138,"is_byok":false,"prompt_tokens_details":{"cached_tokens":2,"audio_tokens":0},
		"cost_details":{"upstream_inference_cost":null},"completion_tokens_details":{"reasoning_tokens":128,"image_tokens":0}}`,
		want: wire.Usage{Input: 14, CachedInput: 2, Output: 163, Reasoning: 128},
	},
	{
		name: "OpenRouter, fractions", source: "https://github.com/BerriAI/litellm/issues/28024",
		usage: `{"prompt_tokens":57.0,"completion_tokens":14417.92,"total_tokens":14474.92,"cost":0.0387}`,
		want:  wire.Usage{Input: 57, Output: 14418},
	},
	{
		name: "LiteLLM to Anthropic", source: "https://github.com/BerriAI/litellm/issues/11364",
		usage: `{"completion_tokens":9,"prompt_tokens":100,"total_tokens":109,"prompt_tokens_details":{"cached_tokens":50,"cache_creation_tokens":30},
		"cache_creation_input_tokens":30,"cache_read_input_tokens":50}`,
		want: wire.Usage{Input: 100, CachedInput: 50, CacheWrite: 30, Output: 9},
	},
	{
		name: "LiteLLM with searches", source: "https://github.com/BerriAI/litellm/issues/15227",
		usage: `{"prompt_tokens":9548,"completion_tokens":528,"total_tokens":10076,"server_tool_use":{"web_search_requests":2}}`,
		want:  wire.Usage{Input: 9548, Output: 528, ToolCalls: 2},
	},
	{
		name: "LiteLLM to Gemini with searches", source: "https://github.com/BerriAI/litellm/issues/17919",
		usage: `{"prompt_tokens":12,"completion_tokens":8,"total_tokens":20,"prompt_tokens_details":{"web_search_requests":3}}`,
		want:  wire.Usage{Input: 12, Output: 8, ToolCalls: 3},
	},
	{
		name: "Anthropic, the rest of the prompt alone", source: "https://github.com/future-agi/future-agi/pull/1122",
		usage: `{"input_tokens":200,"cache_read_input_tokens":50,"cache_creation_input_tokens":30,"output_tokens":9}`,
		want:  wire.Usage{Input: 280, CachedInput: 50, CacheWrite: 30, Output: 9},
	},
	{
		name: "a gateway to Anthropic, cached tokens above the prompt", source: "https://github.com/openlit/openlit/issues/1378",
		usage: `{"prompt_tokens":14,"completion_tokens":20,"total_tokens":34,"cache_read_input_tokens":6081}`,
		want:  wire.Usage{Input: 6095, CachedInput: 6081, Output: 20},
	},
	{
		name: "a gateway to Anthropic, cached tokens only in the total", source: "https://github.com/Helicone/helicone/pull/4655",
		usage: `{"prompt_tokens":7000,"completion_tokens":20,"total_tokens":13101,"cache_read_input_tokens":6000,"cache_creation_input_tokens":81}`,
		want:  wire.Usage{Input: 13081, CachedInput: 6000, CacheWrite: 81, Output: 20},
	},
	{
		name: "Bedrock", source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html",
		usage: `{"inputTokens":10,"outputTokens":5,"totalTokens":45,"cacheReadInputTokens":20,"cacheWriteInputTokens":10}`,
		want:  wire.Usage{Input: 40, CachedInput: 20, CacheWrite: 10, Output: 5},
	},
	{
		name: "Gemini without output", source: "https://ai.google.dev/gemini-api/docs/openai",
		usage: `{"completion_tokens":0,"prompt_tokens":7,"total_tokens":7}`, want: wire.Usage{Input: 7},
	},
	{
		name: "Gemini that hides its thoughts", source: "https://ai.google.dev/gemini-api/docs/openai", doubt: true,
		usage: `{"completion_tokens":20,"prompt_tokens":7,"total_tokens":127}`, want: wire.Usage{Input: 7, Output: 120},
	},
	{
		name: "Gemini in its own form", source: "https://ai.google.dev/api/generate-content#UsageMetadata",
		answer: `"choices":[],"usageMetadata":{"promptTokenCount":70,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":100,"totalTokenCount":190}`,
		want:   wire.Usage{Input: 70, CachedInput: 60, Output: 120, Reasoning: 100},
	},
	{
		name: "Perplexity", source: "https://github.com/bgeneto/open-webui-cost-tracker/issues/6",
		usage: `{"prompt_tokens":108,"completion_tokens":3256,"total_tokens":3364,"citation_tokens":7299,"num_search_queries":74,"reasoning_tokens":73248}`,
		want:  wire.Usage{Input: 108 + 7299, Output: 3256 + 73248, Reasoning: 73248, ToolCalls: 74},
	},
	{
		name: "vLLM", source: "https://github.com/BerriAI/litellm/issues/22984",
		usage: `{"total_tokens":150687,"prompt_tokens":150383,"completion_tokens":304,"prompt_tokens_details":{"text_tokens":null,"cached_tokens":149936},"completion_tokens_details":{"reasoning_tokens":15}}`,
		want:  wire.Usage{Input: 150383, CachedInput: 149936, Output: 304, Reasoning: 15},
	},
	{
		name: "SGLang", source: "https://github.com/sgl-project/sglang/pull/15562",
		usage: `{"prompt_tokens":12,"total_tokens":320,"completion_tokens":308,"prompt_tokens_details":null,"reasoning_tokens":288}`,
		want:  wire.Usage{Input: 12, Output: 308, Reasoning: 288},
	},
	{
		name: "llama.cpp", source: "https://github.com/ggml-org/llama.cpp/pull/15827",
		answer: `"choices":[],"timings":{"cache_n":236,"prompt_n":1,"prompt_ms":30.958,"predicted_n":35,"predicted_ms":661.064}`,
		want:   wire.Usage{Input: 237, CachedInput: 236, Output: 35},
	},
	{
		name: "Ollama, without a total", source: "https://docs.ollama.com/openai",
		usage: `{"prompt_tokens":9,"completion_tokens":3}`, want: wire.Usage{Input: 9, Output: 3},
	},
	{
		name: "Together", source: "https://docs.together.ai/reference/chat-completions-1",
		usage: `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"cached_tokens":4}`, want: wire.Usage{Input: 9, CachedInput: 4, Output: 3},
	},
	{
		name: "Qwen with searches", source: "https://www.alibabacloud.com/help/en/model-studio/web-search",
		usage: `{"input_tokens":2940,"output_tokens":1,"total_tokens":2941,"plugins":{"search":{"count":1,"strategy":"agent"}},"prompt_tokens_details":{"cached_tokens":0}}`,
		want:  wire.Usage{Input: 2940, Output: 1, ToolCalls: 1},
	},
	{
		name: "Qwen Responses with searches", source: "https://www.alibabacloud.com/help/en/model-studio/web-search",
		usage: `{"input_tokens":2940,"output_tokens":1,"total_tokens":2941,"x_tools":{"web_search":{"count":2}}}`,
		want:  wire.Usage{Input: 2940, Output: 1, ToolCalls: 2},
	},
	{
		name: "Cohere", source: "https://docs.cohere.com/reference/chat",
		usage: `{"billed_units":{"input_tokens":5,"output_tokens":418},"tokens":{"input_tokens":71,"output_tokens":418}}`,
		want:  wire.Usage{Input: 5, Output: 418},
	},
	{
		name: "a gateway that fills the other names with zeros", source: "https://github.com/QuantumNous/new-api/blob/main/dto/openai_response.go",
		usage: `{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"input_tokens":0,"output_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}`,
		want:  wire.Usage{Input: 9, Output: 3},
	},
	{
		name: "numbers as text", source: "https://github.com/Osmantic/ODS/pull/5949",
		usage: `{"prompt_tokens":"100","completion_tokens":"20"}`, want: wire.Usage{Input: 100, Output: 20},
	},
}

// TestUsageOfVendors: each format means the same in a complete answer, in the last chunk of a
// stream and in a final event.
func TestUsageOfVendors(t *testing.T) {
	for _, v := range vendors {
		if !strings.HasPrefix(v.source, "https://") {
			t.Errorf("%s has no source", v.name)
		}
		answer := v.answer
		if answer == "" {
			answer = `"choices":[],"usage":` + v.usage
		}
		plain, ok := wire.ParseUsage(wire.ChatCompletions, []byte(`{"id":"x","model":"m",`+answer+`}`))
		if !ok || plain.Usage != v.want {
			t.Errorf("%s: %+v, want %+v", v.name, plain.Usage, v.want)
		}
		chunk, err := wire.ScanChunk([]byte(`{`+answer+`}`), nil)
		if err != nil || chunk.Usage != v.want {
			t.Errorf("%s in a chunk: %+v, %v, want %+v", v.name, chunk.Usage, err, v.want)
		}
		event, err := wire.ScanEvent(wire.Responses, []byte(`{"type":"response.completed","response":{"id":"r",`+answer+`}}`), nil)
		if err != nil || event.Usage != v.want || !event.Finish {
			t.Errorf("%s in an event: %+v, %v, want %+v", v.name, event.Usage, err, v.want)
		}
		lines, _ := wire.ParseUsage(wire.ChatCompletions, []byte("\xEF\xBB\xBF"+`{"choices":[{"delta":{"content":"hi"}}]}`+"\n"+`{`+answer+"}\n"))
		if lines.Usage != v.want {
			t.Errorf("%s in the last of two lines: %+v, want %+v", v.name, lines.Usage, v.want)
		}
		if (plain.Fault != "") != v.doubt || plain.Hidden != v.doubt {
			t.Errorf("%s: fault %q, hidden %t, want a doubt: %t", v.name, plain.Fault, plain.Hidden, v.doubt)
		}
	}
}

// counts are values that a usage object may have in place of a number.
var counts = []string{
	"0", "1", "7", "100", "1e3", "12.0", "1073741824", "1073741825", "9223372036854775807", "-9223372036854775808", "1e30", "-1", "1.5", `"5"`, "null", "true", "[]", "{}",
}

// hostile returns a usage object with random members.
func hostile(rng *rand.Rand) string {
	one := func() string { return counts[rng.IntN(len(counts))] }
	object := func(names ...string) string {
		var parts []string
		for _, name := range names {
			if rng.IntN(3) > 0 {
				parts = append(parts, fmt.Sprintf("%q:%s", name, one()))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	parts := []string{
		`"prompt_tokens_details":` + object("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "audio_tokens", "image_tokens"),
		`"completion_tokens_details":` + object("reasoning_tokens", "audio_tokens", "image_tokens"),
		`"cache_creation":` + object("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"),
		`"server_tool_use":` + object("web_search_requests"), `"billed_units":` + object("input_tokens", "output_tokens"),
	}
	for _, name := range []string{"prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens", "cache_creation_input_tokens", "cached_tokens", "reasoning_tokens", "citation_tokens", "inputTokens", "cacheReadInputTokens", "seconds"} {
		if rng.IntN(4) > 0 {
			parts = append(parts, fmt.Sprintf("%q:%s", name, one()))
		}
	}
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return "{" + strings.Join(parts, ",") + "}"
}

// TestHostileUsageIsSane: whatever a provider sends, counts are in range and no part is larger than
// its whole.
func TestHostileUsageIsSane(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	billed := 0
	for range 5_000 {
		usage := hostile(rng)
		for _, ep := range []wire.Endpoint{wire.ChatCompletions, wire.Embeddings, wire.Responses} {
			a, ok := wire.ParseUsage(ep, []byte(`{"usage":`+usage+`}`))
			if !ok {
				continue
			}
			billed++
			u := a.Usage
			all := []int64{u.Input, u.CachedInput, u.CacheWrite, u.CacheWrite1h, u.AudioIn, u.ImageIn, u.Output, u.Reasoning, u.AudioOut, u.ImageOut, u.AudioMillis}
			for _, n := range all {
				if n < 0 || n > 1<<30 {
					t.Fatalf("%s of %s: %+v is out of range", usage, ep, u)
				}
			}
			if u.CachedInput+u.CacheWrite+u.CacheWrite1h > u.Input || u.AudioIn > u.Input || u.ImageIn > u.Input ||
				u.Reasoning > u.Output || u.AudioOut > u.Output || u.ImageOut > u.Output {
				t.Fatalf("%s of %s: in %+v a part is larger than its whole", usage, ep, u)
			}
		}
	}
	if billed < 1_500 {
		t.Errorf("%d of 15000 could be billed, want more, or nothing is tried", billed)
	}
}

// TestUsageAtItsBound: even with tokens that are only in the total, a count is at most 2^30.
func TestUsageAtItsBound(t *testing.T) {
	for _, usage := range []string{
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":-9223372036854775808}`,
		`{"prompt_tokens":1,"completion_tokens":1073741824,"total_tokens":1073741824}`,
		`{"prompt_tokens":-5,"completion_tokens":1073741824,"total_tokens":1073741824}`,
		`{"prompt_tokens":1073741824,"completion_tokens":0,"total_tokens":1073741824}`,
		`{"prompt_tokens":-9223372036854775808,"total_tokens":1073741824}`,
		`{"completion_tokens":-9223372036854775808,"total_tokens":9223372036854775807}`,
	} {
		a, _ := wire.ParseUsage(wire.ChatCompletions, []byte(`{"usage":`+usage+`}`))
		for _, n := range []int64{a.Usage.Input, a.Usage.Output} {
			if n < 0 || n > 1<<30 {
				t.Errorf("%s: %+v, want counts from 0 to 2^30", usage, a.Usage)
			}
		}
	}
}

// TestCutAnswers: an answer that is cut off anywhere has no usage to bill, and no reader fails on
// it.
func TestCutAnswers(t *testing.T) {
	for _, v := range vendors {
		if v.usage == "" {
			continue
		}
		whole := `{"id":"x","choices":[{"message":{"content":"\u00e9\ud83d\ude42"}}],"usage":` + v.usage + `}`
		for n := range len(whole) {
			part := []byte(whole[:n])
			if a, ok := wire.ParseUsage(wire.ChatCompletions, part); ok {
				t.Fatalf("%s, cut at %d: %+v", v.name, n, a)
			}
			if c, err := wire.ScanChunk(part, nil); err == nil || c.HasUsage {
				t.Fatalf("%s, a chunk cut at %d: %+v, %v", v.name, n, c, err)
			}
			if c := wire.ParseCreated(wire.ImageGenerations, part); c.HasUsage {
				t.Fatalf("%s, a picture cut at %d: %+v", v.name, n, c)
			}
		}
	}
}

// TestRenamedKeepsTheRest: a renamed response is otherwise the same document.
func TestRenamedKeepsTheRest(t *testing.T) {
	for _, response := range []string{
		`{"id":"resp_a","object":"response","background":false,"output":[{"id":"msg_1","content":[{"text":"\u00e9 \"id\""}]}],"usage":null}`,
		` { "background" : false , "id" : "resp_a" , "n" : 1e2 } `,
	} {
		got := wire.Renamed([]byte(response), `resp_"b"`)
		var was, is map[string]any
		if json.Unmarshal([]byte(response), &was) != nil || json.Unmarshal(got, &is) != nil {
			t.Fatalf("%s became %s", response, got)
		}
		was["id"], was["background"] = `resp_"b"`, true
		if fmt.Sprint(was) != fmt.Sprint(is) {
			t.Errorf("%v, want %v", is, was)
		}
	}
}

// TestNegativeTotalChargesNothing: a negative total adds no tokens to the other counts.
func TestNegativeTotalChargesNothing(t *testing.T) {
	for _, total := range []string{"-1", "-9223372036854775808", "-1e30"} {
		a, ok := wire.ParseUsage(wire.ChatCompletions, []byte(`{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":`+total+`}}`))
		if want := (wire.Usage{Input: 10, Output: 5}); !ok || a.Usage != want {
			t.Errorf("total_tokens %s: %+v, %t, want %+v", total, a.Usage, ok, want)
		}
	}
}
