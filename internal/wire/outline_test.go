package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// outlineOf writes a text in pieces of the given size.
func outlineOf(text string, size int) []byte {
	var o Outline
	for len(text) > 0 {
		n := min(size, len(text))
		_, _ = o.Write([]byte(text[:n]))
		text = text[n:]
	}
	return o.Bytes()
}

// TestOutlineReadsAlike: an outline is billed like the whole answer, in whatever pieces it arrives,
// and is small.
func TestOutlineReadsAlike(t *testing.T) {
	long := strings.Repeat(`x\"usage\":{\"total_tokens\":9},\\`, 10_000)
	numbers := strings.Repeat("0.25,-1e-5, 3 ,", 10_000) + "1"
	const usage = `"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"cost":0.25,"cost_details":{"x":[1,2]}}`
	for ep, text := range map[Endpoint]string{
		ChatCompletions: `{"id":"x","model":"gpt-4o","choices":[{"index":0,"message":{"content":"` + long + `"}}],` + usage + `}`,
		Embeddings:      `{"object":"list","data":[{"embedding":[` + numbers + `]},{"embedding":[]}],"model":"e",` + usage + `}`,
		Responses: `{"id":"resp_1","output":[{"type":"web_search_call","id":"ws_1"},{"type":"message","id":"msg_1","content":[{"text":"` + long +
			`"}]}],"metadata":{"usage":"` + long + `"},` + usage + `,"model":"m","service_tier":"flex","status":"completed"}`,
		ImageGenerations: `{"created":1,"size":"1024x1024","data":[{"b64_json":"` + long + `"},{"b64_json":"` + long + `"}, null,7],` + usage + `,"quality":"low"}`,
	} {
		for _, size := range []int{1, 7, 4096} {
			got := outlineOf(text, size)
			if len(got) > 4096 || !json.Valid(got) {
				t.Fatalf("%s: an outline of %d bytes: %.1000s", ep, len(got), got)
			}
			if ep == ImageGenerations { // its list has only pictures, if it is a list
				text = strings.Replace(text, ", null,7]", "]", 1)
				if got, want := ParseCreated(ep, got), ParseCreated(ep, []byte(text)); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %+v, want %+v", ep, got, want)
				}
				continue
			}
			have, _ := ParseUsage(ep, got)
			want, ok := ParseUsage(ep, []byte(text))
			if !ok || !reflect.DeepEqual(have, want) {
				t.Errorf("%s: %+v, want %+v", ep, have, want)
			}
		}
	}
}

// TestOutlineIsBounded: input that never ends or is not JSON is kept within the bound, and an id
// before it is read.
func TestOutlineIsBounded(t *testing.T) {
	for _, text := range []string{
		`{"id":"resp_1","output":` + strings.Repeat("[", 1_000_000), `{"id":"resp_1","x":` + strings.Repeat(`{"a":1,`, 1_000_000),
		`{"id":"resp_1"` + strings.Repeat("}", 1_000_000), `{"id":"resp_1","x":` + strings.Repeat("9", 1_000_000),
		`{"id":"resp_1","x":"` + strings.Repeat("x", 1_000_000),
	} {
		var o Outline
		_, _ = o.Write([]byte(text))
		a, ok := ParseUsage(Responses, o.Bytes())
		if len(o.Bytes()) > outlineMost || a.ID != "resp_1" || ok {
			t.Errorf("%.30s: %d bytes, %+v", text, len(o.Bytes()), a)
		}
	}
}

// FuzzOutline: an answer without usage has none in its outline.
func FuzzOutline(f *testing.F) {
	f.Add([]byte(`{"id":"a","data":[1,"b",{"c":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if len(text) > outlineString || !json.Valid(text) {
			return
		}
		got := outlineOf(string(text), max(size, 1))
		have, _ := ParseUsage(Responses, got)
		want, _ := ParseUsage(Responses, text)
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %s: %+v, want %+v", text, got, have, want)
		}
	})
}
