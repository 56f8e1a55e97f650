package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// event is one event of our stream.
type sentEvent struct {
	kind string
	data map[string]any
}

// follow translates a chat stream to its end, and checks what all streams have in common: sentEvent
// names, and numbers without gaps.
func follow(t testing.TB, src io.Reader, r neutral.Reply) ([]sentEvent, error) {
	t.Helper()
	text, err := io.ReadAll(Stream(src, r))
	var list []sentEvent
	for block := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n\n"), "\n\n") {
		if block == "" {
			continue
		}
		name, data, ok := strings.Cut(block, "\ndata: ")
		var e sentEvent
		if !ok || json.Unmarshal([]byte(data), &e.data) != nil {
			t.Fatalf("not an event: %q", block)
		}
		if e.kind = strings.TrimPrefix(name, "event: "); e.kind != e.data["type"] || e.data["sequence_number"] != float64(len(list)) {
			t.Errorf("event %d is %s", len(list), block)
		}
		list = append(list, e)
	}
	return list, err
}

func kinds(list []sentEvent) string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = strings.TrimPrefix(e.kind, "response.")
	}
	return strings.Join(names, " ")
}

// chunks returns a chat stream of deltas, followed by a finish_reason and usage if reason is
// not empty.
func chunks(reason string, deltas ...string) string {
	var b strings.Builder
	b.WriteString(": a comment\n\n")
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: {\"id\":\"x\",\"created\":77,\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}],\"usage\":null}\n\n", d)
	}
	if reason != "" {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", reason)
		b.WriteString("data: {\"service_tier\":\"flex\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\ndata: [DONE]\n\n")
	}
	return b.String()
}

const begun = "created in_progress "

func TestStream(t *testing.T) {
	const message, said = "output_item.added content_part.added ", "output_text.done content_part.done output_item.done "
	reply := neutral.Reply{Request: scan(t, `{"model":"m","input":"x","instructions":"i","metadata":{"k":"v"}}`), ID: "resp_1"}
	f := func(name, stream, want, output string) {
		t.Run(name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
				list, err := follow(t, src, reply)
				if err != nil || kinds(list) != begun+want {
					t.Fatalf("%v\ngot  %s\nwant %s", err, kinds(list), begun+want)
				}
				last := list[len(list)-1].data
				response, _ := last["response"].(map[string]any)
				if response == nil {
					return
				}
				text, _ := json.Marshal(response["output"])
				for _, item := range response["output"].([]any) {
					id := item.(map[string]any)["id"].(string)
					text = bytes.ReplaceAll(text, []byte(id), []byte("ID"))
				}
				if string(text) != output {
					t.Errorf("got  %s\nwant %s", text, output)
				}
				if response["id"] != "resp_1" || response["created_at"] != 77.0 || response["model"] != "m-1" || response["instructions"] != "i" {
					t.Errorf("%v", response)
				}
			}
		})
	}
	const text = `[{"content":[{"annotations":[],"logprobs":[],"text":"Hé\"llo","type":"output_text"}],"id":"ID","role":"assistant","status":"%s","type":"message"}]`
	deltas := []string{`{"role":"assistant","content":""}`, `{"content":"H\u00e9\""}`, `{"content":"llo"}`}
	f("text", chunks("stop", deltas...), message+"output_text.delta output_text.delta "+said+"completed", fmt.Sprintf(text, "completed"))
	f("cut short", chunks("length", deltas...), message+"output_text.delta output_text.delta "+said+"incomplete", fmt.Sprintf(text, "incomplete"))
	f("filtered", chunks("content_filter", deltas...), message+"output_text.delta output_text.delta "+said+"incomplete", fmt.Sprintf(text, "incomplete"))
	f("failed", chunks("error", deltas...), message+"output_text.delta output_text.delta "+said+"failed", fmt.Sprintf(text, "incomplete"))
	f("no done", strings.TrimSuffix(chunks("stop", deltas...), "data: [DONE]\n\n"), message+"output_text.delta output_text.delta "+said+"completed", fmt.Sprintf(text, "completed"))
	f("nothing", chunks("stop", `{"role":"assistant"}`), "output_item.added output_item.done completed", `[{"content":[],"id":"ID","role":"assistant","status":"completed","type":"message"}]`)
	f("refusal", chunks("stop", `{"refusal":"no"}`), message+"refusal.delta refusal.done content_part.done output_item.done completed",
		`[{"content":[{"refusal":"no","type":"refusal"}],"id":"ID","role":"assistant","status":"completed","type":"message"}]`)
	f("reasoning", chunks("stop", `{"reasoning_content":"hm","reasoning":"hm","content":null}`, `{"content":"ok"}`),
		message+"reasoning_text.delta reasoning_text.done content_part.done output_item.done "+message+"output_text.delta "+said+"completed",
		`[{"content":[{"text":"hm","type":"reasoning_text"}],"id":"ID","status":"completed","summary":[],"type":"reasoning"},{"content":[{"annotations":[],"logprobs":[],"text":"ok","type":"output_text"}],"id":"ID","role":"assistant","status":"completed","type":"message"}]`)
	f("mistral's thoughts", chunks("stop", `{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`, `{"content":[{"type":"text","text":"ok"}]}`),
		message+"reasoning_text.delta reasoning_text.done content_part.done output_item.done "+message+"output_text.delta "+said+"completed",
		`[{"content":[{"text":"hm","type":"reasoning_text"}],"id":"ID","status":"completed","summary":[],"type":"reasoning"},{"content":[{"annotations":[],"logprobs":[],"text":"ok","type":"output_text"}],"id":"ID","role":"assistant","status":"completed","type":"message"}]`)
	const fc = `{"arguments":"%s","call_id":"%s","id":"ID","name":"%s","status":"completed","type":"function_call"}`
	const done = "function_call_arguments.done output_item.done "
	two := "output_item.added function_call_arguments.delta function_call_arguments.delta " + done
	f("calls", chunks("tool_calls",
		`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`, `{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}]}`, `{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}`),
		two+two+"completed", "["+fmt.Sprintf(fc, `{\"a\":1}`, "c1", "f")+","+fmt.Sprintf(fc, "{}", "c2", "g")+"]")
	one := "output_item.added function_call_arguments.delta " + done
	f("all calls are number 0", chunks("tool_calls", `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`, `{"tool_calls":[{"index":0,"id":"c2","function":{"name":"f","arguments":"{}"}}]}`),
		one+one+"completed", "["+fmt.Sprintf(fc, "{}", "c1", "f")+","+fmt.Sprintf(fc, "{}", "c2", "f")+"]")
	f("every piece has an id", chunks("tool_calls", `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f"}}]}`, `{"tool_calls":[{"index":0,"id":"c2","function":{"arguments":"{"}}]}`, `{"tool_calls":[{"index":0,"id":"c3","function":{"arguments":"}"}}]}`),
		two+"completed", "["+fmt.Sprintf(fc, "{}", "c1", "f")+"]")
	f("no index", chunks("tool_calls", `{"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{"}}]}`, `{"tool_calls":[{"function":{"arguments":"}"}}]}`),
		two+"completed", "["+fmt.Sprintf(fc, "{}", "c1", "f")+"]")
	f("talks and calls", chunks("tool_calls", `{"content":"so"}`, `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`),
		message+"output_text.delta "+said+one+"completed",
		`[{"content":[{"annotations":[],"logprobs":[],"text":"so","type":"output_text"}],"id":"ID","role":"assistant","status":"completed","type":"message"},`+fmt.Sprintf(fc, "{}", "c1", "f")+"]")
	f("an error", chunks("", deltas...)+"data: {\"error\":{\"message\":\"sorry\",\"code\":\"c\",\"type\":\"t\"}}\n\ndata: [DONE]\n\n", message+"output_text.delta output_text.delta error", "")
	f("breaks off", chunks("", deltas...), message+"output_text.delta output_text.delta", "")
	f("a call goes on too late", chunks("tool_calls", `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{"}},{"index":0,"function":{"arguments":"}"}},{"index":2,"id":"c3","function":{"name":"h","arguments":"{}"}}]}`),
		"output_item.added function_call_arguments.delta "+done+"output_item.added function_call_arguments.delta error", "")
}

