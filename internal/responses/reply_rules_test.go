package responses_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/responses"
)

// The finish_reason determines the status, and the reason if it is incomplete.
func TestHowAnAnswerEnds(t *testing.T) {
	for finish, want := range map[string]string{
		"stop":           `["completed", null, null]`,
		"tool_calls":     `["completed", null, null]`,
		"length":         `["incomplete", {"reason":"max_output_tokens"}, null]`,
		"content_filter": `["incomplete", {"reason":"content_filter"}, null]`,
		"error":          `["failed", null, {"code":"server_error","message":"The provider ended the answer with an error"}]`,
	} {
		r := answerOf(t, `{"content":"a"}`, finish, "")
		checkJSON(t, finish, []any{r["status"], r["incomplete_details"], r["error"]}, want)
		item := r["output"].([]any)[0].(map[string]any)
		wantItem := map[bool]string{true: "completed", false: "incomplete"}[r["status"] == "completed"]
		if item["status"] != wantItem {
			t.Errorf("%s: got an item that is %v, want %s", finish, item["status"], wantItem)
		}
	}
}

// Usage has the names of Responses, with the details that clients rely on.
func TestUsage(t *testing.T) {
	const plain = `"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":7`
	for _, c := range []struct{ chat, want string }{
		{`{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}`, `{` + plain + `}`},
		{`{"prompt_tokens":3,"completion_tokens":4}`, `{` + plain + `}`},
		{`{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":null}`, `{` + plain + `}`},
		{`{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":null}}`, `{` + plain + `}`},
		{
			`{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2,"audio_tokens":1},"completion_tokens_details":{"reasoning_tokens":3}}`,
			`{"input_tokens":3,"input_tokens_details":{"cached_tokens":2,"audio_tokens":1},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":7}`,
		},
		{`{"prompt_tokens":3,"completion_tokens":4,"cost":0.5}`, `{` + plain + `,"cost":0.5}`},
		{`{"prompt_tokens":3}`, `{"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":null,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":null}`},
		{`null`, `null`},
		{`"many"`, `null`},
	} {
		checkJSON(t, c.chat, answerOf(t, `{"content":"a"}`, "stop", `,"usage":`+c.chat)["usage"], c.want)
	}
}

// Each part of an answer becomes an item: reasoning, text, refusals and calls, in this order.
func TestAnswerItems(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{`{"content":"a"}`, "message output_text a"},
		{`{"content":null,"refusal":"no"}`, "message refusal no"},
		{`{"reasoning_content":"hm","content":"a"}`, "reasoning reasoning_text hm, message output_text a"},
		{
			`{"content":"a","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}`,
			"message output_text a, function_call f {}",
		},
		{
			`{"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":{"x":1}}},{"id":"d","function":{"name":"g","arguments":"{}"}}]}`,
			`function_call f {"x":1}, function_call g {}`,
		},
		{`{"content":""}`, "message"},
	} {
		var got []string
		for _, one := range answerOf(t, c.message, "stop", "")["output"].([]any) {
			got = append(got, brief(one.(map[string]any)))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: got %s, want %s", c.message, s, c.want)
		}
	}
}

// brief returns the type and the content of an item.
func brief(item map[string]any) string {
	words := []string{item["type"].(string)}
	if name, ok := item["name"].(string); ok {
		words = append(words, name, item["arguments"].(string))
	}
	content, _ := item["content"].([]any)
	for _, one := range content {
		part := one.(map[string]any)
		text, ok := part["text"].(string)
		if !ok {
			text, _ = part["refusal"].(string)
		}
		words = append(words, part["type"].(string), text)
	}
	return strings.Join(words, " ")
}

// A response repeats the request's settings, with the provider's name of the model.
func TestResponseEchoesTheRequest(t *testing.T) {
	body := `{"model":"m","input":"x","instructions":"i","temperature":0.5,"metadata":{"k":"v"},"max_output_tokens":9,"background":true}`
	chat := `{"model":"m-2026","service_tier":"flex","created":77,"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`
	var final []byte
	text, err := responses.Answer([]byte(chat), neutral.Reply{Request: requestOf(t, body), ID: "resp_9", Final: func(r []byte) { final = r }})
	if err != nil {
		t.Fatal(err)
	}
	r := jsonOf(t, text).(map[string]any)
	for name, want := range map[string]string{
		"id": `"resp_9"`, "object": `"response"`, "created_at": "77", "model": `"m-2026"`, "service_tier": `"flex"`, "instructions": `"i"`,
		"temperature": "0.5", "metadata": `{"k":"v"}`, "max_output_tokens": "9", "background": "true", "error": "null",
	} {
		checkJSON(t, name, r[name], want)
	}
	if string(final) != string(text) {
		t.Errorf("Final: got %s, want %s", final, text)
	}
}

func delta(text string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":%s}]}`, text)
}

const ended = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

