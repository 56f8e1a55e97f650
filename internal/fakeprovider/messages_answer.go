package fakeprovider

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// searchTokens are the input tokens that the results of one web search add.
const searchTokens = 500

// claudeInput sets the input of an answer by class, what it searched for, and who else was asked.
func (s *Server) claudeInput(q *Request, b *Behaviour, a *answer) {
	a.id = "msg_" + strings.TrimPrefix(a.id, "chatcmpl-")
	in := s.cache.use(q.Model+q.claude.Speed, q.claude.prompt, s.now(), true)
	if b.Cached != 0 {
		in.Cached, in.CacheWrite, in.CacheWrite1h = min(max(b.Cached, 0), in.Prompt), 0, 0
	}
	q.claude.Speed, q.claude.Geo = cmp.Or(b.Speed, q.claude.Speed), cmp.Or(b.Geo, q.claude.Geo)
	in.Completion, in.Reasoning = a.usage.Completion, a.usage.Reasoning
	if b.Tools >= 0 {
		in.Searches = min(int64(max(b.Tools, 1)), q.claude.searches)
	}
	for _, entry := range b.Iterations {
		kind, model, _ := strings.Cut(entry, ":")
		other := Charge{Type: kind, Model: model, Usage: Usage{Prompt: in.Prompt, Completion: 150}}
		switch kind {
		case "message":
			continue
		case "compaction":
			other.Model = q.Model
		case "fallback_message": // the model that was asked for has declined
			other, a.model, a.fallback = Charge{Type: "message", Model: q.Model, Usage: other.Usage}, model, true
		}
		a.others = append(a.others, other)
	}
	in.Prompt += searchTokens * in.Searches
	a.usage = in
}

// claudeCounts returns the counts of tokens that the usage and each iteration have.
func claudeCounts(u Usage) map[string]any {
	return map[string]any{
		"input_tokens":                u.Prompt - u.Cached - u.CacheWrite - u.CacheWrite1h,
		"cache_creation_input_tokens": u.CacheWrite + u.CacheWrite1h, "cache_read_input_tokens": u.Cached,
		"cache_creation": map[string]any{
			"ephemeral_5m_input_tokens": u.CacheWrite, "ephemeral_1h_input_tokens": u.CacheWrite1h,
		},
		"output_tokens": u.Completion,
	}
}

// claudeUsage returns the usage of an answer so far. Without the details, it is the usage at the
// end of a stream.
func (x *exchange) claudeUsage(a *answer, u Usage, details bool) map[string]any {
	doc := claudeCounts(u)
	if details {
		doc["service_tier"], doc["speed"], doc["inference_geo"] = a.tier, x.q.claude.Speed, x.q.claude.Geo
	} else {
		delete(doc, "cache_creation")
	}
	doc["output_tokens_details"] = map[string]any{"thinking_tokens": u.Reasoning}
	doc["server_tool_use"] = map[string]any{"web_search_requests": u.Searches, "web_fetch_requests": int64(0)}
	if len(x.b.Iterations) > 0 {
		doc["iterations"] = a.iterations(u)
	}
	return doc
}

// iterations returns all samplings; the last is the answer's own.
func (a *answer) iterations(u Usage) []any {
	own, list := "message", []any{}
	if a.fallback {
		own = "fallback_message"
	}
	for _, c := range append(a.others, Charge{Type: own, Model: a.model, Usage: u}) {
		entry := claudeCounts(c.Usage)
		entry["type"] = c.Type
		if c.Type != "compaction" {
			entry["model"] = c.Model
		}
		list = append(list, entry)
	}
	return list
}

// claudeMessage returns an answer with this content and usage.
func (x *exchange) claudeMessage(a *answer, content []map[string]any, u Usage) map[string]any {
	body := map[string]any{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content, "container": nil,
		"stop_reason": nil, "stop_sequence": nil, "stop_details": nil,
	}
	x.addUsage(body, x.claudeUsage(a, u, true))
	return body
}

// claudeStops are Anthropic's words for why an answer ended; others are those of a behavior.
var claudeStops = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

func (c *choice) claudeStop() map[string]any {
	reason, details := cmp.Or(claudeStops[c.finish], c.finish), map[string]any(nil)
	if reason == "refusal" {
		details = map[string]any{"type": "refusal", "category": nil, "explanation": nil}
	}
	return map[string]any{"stop_reason": reason, "stop_sequence": nil, "stop_details": details}
}

// answerPlainMessage writes a message as one document: what the events of a stream add up to.
func answerPlainMessage(x *exchange, a *answer) {
	c, f := a.choices[0], &claudeForm{stream: &stream{x: x, a: a, over: true}}
	f.before()
	for _, p := range c.deltas(1) {
		f.piece(0, p.delta)
	}
	f.stop()
	body := x.claudeMessage(a, slices.Concat([]map[string]any{}, f.blocks), a.usage)
	maps.Copy(body, c.claudeStop())
	x.finish(encode(body))
}

