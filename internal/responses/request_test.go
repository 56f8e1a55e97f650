package responses

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

func scan(t testing.TB, body string) *wire.Request {
	t.Helper()
	r, err := wire.Scan(wire.Responses, []byte(body), wire.Limits{})
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return r
}

// sameJSON compares two JSON documents.
func sameJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRequest(t *testing.T) {
	f := func(name, body, want string) {
		t.Run(name, func(t *testing.T) {
			got, err := ChatRequest(scan(t, body), neutral.Options{}, "max_tokens")
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, got, want)
			if _, err := wire.Scan(wire.ChatCompletions, got, wire.Limits{}); err != nil {
				t.Errorf("our own scanner refuses it: %v", err)
			}
		})
	}
	f("text", `{"model":"m","input":"hi","store":false,"metadata":{"a":"b"}}`, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	f("escapes", `{"model":"m","input":"\u00e9 \"\n\ud83d\ude00"}`, `{"model":"m","messages":[{"role":"user","content":"é \"\n😀"}]}`)
	f("instructions", `{"model":"m","instructions":"be kind","input":[{"role":"developer","content":"d"},{"role":"user","content":"u"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"system","content":"d"},{"role":"user","content":"u"}]}`)
	f("parts become one text", `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
		{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"c","annotations":[]},{"type":"refusal","refusal":"d"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a\nb"},{"role":"assistant","content":"cd"}]}`)
	f("picture", `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"what"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}]}]}`)
	f("picture alone", `{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x/y.png"}]},{"role":"user","content":[{"type":"input_file","file_data":"data:,x","filename":null}]},{"role":"user","content":[]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]},{"role":"user","content":[{"type":"file","file":{"file_data":"data:,x"}}]},{"role":"user","content":""}]}`)
	f("mode of choice", `{"model":"m","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":"required"}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"}`)
	f("file and sound", `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="}},{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}]}]}`)
	f("calls", `{"model":"m","input":[{"role":"user","content":"w"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},
		{"type":"message","role":"assistant","content":"let me see"},{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{\"a\":1}"},
		{"type":"function_call_output","call_id":"c1","output":"one"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"w"},{"role":"assistant","content":"let me see","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"two"}]}`)
	f("call alone", `{"model":"m","input":[{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"one"},{"type":"function_call","call_id":"c2","name":"f","arguments":"{}"}]}`,
		`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"one"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`)
	f("tools", `{"model":"m","input":"x","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g","parameters":null,"strict":false}],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false}`)
	f("the rest", `{"model":"m","input":"x","reasoning":{"effort":"low","summary":"auto"},"max_output_tokens":7,"temperature":0.5,"top_p":1e-1,"stream":true,"user":"u","service_tier":"flex","truncation":"disabled","include":["reasoning.encrypted_content"],"stream_options":{"include_obfuscation":false},"top_k":5}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"reasoning_effort":"low","max_tokens":7,"temperature":0.5,"top_p":1e-1,"stream":true,"user":"u","service_tier":"flex","top_k":5}`)
}

// TestValuesAreKept: no digit and no escape is lost in either direction.
func TestValuesAreKept(t *testing.T) {
	values := []string{`"\ud83d\ude00\u00e9\/"`, "9007199254740993", "1e400", `{"b":0.10,"a":{"x":[1.0]}}`}
	body, err := ChatRequest(scan(t, `{"model":"m","input":`+values[0]+`,"random_seed":`+values[1]+`,"top_k":`+values[2]+
		`,"tools":[{"type":"function","name":"f","parameters":`+values[3]+`}]}`), neutral.Options{}, "max_tokens")
	checkHolds(t, body, err, values)
	body, err = Answer([]byte(`{"choices":[{"message":{"content":`+values[0]+`}}],"usage":{"prompt_tokens":`+values[1]+
		`,"completion_tokens":`+values[2]+`,"cost":`+values[3]+`}}`), neutral.Reply{Request: scan(t, `{"model":"m","input":"x"}`)})
	checkHolds(t, body, err, values)
}