// Stream events contain the indexes of their item and content, starting at 0, and the deltas
// add up to what the last events repeat.
func TestStreamPlaces(t *testing.T) {
	events := streamOf(t,
		delta(`{"reasoning_content":"h"}`), delta(`{"reasoning_content":"m"}`), delta(`{"content":"a"}`), delta(`{"content":"b"}`), delta(`{"refusal":"no"}`),
		delta(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`),
		ended, "[DONE]")
	pieces, whole := map[string]string{}, map[string]string{}
	for i, e := range events {
		if e["sequence_number"] != float64(i) {
			t.Errorf("event %d: got number %v", i, e["sequence_number"])
		}
		kind := strings.TrimPrefix(e["type"].(string), "response.")
		place := fmt.Sprint(e["output_index"], "/", e["content_index"])
		name, isDelta := strings.CutSuffix(kind, ".delta")
		if isDelta {
			pieces[place+name] += e["delta"].(string)
		}
		name, isDone := strings.CutSuffix(kind, ".done")
		if isDone && pieces[place+name] != "" {
			for _, field := range []string{"text", "refusal", "arguments"} {
				text, _ := e[field].(string)
				whole[place+name] += text
			}
		}
	}
	want := map[string]string{
		"0/0reasoning_text": "hm", "1/0output_text": "ab", "1/1refusal": "no",
		"2/<nil>function_call_arguments": "{}",
	}
	for place, text := range want {
		if pieces[place] != text || whole[place] != text {
			t.Errorf("%s: got pieces %q and whole %q, want %q", place, pieces[place], whole[place], text)
		}
	}
	if len(pieces) != len(want) {
		t.Errorf("got pieces at %v, want at %v", pieces, want)
	}
}

// Every opened item is closed before the response ends.
func TestStreamClosesWhatItOpens(t *testing.T) {
	events := streamOf(t, delta(`{"content":"a"}`),
		delta(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}`),
		delta(`{"tool_calls":[{"index":1,"id":"d","function":{"name":"g","arguments":"{}"}}]}`), ended, "[DONE]")
	open, items := 0, map[string]bool{}
	for _, e := range events {
		item, _ := e["item"].(map[string]any)
		switch e["type"] {
		case "response.output_item.added":
			open++
			items[item["id"].(string)] = true
		case "response.output_item.done":
			open--
			if !items[item["id"].(string)] || item["status"] != "completed" {
				t.Errorf("got %v done, want an item that was added", item)
			}
		}
		if open < 0 || open > 1 {
			t.Errorf("got %d items open at %v, want one at a time", open, e["type"])
		}
	}
	last := events[len(events)-1]
	if open != 0 || len(items) != 3 || last["type"] != "response.completed" {
		t.Errorf("got %d open of %d, last %v", open, len(items), last["type"])
	}
}

// The caller's input is stored as items with ids, which later calls can reference.
func TestInputItemsHaveIDs(t *testing.T) {
	items := map[string][]byte{"msg_9": []byte(`{"id":"msg_9","type":"message","role":"user","content":"kept"}`)}
	list := responses.InputItems(requestOf(t,
		`{"model":"m","input":[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_9"},{"type":"function_call_output","call_id":"c","output":"o"},{"id":"msg_3","type":null,"role":"user","content":"b"}]}`), items)
	got := jsonOf(t, list).([]any)
	for i, want := range [][2]string{
		{"msg_", "message"}, {"msg_9", "message"}, {"fco_", "function_call_output"}, {"msg_3", "message"},
	} {
		item := got[i].(map[string]any)
		id := item["id"].(string)
		if !strings.HasPrefix(id, want[0]) || item["type"] != want[1] || responses.Item(list, id) == nil {
			t.Errorf("item %d: got %v, want %s and an id that begins with %s and can be found", i, item, want[1], want[0])
		}
	}
	text := responses.InputItems(requestOf(t, `{"model":"m","input":"hi"}`), nil)
	if !strings.Contains(string(text), `{"type":"input_text","text":"hi"}`) || responses.ItemID(text[1:len(text)-1]) == "" {
		t.Errorf("got %s, want one item with an id", text)
	}
	if responses.Item(list, "msg_0") != nil {
		t.Error("found an item of no such id")
	}
	response := []byte(`{"id":"resp_1","output":[{"id":"msg_5","type":"message"}]}`)
	if out := responses.Output(response); responses.ItemID(responses.Item(out, "msg_5")) != "msg_5" {
		t.Errorf("got output %s, want the item msg_5", out)
	}
	if out := responses.Output([]byte(`{}`)); out != nil {
		t.Errorf("got output %s, want none", out)
	}
}

// Ids have OpenAI's format and do not repeat.
func TestNewIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := neutral.NewID("resp_")
		if len(id) != len("resp_")+48 || strings.Trim(id[5:], "0123456789abcdef") != "" || seen[id] {
			t.Fatalf("got %s, want resp_ and 48 hexadecimal digits, new", id)
		}
		seen[id] = true
	}
}
