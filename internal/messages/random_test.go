package messages_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/wire"
)

// dice makes random messages.
type dice struct{ *rand.Rand }

func (d dice) pick(list ...string) string { return list[d.IntN(len(list))] }

func (d dice) text() string {
	return strings.Repeat(d.pick("a", "é", "\"", "\\", "\n", "😀", " ", "<", "\u2028"), 1+d.IntN(3)) + d.pick("x", "yz")
}

// saidAnswer is what has to survive: texts, calls and usage, and reasoning if the provider's API signed it and gets it back.
type saidAnswer struct {
	Text     string
	Thoughts []string
	Calls    []saidCall
	Used     [6]int
	Stop     string
}

type saidCall struct {
	ID, Name string
	Input    map[string]any
}

// message returns a random message, whole and as a stream.
func (d dice) message() (want saidAnswer, whole, stream string) {
	var content []any
	var list []string
	add := func(e any) {
		text, _ := json.Marshal(e)
		list = append(list, string(text))
	}
	type object = map[string]any
	in, read, short, long, out := d.IntN(100), d.IntN(100), d.IntN(100), d.IntN(100), 1+d.IntN(100)
	thought := d.IntN(out)
	want.Used = [6]int{in, read, short, long, out, thought}
	usage := object{
		"input_tokens": in, "cache_read_input_tokens": read, "cache_creation_input_tokens": short + long,
		"cache_creation": object{"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}, "output_tokens": 1,
	}
	head := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": []any{}, "usage": usage}
	add(object{"type": "message_start", "message": head})
	for index := range d.IntN(6) {
		delta := func(kind, name, text string) {
			for len(text) > 0 {
				n := 1 + d.IntN(len(text))
				for n < len(text) && text[n]&0xc0 == 0x80 {
					n++
				}
				add(object{"type": "content_block_delta", "index": index, "delta": object{"type": kind, name: text[:n]}})
				text = text[n:]
			}
		}
		start := func(block object) { add(object{"type": "content_block_start", "index": index, "content_block": block}) }
		switch d.IntN(4) {
		case 0:
			text := d.text()
			want.Text += text
			start(object{"type": "text", "text": ""})
			delta("text_delta", "text", text)
			content = append(content, object{"type": "text", "text": text})
		case 1:
			text, signature := d.pick("", d.text()), d.text()
			want.Thoughts = append(want.Thoughts, text, signature)
			start(object{"type": "thinking", "thinking": "", "signature": ""})
			delta("thinking_delta", "thinking", text)
			delta("signature_delta", "signature", signature)
			content = append(content, object{"type": "thinking", "thinking": text, "signature": signature})
		case 2:
			block := object{"type": "redacted_thinking", "data": d.text()}
			start(block)
			content = append(content, block)
		case 3:
			call := saidCall{fmt.Sprint("toolu_", index), d.text(), map[string]any{}}
			for range d.IntN(3) {
				call.Input[d.text()] = d.text()
			}
			want.Calls = append(want.Calls, call)
			input, _ := json.Marshal(call.Input)
			start(object{"type": "tool_use", "id": call.ID, "name": call.Name, "input": object{}})
			delta("input_json_delta", "partial_json", string(input))
			content = append(content, object{"type": "tool_use", "id": call.ID, "name": call.Name, "input": call.Input})
		}
		add(object{"type": "content_block_stop", "index": index})
		if d.IntN(3) == 0 {
			add(object{"type": "ping"})
		}
	}
	end := "tool_use"
	if len(want.Calls) == 0 {
		end = "end_turn"
	}
	want.Stop = d.pick(end, end, "max_tokens", "refusal")
	used := object{"output_tokens": out, "output_tokens_details": object{"thinking_tokens": thought}}
	add(object{"type": "message_delta", "delta": object{"stop_reason": want.Stop}, "usage": used})
	add(object{"type": "message_stop"})
	usage["output_tokens"], usage["output_tokens_details"] = out, used["output_tokens_details"]
	head["content"], head["stop_reason"] = append([]any{}, content...), want.Stop
	text, _ := json.Marshal(head)
	return want, string(text), events(list...)
}

// answerOf reads what has to survive from a whole message.
func answerOf(t *testing.T, text string) saidAnswer {
	t.Helper()
	var m struct {
		Content []struct {
			Type, Text, Thinking, Signature, ID, Name string
			Input                                     map[string]any
		}
		StopReason string `json:"stop_reason"`
		Usage      struct {
			Input   int `json:"input_tokens"`
			Read    int `json:"cache_read_input_tokens"`
			Written struct {
				Short int `json:"ephemeral_5m_input_tokens"`
				Long  int `json:"ephemeral_1h_input_tokens"`
			} `json:"cache_creation"`
			Output  int `json:"output_tokens"`
			Details struct {
				Thinking int `json:"thinking_tokens"`
			} `json:"output_tokens_details"`
		}
	}
	decode(t, text, &m)
	u := m.Usage
	got := saidAnswer{Used: [6]int{u.Input, u.Read, u.Written.Short, u.Written.Long, u.Output, u.Details.Thinking}, Stop: m.StopReason}
	for _, b := range m.Content {
		got.Text += b.Text
		if b.Signature != "" {
			got.Thoughts = append(got.Thoughts, b.Thinking, b.Signature)
		}
		if b.Type == "tool_use" {
			got.Calls = append(got.Calls, saidCall{b.ID, b.Name, b.Input})
		}
	}
	return got
}

// collect reads a stream of a wire and writes it as a whole message.
func collect(t *testing.T, stream string, from conversation) string {
	t.Helper()
	r, err := wire.Scan(wire.Messages, []byte(claudeRequest), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w := anthropic.writer(neutral.Reply{Request: r, ID: "id"}, false)
	s := neutral.Stream{From: from.reader(w), To: w}
	for event := range strings.SplitSeq(stream, "\n\n") {
		s.Event([]byte(event))
	}
	s.Close()
	if w.Answer() == nil {
		t.Fatalf("no answer: %s", stream)
	}
	return string(w.Answer())
}

// Text, calls and usage of random answers are the same in every wire, whole or as a stream in pieces of any size, and back
// again.
func TestRandomAnswers(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(randtest.Seed(t), 1))}
	for range randtest.Rounds(300, 100_000) {
		want, whole, stream := d.message()
		check := func(what, got string) {
			t.Helper()
			a, _ := json.Marshal(answerOf(t, got))
			b, _ := json.Marshal(want)
			if string(a) != string(b) {
				t.Fatalf("%s: got %s\nwant %s\nof %s", what, a, b, whole)
			}
		}
		size := 1 + d.IntN(200)
		check("whole", answers(t, whole, claudeRequest, 0, anthropic, anthropic))
		again := answers(t, stream, claudeRequest, size, anthropic, anthropic)
		check("stream", collect(t, again, anthropic))
		sameJSON(t, collect(t, again, anthropic), answers(t, whole, claudeRequest, 0, anthropic, anthropic))
		want.Thoughts = nil
		chat := answers(t, whole, chatRequest, 0, anthropic, openAI)
		check("whole by chat", answers(t, chat, claudeRequest, 0, openAI, anthropic))
		chunks := answers(t, stream, chatRequest, size, anthropic, openAI)
		check("stream by chat", collect(t, chunks, openAI))
		check("stream by chat and back", collect(t, answers(t, chunks, claudeRequest, size, openAI, anthropic), anthropic))
	}
}