func checkHolds(t *testing.T, body []byte, err error, values []string) {
	t.Helper()
	for _, v := range values {
		if err != nil || !bytes.Contains(body, []byte(v)) {
			t.Errorf("%v: %s is not in %s", err, v, body)
		}
	}
}

// TestRequestGoesOn: earlier turns come first, and references are replaced by their items.
func TestRequestGoesOn(t *testing.T) {
	got, err := ChatRequest(scan(t, `{"model":"m","instructions":"i","input":[{"type":"item_reference","id":"msg_9"},{"id":"rs_1","type":"item_reference"},{"role":"user","content":"third"}],"previous_response_id":"resp_2"}`), neutral.Options{
		Turns: []neutral.Turn{
			{Input: []byte(`[{"id":"msg_1","type":"message","role":"user","content":[{"type":"input_text","text":"first"}]}]`), Output: []byte(`[{"type":"reasoning","id":"rs_1"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]`)},
			{Input: []byte(`[{"type":"function_call_output","call_id":"c","output":"o"}]`), Output: []byte(`[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"second"}]}]`)},
		},
		Items: map[string][]byte{"msg_9": []byte(`{"id":"msg_9","type":"message","role":"assistant","content":"between"}`), "rs_1": []byte(`{"id":"rs_1","type":"reasoning"}`)},
	}, "max_tokens")
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, got, `{"model":"m","messages":[{"role":"system","content":"i"},{"role":"user","content":"first"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"o"},
		{"role":"assistant","content":"second"},{"role":"assistant","content":"between"},{"role":"user","content":"third"}]}`)
}

// TestRequestCopies: translating a long prompt uses its memory only once.
func TestRequestCopies(t *testing.T) {
	body := `{"model":"m","input":[{"role":"user","content":"` + strings.Repeat("word ", 40_000) + `"}]}`
	r := scan(t, body)
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := ChatRequest(r, neutral.Options{}, "max_tokens"); err != nil {
				b.Fatal(err)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n > int64(2*len(body)) {
		t.Errorf("%d bytes for a request of %d", n, len(body))
	}
}

// TestNamespaces: functions in a namespace have the names of both at the provider, and their own in answers.
func TestNamespaces(t *testing.T) {
	r := scan(t, `{"model":"m","input":[{"type":"function_call","call_id":"c0","namespace":"crm","name":"find","arguments":"{}"},`+
		`{"type":"function_call_output","call_id":"c0","output":"x"}],"tools":[{"type":"namespace","name":"crm","description":"d",`+
		`"tools":[{"type":"function","name":"find","parameters":{"type":"object"}}]},{"type":"function","name":"find"}]}`)
	body, err := ChatRequest(r, neutral.Options{}, "max_tokens")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"function":{"name":"crm__find","arguments":"{}"}`, `"name":"crm__find","parameters":{"type":"object"}`, `{"name":"find"}`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s lacks %s", body, want)
		}
	}
	answer, err := Answer([]byte(`{"choices":[{"message":{"tool_calls":[{"id":"c1","type":"function","function":{"name":"crm__find","arguments":"{}"}},`+
		`{"id":"c2","type":"function","function":{"name":"find","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`), neutral.Reply{Request: r, ID: "r"})
	for _, want := range []string{`"call_id":"c1","name":"find","namespace":"crm","arguments":"{}"`, `"call_id":"c2","name":"find","arguments":"{}"`} {
		if err != nil || !strings.Contains(string(answer), want) {
			t.Errorf("%s lacks %s: %v", answer, want, err)
		}
	}
	_, err = ChatRequest(scan(t, `{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"f"}]}]}`), neutral.Options{}, "max_tokens")
	if err == nil || !strings.Contains(err.Error(), `The tool type "custom"`) {
		t.Errorf("got %v", err)
	}
}
