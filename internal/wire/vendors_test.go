package wire_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
)

// vendors are usage objects in the formats that vendors are known to send, with their meaning.
var vendors = []struct {
	name, usage string
	want        wire.Usage
}{
	{
		"OpenAI", `{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},
		"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`,
		wire.Usage{Input: 19, Output: 10},
	},
	{
		"OpenAI with audio", `{"prompt_tokens":120,"completion_tokens":200,"total_tokens":320,"prompt_tokens_details":{"cached_tokens":64,"audio_tokens":100,"text_tokens":20},
		"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":150,"text_tokens":50}}`,
		wire.Usage{Input: 120, CachedInput: 64, AudioIn: 100, Output: 200, AudioOut: 150},
	},
	{
		"Azure", `{"completion_tokens":5,"completion_tokens_details":null,"prompt_tokens":24,"prompt_tokens_details":null,"total_tokens":29}`,
		wire.Usage{Input: 24, Output: 5},
	},
	{
		"DeepSeek", `{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":24},
		"completion_tokens_details":{"reasoning_tokens":7},"prompt_cache_hit_tokens":24,"prompt_cache_miss_tokens":6}`,
		wire.Usage{Input: 30, CachedInput: 24, Output: 9, Reasoning: 7},
	},
	{
		"xAI", `{"prompt_tokens":12,"completion_tokens":8,"total_tokens":120,"prompt_tokens_details":{"text_tokens":12,"audio_tokens":0,"image_tokens":0,"cached_tokens":4},
		"completion_tokens_details":{"reasoning_tokens":100,"audio_tokens":0},"num_sources_used":0}`,
		wire.Usage{Input: 12, CachedInput: 4, Output: 108, Reasoning: 100},
	},
	{"Mistral", `{"prompt_tokens":13,"total_tokens":447,"completion_tokens":434}`, wire.Usage{Input: 13, Output: 434}},
	{
		"Groq", `{"queue_time":0.09,"prompt_tokens":18,"prompt_time":0.01,"completion_tokens":556,"completion_time":0.46,"total_tokens":574,"total_time":0.47}`,
		wire.Usage{Input: 18, Output: 556},
	},
	{
		"OpenRouter", `{"prompt_tokens":14,"completion_tokens":163,"total_tokens":177,"cost":0.00138,"is_byok":false,"prompt_tokens_details":{"cached_tokens":2,"audio_tokens":0},
		"cost_details":{"upstream_inference_cost":null},"completion_tokens_details":{"reasoning_tokens":128,"image_tokens":0}}`,
		wire.Usage{Input: 14, CachedInput: 2, Output: 163, Reasoning: 128},
	},
	{
		"LiteLLM to Anthropic", `{"completion_tokens":9,"prompt_tokens":100,"total_tokens":109,"prompt_tokens_details":{"cached_tokens":50,"cache_creation_tokens":30},
		"cache_creation_input_tokens":30,"cache_read_input_tokens":50}`,
		wire.Usage{Input: 100, CachedInput: 50, CacheWrite: 30, Output: 9},
	},
	{"Gemini without output", `{"completion_tokens":0,"prompt_tokens":7,"total_tokens":7}`, wire.Usage{Input: 7}},
	{
		"Gemini that hides its thoughts", `{"completion_tokens":20,"prompt_tokens":7,"total_tokens":127}`, wire.Usage{Input: 7, Output: 120},
	},
	{
		"vLLM", `{"prompt_tokens":5,"total_tokens":12,"completion_tokens":7,"prompt_tokens_details":null}`, wire.Usage{Input: 5, Output: 7},
	},
	{
		"names of Responses", `{"input_tokens":36,"input_tokens_details":{"cached_tokens":16},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":123}`,
		wire.Usage{Input: 36, CachedInput: 16, Output: 87, Reasoning: 64},
	},
}

// TestUsageOfVendors: each format means the same in a complete answer, in the last chunk of a
// stream and in a final event.
func TestUsageOfVendors(t *testing.T) {
	for _, v := range vendors {
		plain, ok := wire.ParseUsage(wire.ChatCompletions, []byte(`{"id":"x","model":"m","usage":`+v.usage+`}`))
		if !ok || plain.Usage != v.want {
			t.Errorf("%s: %+v, want %+v", v.name, plain.Usage, v.want)
		}
		chunk, err := wire.ScanChunk([]byte(`{"choices":[],"usage":`+v.usage+`}`), nil)
		if err != nil || chunk.Usage != v.want {
			t.Errorf("%s in a chunk: %+v, %v, want %+v", v.name, chunk.Usage, err, v.want)
		}
		event, err := wire.ScanEvent(wire.Responses, []byte(`{"type":"response.completed","response":{"id":"r","usage":`+v.usage+`}}`), nil)
		if err != nil || event.Usage != v.want || !event.Finish {
			t.Errorf("%s in an event: %+v, %v, want %+v", v.name, event.Usage, err, v.want)
		}
		if doubt := strings.Contains(v.name, "hides"); (plain.Fault != "") != doubt || plain.Hidden != doubt {
			t.Errorf("%s: fault %q, hidden %t, want a doubt: %t", v.name, plain.Fault, plain.Hidden, doubt)
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
	}
	for _, name := range []string{"prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens", "cache_creation_input_tokens", "seconds"} {
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