// TestStreamTells checks the last sentEvent, and the event before the first text.
func TestStreamTells(t *testing.T) {
	var final []byte
	list, err := follow(t, strings.NewReader(chunks("length", `{"content":"a"}`)), neutral.Reply{
		Request: scan(t, `{"model":"m","input":"x","background":true,"service_tier":"auto"}`), ID: "resp_1",
		Final: func(response []byte) { final = bytes.Clone(response) },
	})
	if err != nil {
		t.Fatal(err)
	}
	added, delta, last := list[2].data, list[4].data, list[len(list)-1].data
	if delta["item_id"] != added["item"].(map[string]any)["id"] || delta["output_index"] != 0.0 || delta["content_index"] != 0.0 || delta["delta"] != "a" {
		t.Errorf("%v", delta)
	}
	response := last["response"].(map[string]any)
	if response["background"] != true || response["service_tier"] != "flex" || fmt.Sprint(response["incomplete_details"]) != "map[reason:max_output_tokens]" {
		t.Errorf("%v", response)
	}
	sameJSON(t, mustJSON(response["usage"]), `{"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7}`)
	sameJSON(t, final, string(mustJSON(response)))
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// TestStreamBreaks: an error of the source is returned, after everything that it delivered.
func TestStreamBreaks(t *testing.T) {
	broken := errors.New("reset")
	list, err := follow(t, io.MultiReader(strings.NewReader(chunks("", `{"content":"a"}`)), iotest.ErrReader(broken)), neutral.Reply{Request: scan(t, `{"model":"m","input":"x"}`), ID: "r"})
	if !errors.Is(err, broken) || kinds(list) != begun+"output_item.added content_part.added output_text.delta" {
		t.Errorf("%v after %s", err, kinds(list))
	}
}

// TestStreamBounded: an endless answer ends with an error before the last event becomes too
// large to relay, also if it consists of calls or parts that have hardly any text.
func TestStreamBounded(t *testing.T) {
	var calls strings.Builder
	for i := range 7_000 {
		calls.WriteString(chunks("", fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"name":"%01000d"}}]}`, i, i)))
	}
	long := chunks("", `{"content":"`+strings.Repeat("x", 100_000)+`"}`)
	for name, text := range map[string]string{"text": strings.Repeat(long, 100), "calls": calls.String(), "parts": strings.Repeat(chunks("", `{"content":"a","refusal":"b"}`), 13_000)} {
		src := strings.NewReader(text)
		list, err := follow(t, src, neutral.Reply{Request: scan(t, `{"model":"m","input":"x"}`), ID: "r"})
		if err != nil || list[len(list)-1].kind != "error" || name == "text" && src.Len() == 0 {
			t.Errorf("%s: %v after %d events, the last %s; %d bytes left", name, err, len(list), list[len(list)-1].kind, src.Len())
		}
	}
}

func TestAnswer(t *testing.T) {
	reply := neutral.Reply{Request: scan(t, `{"model":"m","input":"x"}`), ID: "resp_1"}
	f := func(chat, want string) {
		t.Helper()
		got, err := Answer([]byte(chat), reply)
		if err != nil {
			t.Fatalf("%v: %s", err, chat)
		}
		var response struct {
			Status, Model string
			Output        []map[string]any
			Usage         json.RawMessage
		}
		if err := json.Unmarshal(got, &response); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		for _, item := range response.Output {
			delete(item, "id")
			if id, _ := item["call_id"].(string); strings.HasPrefix(id, "call_") {
				item["call_id"] = "ANY"
			}
		}
		sameJSON(t, mustJSON([]any{response.Status, response.Model, response.Output, response.Usage}), want)
	}
	f(`{"id":"x","object":"chat.completion","created":5,"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null,"annotations":[]},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1,"audio_tokens":0},"completion_tokens_details":null}}`,
		`["completed","m-1",[{"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}],
		{"input_tokens":1,"input_tokens_details":{"cached_tokens":1,"audio_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3}]`)
	f(`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"","function":{"name":"g","arguments":{"a":1}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_cache_hit_tokens":1}}`,
		`["completed","m",[{"type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call","status":"completed","call_id":"ANY","name":"g","arguments":"{\"a\":1}"}],
		{"input_tokens":1,"input_tokens_details":{"cached_tokens":1},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3,"prompt_cache_hit_tokens":1}]`)
	f(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":2}}]}`,
		`["completed","m",[{"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}],
		{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":3}]`)
	f(`{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, `["completed","m",[{"type":"message","status":"completed","role":"assistant","content":[]}],null]`)
	for _, chat := range []string{``, `null`, `"x"`, `{}`, `{"choices":null}`, `{"choices":[`, `[]`, `{"choices":[]`, `{"object":"x"}`, `{"error":{"message":"no"}}`, `{"choices":[{"message":{"content":"` + strings.Repeat("x", maxText+1) + `"}}]}`} {
		kept := false
		reply.Final = func([]byte) { kept = true }
		if got, err := Answer([]byte(chat), reply); err == nil || kept {
			t.Errorf("%.50s became %.50s, kept: %v", chat, got, kept)
		}
	}
}

// FuzzStream: whatever a provider sends, the output consists of JSON events with consecutive
// numbers, and never ends twice.
func FuzzStream(f *testing.F) {
	f.Add([]byte(chunks("stop", `{"content":"a"}`)))
	f.Add([]byte(chunks("tool_calls", `{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`)))
	f.Add([]byte("data: {\"error\":\"x\"}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":[{\"thinking\":[{}]}],\"tool_calls\":[null,{\"function\":null}]}}]}\n\n"))
	request := scan(f, `{"model":"m","input":"x"}`)
	f.Fuzz(func(t *testing.T, stream []byte) {
		if !json.Valid(stream) && bytes.ContainsAny(stream, "\xff") {
			return // invalid UTF-8 is passed through unchanged
		}
		list, _ := follow(t, bytes.NewReader(stream), neutral.Reply{Request: request, ID: "r"})
		ends := 0
		for _, e := range list {
			if _, err := wire.ScanEvent(wire.Responses, mustJSON(e.data), nil); err != nil {
				t.Errorf("%v", err)
			}
			switch e.kind {
			case "response.completed", "response.incomplete", "response.failed", "error":
				ends++
			}
		}
		if ends > 1 {
			t.Errorf("%d ends: %s", ends, kinds(list))
		}
	})
}

func BenchmarkStream(b *testing.B) {
	text := chunks("stop", strings.Split(strings.Repeat(`{"content":" word"}`+"\x00", 1000)+`{"content":"."}`, "\x00")...)
	reply := neutral.Reply{Request: scan(b, `{"model":"m","input":"x"}`), ID: "r"}
	buf := make([]byte, 32<<10)
	b.ReportAllocs()
	for b.Loop() {
		s := Stream(strings.NewReader(text), reply)
		for {
			if _, err := s.Read(buf); err != nil {
				break
			}
		}
	}
}
