package fakeprovider

import (
	"bytes"
	"encoding/json"
	"strings"
)

// echoed are the request members repeated in the response, with the values of absent ones.
var echoed = map[string]string{
	"instructions": "null", "max_output_tokens": "null", "max_tool_calls": "null", "metadata": "{}",
	"parallel_tool_calls":  "true",
	"previous_response_id": "null", "reasoning": `{"effort":null,"summary":null}`, "store": "true", "temperature": "1",
	"text": `{"format":{"type":"text"}}`, "tool_choice": `"auto"`, "tools": "[]", "top_p": "1", "truncation": `"disabled"`,
	"user":       "null",
	"background": "false",
}

func newResponse(x *exchange, a *answer) *response {
	r := &response{
		id: "resp_" + strings.TrimPrefix(a.id, "chatcmpl-"), model: a.model, tier: a.tier, made: a.created, input: x.q.items,
		echo: map[string]json.RawMessage{}, stored: true, tokens: a.usage.Total(),
	}
	var top map[string]json.RawMessage
	_ = json.Unmarshal(x.q.Body, &top) // it was parsed before
	for name, missing := range echoed {
		r.echo[name] = top[name]
		if top[name] == nil || string(top[name]) == "null" {
			r.echo[name] = json.RawMessage(missing)
		}
	}
	r.stored = string(r.echo["store"]) == "true"
	if c := a.choices[0]; c.reasoning > 0 {
		item := map[string]any{"id": newID("rs_"), "type": "reasoning", "summary": []any{}}
		if bytes.Contains(top["include"], []byte(`"reasoning.encrypted_content"`)) { // how agents continue without a store
			item["encrypted_content"] = strings.Repeat("g", int(c.reasoning))
		}
		r.items = append(r.items, item)
	}
	return r
}

// object returns the Response object in a given status.
func (r *response) object(status string, items []map[string]any, usage json.RawMessage) map[string]any {
	if items == nil {
		items = []map[string]any{}
	}
	body := map[string]any{
		"id": r.id, "object": "response", "created_at": r.made, "status": status, "model": r.model, "service_tier": r.tier,
		"error": nil, "incomplete_details": nil, "output": items, "usage": usage,
	}
	if status == "incomplete" {
		body["incomplete_details"] = map[string]string{"reason": "max_output_tokens"}
	}
	for name, value := range r.echo {
		body[name] = value
	}
	return body
}

// status returns the status of a finished choice.
func (c *choice) status() string {
	if c.finish == "length" {
		return "incomplete"
	}
	return "completed"
}

func messageItem(id, status, text string) map[string]any {
	return map[string]any{
		"id": id, "type": "message", "role": "assistant", "status": status,
		"content": []any{textPart(text)},
	}
}

func textPart(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func callItem(id, status string, call toolCall, args string) map[string]any {
	return map[string]any{
		"id": id, "type": "function_call", "status": status, "call_id": call.ID,
		"name": call.Function.Name, "arguments": args,
	}
}

// answerPlainResponse writes a response as one document.
func answerPlainResponse(x *exchange, a *answer) {
	r, c := newResponse(x, a), a.choices[0]
	f := &responseForm{s: &stream{x: x, a: a, over: true}, r: r} // the events add up to the items
	for _, p := range c.deltas(1) {
		f.piece(0, p.delta)
	}
	f.closeItem(c.status())
	r.finish(x, c, x.usage(responseUsage(a.usage)))
	x.finish(r.body)
}

// finish builds the final object and stores it.
func (r *response) finish(x *exchange, c *choice, usage json.RawMessage) {
	r.body = encode(r.object(c.status(), r.items, usage))
	if t := x.q.spoken; t != nil {
		x.s.change(func() { t.tokens = r.tokens })
	}
	if r.stored {
		x.s.keep(r)
	}
}

// responseUsage returns the usage with the names that Responses uses.
func responseUsage(u Usage) map[string]any {
	return map[string]any{
		"input_tokens": u.Prompt, "output_tokens": u.Completion, "total_tokens": u.Total(),
		"input_tokens_details":  map[string]any{"cached_tokens": u.Cached, "cache_write_tokens": u.CacheWrite},
		"output_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
	}
}