// claudeForm writes the events of a stream of the Messages API.
type claudeForm struct {
	*stream
	blocks []map[string]any // so far
	open   bool             // the last block
	input  string           // of the open block, as JSON
}

func (f *claudeForm) send(kind string, members map[string]any) {
	members["type"] = kind
	f.named(kind, encode(members))
}

// begin sends what comes before the text and the calls of tools. The results of searches are not
// counted yet.
func (f *claudeForm) begin() {
	u := f.usage
	u.Prompt -= searchTokens * u.Searches
	u.Completion, u.Reasoning, u.Searches = 1, 0, 0
	f.send("message_start", map[string]any{"message": f.x.claudeMessage(f.a, []map[string]any{}, u)})
	f.send("ping", map[string]any{})
	f.before()
}

// before sends the blocks before the text and the calls of tools.
func (f *claudeForm) before() {
	c, n := f.x.q.claude, f.a.usage.Reasoning
	if n > 0 {
		thinking := ""
		if cmp.Or(c.Thinking.Display, c.display) == "summarized" { // shorter than what is billed
			thinking = strings.Join((&prose{rng: newRand(f.x.q.UserText)}).take(n/4, true), "")
		}
		f.start(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
		for _, part := range split(thinking, n/16) {
			f.delta("thinking_delta", "thinking", part)
		}
		f.delta("signature_delta", "signature", signature(thinking))
	}
	for range f.a.usage.Searches {
		id, result := newID("srvtoolu_"), map[string]any{
			"type": "web_search_result", "url": "https://example.com/", "title": "A river", "page_age": nil,
			"encrypted_content": "g",
		}
		f.start(map[string]any{"type": "server_tool_use", "id": id, "name": "web_search", "input": map[string]any{}})
		f.delta("input_json_delta", "partial_json", `{"query":"a river"}`)
		f.start(map[string]any{"type": "web_search_tool_result", "tool_use_id": id, "content": []any{result}})
	}
}

// start opens a block, after closing the one that is open.
func (f *claudeForm) start(block map[string]any) {
	f.stop()
	f.open, f.input, f.blocks = true, "", append(f.blocks, block)
	f.send("content_block_start", map[string]any{"index": len(f.blocks) - 1, "content_block": maps.Clone(block)})
}

// delta adds a text to a member of the open block.
func (f *claudeForm) delta(kind, member, text string) {
	block := f.blocks[len(f.blocks)-1]
	if member == "partial_json" {
		f.input += text
	} else {
		block[member] = block[member].(string) + text
	}
	f.send("content_block_delta", map[string]any{
		"index": len(f.blocks) - 1, "delta": map[string]any{"type": kind, member: text},
	})
}

// stop closes the open block. Input that max_tokens cut off is left out of a plain answer.
func (f *claudeForm) stop() {
	if !f.open {
		return
	}
	f.open = false
	if f.input != "" && json.Valid([]byte(f.input)) {
		f.blocks[len(f.blocks)-1]["input"] = json.RawMessage(f.input)
	}
	f.send("content_block_stop", map[string]any{"index": len(f.blocks) - 1})
}

func (f *claudeForm) piece(_ int, d delta) {
	for _, call := range d.ToolCalls {
		if call.Function.Name == "" {
			f.delta("input_json_delta", "partial_json", call.Function.Arguments)
			continue
		}
		id := "toolu_" + strings.TrimPrefix(call.ID, "call_")
		f.start(map[string]any{"type": "tool_use", "id": id, "name": call.Function.Name, "input": map[string]any{}})
	}
	if d.Content != nil {
		if !f.open || f.blocks[len(f.blocks)-1]["type"] != "text" {
			f.start(map[string]any{"type": "text", "text": "", "citations": nil})
		}
		f.delta("text_delta", "text", *d.Content)
	}
	if f.x.b.Usage == UsageEvery {
		f.messageDelta(map[string]any{"stop_reason": nil, "stop_sequence": nil, "stop_details": nil})
	}
}

// messageDelta sends the usage so far.
func (f *claudeForm) messageDelta(stop map[string]any) {
	members := map[string]any{"delta": stop}
	f.x.addUsage(members, f.x.claudeUsage(f.a, f.usage, false))
	f.send("message_delta", members)
}

func (f *claudeForm) end() {
	f.stop()
	f.messageDelta(f.a.choices[0].claudeStop())
	if f.concludes() {
		f.send("message_stop", map[string]any{})
	}
}

func (f *claudeForm) fail(e *apiError) { f.send("error", f.x.claudeError(e)) }

func (f *claudeForm) pad(text string) { f.send("ping", map[string]any{"padding": text}) }
