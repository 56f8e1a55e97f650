package fakeprovider

import "strings"

// responseForm writes the events of a Responses stream.
type responseForm struct {
	s    *stream
	r    *response
	seq  int64
	open map[string]any // the item being written
	text strings.Builder
	call toolCall
}

// send writes one event.
func (f *responseForm) send(kind string, members map[string]any) {
	if f.s.over {
		return
	}
	members["type"], members["sequence_number"] = kind, f.seq
	f.seq++
	f.s.named(kind, encode(members))
}

func (f *responseForm) pad(text string) { f.s.pad(text) }

func (f *responseForm) begin() {
	for _, kind := range []string{"response.created", "response.in_progress"} {
		f.send(kind, map[string]any{"response": f.r.object("in_progress", nil, nil)})
	}
	for i, item := range f.r.items { // reasoning
		f.send("response.output_item.added", map[string]any{"output_index": i, "item": item})
		f.send("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
}

// place adds the members that all events of the open item share.
func (f *responseForm) place(more map[string]any) map[string]any {
	more["output_index"], more["item_id"] = len(f.r.items), f.open["id"]
	return more
}

func (f *responseForm) piece(_ int, d delta) {
	for _, call := range d.ToolCalls {
		f.callPiece(call)
	}
	if d.Content == nil {
		return
	}
	if f.open == nil {
		f.add(messageItem(newID("msg_"), "in_progress", ""), "content")
		f.send("response.content_part.added", f.place(map[string]any{"content_index": 0, "part": textPart("")}))
	}
	f.text.WriteString(*d.Content)
	f.send("response.output_text.delta",
		f.place(map[string]any{"content_index": 0, "delta": *d.Content, "logprobs": []any{}}))
}

// add opens an item without its content.
func (f *responseForm) add(item map[string]any, content string) {
	f.open = item
	if content != "" {
		item[content] = []any{}
	}
	f.text.Reset()
	f.send("response.output_item.added", map[string]any{"output_index": len(f.r.items), "item": item})
}

func (f *responseForm) callPiece(call toolCall) {
	if call.Function.Name != "" {
		f.closeItem("completed")
		f.call = call
		f.add(callItem(newID("fc_"), "in_progress", call, ""), "")
		return
	}
	f.text.WriteString(call.Function.Arguments)
	f.send("response.function_call_arguments.delta", f.place(map[string]any{"delta": call.Function.Arguments}))
}

// closeItem completes the open item.
func (f *responseForm) closeItem(status string) {
	if f.open == nil {
		return
	}
	id, text := f.open["id"].(string), f.text.String()
	item := messageItem(id, status, text)
	switch f.open["type"] {
	case "message":
		f.send("response.output_text.done", f.place(map[string]any{"content_index": 0, "text": text, "logprobs": []any{}}))
		f.send("response.content_part.done", f.place(map[string]any{"content_index": 0, "part": textPart(text)}))
	default:
		item = callItem(id, status, f.call, text)
		f.send("response.function_call_arguments.done", f.place(map[string]any{"arguments": text, "name": item["name"]}))
	}
	f.send("response.output_item.done", map[string]any{"output_index": len(f.r.items), "item": item})
	f.r.items = append(f.r.items, item)
	f.open = nil
}

func (f *responseForm) end() {
	x, c := f.s.x, f.s.a.choices[0]
	f.closeItem(c.status())
	usage := x.usage(responseUsage(f.s.usage))
	f.r.finish(x, c, usage)
	if f.s.concludes() {
		f.send("response."+c.status(), map[string]any{"response": f.r.object(c.status(), f.r.items, usage)})
	}
}

func (f *responseForm) fail(e *apiError) {
	f.send("error", map[string]any{"code": e.Code, "message": e.Message, "param": e.Param})
}