// Whatever a caller or a provider sends, nothing panics, and every stream consists of JSON.
func TestRandomNonsense(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(randtest.Seed(t), 2))}
	chat := answers(t, aMessage, chatRequest, 0, anthropic, openAI)
	requests := map[wire.Endpoint][]string{
		wire.Messages: {ask(`"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"document","title":"t","source":{"type":"url","url":"u"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"c","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}]}],
			"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":5},"output_config":{"format":{"type":"json_schema","schema":{}}},"metadata":{"user_id":"u"},"context_management":{"edits":[{"type":"clear_thinking_1"}]}`)},
		wire.ChatCompletions: {converse(`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}},{"type":"file","file":{"file_data":"data:x;base64,AA==","filename":"n"}}]},{"role":"assistant","content":"a","reasoning_details":[{"type":"reasoning.text","text":"t","signature":"s"}],
			"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}},"response_format":{"type":"json_schema","json_schema":{"schema":{}}},"stop":"x"`)},
	}
	wires := []conversation{anthropic, openAI}
	for range randtest.Rounds(2_000, 1_000_000) {
		from, to := wires[d.IntN(2)], wires[d.IntN(2)]
		body := d.spoil(d.pick(requests[from.endpoint]...))
		r, err := wire.Scan(from.endpoint, []byte(body), wire.Limits{})
		if err == nil {
			q, err := from.request(r, neutral.Options{Lacks: to.lacks})
			if err == nil {
				if _, err := to.body(q, neutral.Form{Limit: 1}); err != nil {
					t.Errorf("%v: %s", err, body)
				}
			}
		}
		for _, source := range []conversation{anthropic, openAI} {
			documents := map[wire.Endpoint][]string{
				wire.Messages:        {aMessage, aStream},
				wire.ChatCompletions: {chat, answers(t, aStream, chatRequest, 99, anthropic, openAI)},
			}[source.endpoint]
			d.read(t, d.spoil(documents[0]), d.spoil(documents[1]), source, to)
		}
	}
}

// spoil changes a document at random places, so that it often still is JSON.
func (d dice) spoil(text string) string {
	out := []byte(text)
	for range d.IntN(4) {
		i, j := d.IntN(len(out)), d.IntN(len(out))
		switch d.IntN(4) {
		case 0:
			out[i] = out[j]
		case 1:
			out = slices.Delete(out, i, min(i+d.IntN(20), len(out)))
		case 2:
			out = []byte(strings.Replace(string(out), d.pick(`"text"`, `"content"`, `"type"`, `"tool_use"`, `{`, `"index"`), d.pick(`"thinking"`, `null`, `5`, `"x"`, `[`, `"id"`), 1))
		case 3:
			out = slices.Insert(out, i, out[min(i, j):min(i, j)+d.IntN(5)%(len(out)-min(i, j))]...)
		}
		if len(out) == 0 {
			return "{}"
		}
	}
	return string(out)
}

// read translates an answer, whole and as a stream, whatever it is.
func (d dice) read(t *testing.T, whole, stream string, from, to conversation) {
	t.Helper()
	request := map[wire.Endpoint]string{wire.Messages: claudeRequest, wire.ChatCompletions: chatRequest}[to.endpoint]
	r, err := wire.Scan(to.endpoint, []byte(request), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w := to.writer(neutral.Reply{Request: r}, false)
	out, err := neutral.Whole([]byte(whole), from.reader(w), w)
	if err == nil && !json.Valid(out) {
		t.Errorf("%s became %s", whole, out)
	}
	for event := range strings.SplitSeq(answers(t, stream, request, 1+d.IntN(300), from, to), "\n\n") {
		data := wire.EventData([]byte(event))
		if len(data) > 0 && string(data) != wire.EndMark && !json.Valid(data) {
			t.Errorf("%s became %s", stream, event)
		}
	}
}
