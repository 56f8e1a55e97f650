package responses

import (
	"bytes"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// Reply holds what a response is built from, in addition to the provider's bytes.
type Reply struct {
	// Request is the caller's request.
	Request *wire.Request
	// ID is the id of the response.
	ID string
	// Final, if set, is called with the complete response, unless it failed, before its last byte is
	// sent.
	Final func(response []byte)
}

// maxText limits the text of one answer in bytes of JSON. The last event of a stream contains
// all of it and must not exceed wire.MaxAnswer.
const maxText = 6 << 20

// maxEcho limits what part of a request is repeated in each response.
const maxEcho = 1 << 20

// composer builds a response from the pieces of a chat answer, and the events that report it.
type composer struct {
	Reply
	echo []byte // members of the request that are repeated
	out  []byte // events; discarded when not streaming

	seq           int64
	begun, over   bool
	model, tier   []byte // raw, as sent by the provider
	made          int64
	usage         []byte // raw, in chat's form
	finish        string
	items         []byte // finished ones, raw, separated by commas
	count         int    // number of finished items
	open          opened
	calls         []call
	chunk         reader
	streams, full bool
}

// opened is the item being written.
type opened struct {
	kind  string // "reasoning", "message", "function_call"; "" if none is open
	part  string // of a message: "output_text" or "refusal"; "" if none is open
	id    string
	parts []byte // finished parts of a message
	index int    // of its content
	text  []byte // contents of a JSON string
	call  int    // index of the call
}

// call is a function call of the answer.
type call struct {
	id, name, index []byte // raw
	argued, done    bool
}

func newComposer(r Reply, streams bool) *composer {
	c := &composer{Reply: r, streams: streams, made: time.Now().Unix()}
	except := []string{"model", "service_tier"}
	if len(r.Request.Body) > maxEcho { // images are not repeated, so this is rare
		echo := wire.AppendEcho(nil, r.Request.Body, except...)
		if len(echo) > maxEcho {
			echo = wire.AppendEcho(nil, []byte("{}"), except...)
		}
		c.echo = echo
	} else {
		c.echo = wire.AppendEcho(make([]byte, 0, 512), r.Request.Body, except...)
	}
	c.chunk.init(c)
	return c
}

// event starts an event.
func (c *composer) event(kind string) {
	c.out = append(append(append(c.out, "event: "...), kind...), "\ndata: {\"type\":\""...)
	c.out = append(append(c.out, kind...), `","sequence_number":`...)
	c.out = strconv.AppendInt(c.out, c.seq, 10)
	c.seq++
}

// end ends an event.
func (c *composer) end() {
	c.out = append(c.out, "}\n\n"...)
	if !c.streams {
		c.out = c.out[:0]
	}
}

func (c *composer) put(name string, raw []byte) {
	c.out = append(append(append(append(c.out, `,"`...), name...), `":`...), raw...)
}

func (c *composer) putText(name string, inner []byte) {
	c.out = append(append(append(c.out, `,"`...), name...), `":"`...)
	c.out = append(append(c.out, inner...), '"')
}

func (c *composer) putInt(name string, n int) {
	c.out = append(append(append(c.out, `,"`...), name...), `":`...)
	c.out = strconv.AppendInt(c.out, int64(n), 10)
}

// place appends what all events of the open item have in common.
func (c *composer) place() {
	c.out = append(append(append(c.out, `,"item_id":"`...), c.open.id...), '"')
	c.putInt("output_index", c.count)
}

// begin sends the events for the start of the response, once.
func (c *composer) begin() {
	if c.begun {
		return
	}
	c.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		c.event(kind)
		c.out = append(c.out, `,"response":`...)
		c.out = c.response(c.out, "in_progress", "")
		c.end()
	}
}

// response appends the response in its present state. reason is why it is incomplete.
func (c *composer) response(dst []byte, status, reason string) []byte {
	dst = append(append(append(dst, `{"id":"`...), c.ID...), `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, c.made, 10)
	dst = append(append(append(dst, `,"status":"`...), status...), `","background":`...)
	dst = strconv.AppendBool(dst, c.Request.Background)
	dst = append(dst, `,"error":`...)
	if status == "failed" {
		dst = append(dst, `{"code":"server_error","message":"The provider ended the answer with an error"}`...)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"incomplete_details":`...)
	if reason == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, `{"reason":"`...), reason...), `"}`...)
	}
	dst = append(dst, c.echo...)
	dst = appendOr(append(dst, `,"model":`...), c.model, c.Request.Member("model"))
	dst = appendOr(append(dst, `,"service_tier":`...), c.tier, []byte("null"))
	dst = append(append(append(dst, `,"output":[`...), c.items...), `],"usage":`...)
	if status == "in_progress" {
		return append(dst, "null}"...)
	}
	return append(appendUsage(dst, c.usage), '}')
}

func appendOr(dst, raw, other []byte) []byte {
	if raw == nil {
		raw = other
	}
	return append(dst, raw...)
}

// add opens an item.
func (c *composer) add(kind, prefix string) {
	c.close("completed")
	c.open = opened{kind: kind, id: NewID(prefix), text: c.open.text[:0], parts: c.open.parts[:0]}
	c.event("response.output_item.added")
	c.putInt("output_index", c.count)
	c.out = c.item(append(c.out, `,"item":`...), "in_progress")
	c.end()
}

// item appends the open item.
func (c *composer) item(dst []byte, status string) []byte {
	o := &c.open
	dst = append(append(append(dst, `{"id":"`...), o.id...), `","type":"`...)
	dst = append(append(append(dst, o.kind...), `","status":"`...), status...)
	switch o.kind {
	case "function_call":
		f := &c.calls[o.call]
		dst = append(append(append(dst, `","call_id":`...), f.id...), `,"name":`...)
		dst = append(append(append(append(dst, f.name...), `,"arguments":"`...), o.text...), '"')
	case "reasoning":
		dst = append(append(append(dst, `","summary":[],"content":[`...), o.parts...), ']')
	default:
		dst = append(append(append(dst, `","role":"assistant","content":[`...), o.parts...), ']')
	}
	return append(dst, '}')
}

// part appends the open part.
func (c *composer) part(dst []byte) []byte {
	dst = append(append(append(dst, `{"type":"`...), c.open.part...), '"')
	switch c.open.part {
	case "output_text":
		dst = append(dst, `,"annotations":[],"logprobs":[],"text":"`...)
	case "refusal":
		dst = append(dst, `,"refusal":"`...)
	default:
		dst = append(dst, `,"text":"`...)
	}
	return append(append(dst, c.open.text...), `"}`...)
}

// say adds text, given as the contents of a JSON string, to a part of an item, and opens them
// if necessary.
func (c *composer) say(kind, part string, inner []byte) {
	if len(inner) == 0 || c.over {
		return
	}
	if c.open.kind != kind {
		c.add(kind, map[string]string{"message": "msg_", "reasoning": "rs_"}[kind])
	}
	if c.open.part != part {
		c.closePart()
		c.open.part = part
		c.event("response.content_part.added")
		c.place()
		c.putInt("content_index", c.open.index)
		c.out = c.part(append(c.out, `,"part":`...))
		c.end()
	}
	c.grow(inner)
	c.event(deltas[part])
	c.place()
	c.putInt("content_index", c.open.index)
	c.putText("delta", inner)
	if part == "output_text" {
		c.put("logprobs", []byte("[]"))
	}
	c.end()
}

// deltas are the events that add text to a part, and ends those that contain its full text.
var (
	deltas = map[string]string{
		"output_text": "response.output_text.delta", "refusal": "response.refusal.delta",
		"reasoning_text": "response.reasoning_text.delta",
	}
	ends = map[string]string{
		"output_text": "response.output_text.done", "refusal": "response.refusal.done",
		"reasoning_text": "response.reasoning_text.done",
	}
)

// grow appends to the open item's text.
func (c *composer) grow(inner []byte) {
	if len(c.items)+len(c.open.parts)+len(c.open.text)+len(inner) > maxText {
		c.full = true
		return
	}
	c.open.text = append(c.open.text, inner...)
}

// closePart completes the open part.
func (c *composer) closePart() {
	o := &c.open
	if o.part == "" {
		return
	}
	c.event(ends[o.part])
	c.place()
	c.putInt("content_index", o.index)
	if o.part == "refusal" {
		c.putText("refusal", o.text)
	} else {
		c.putText("text", o.text)
	}
	if o.part == "output_text" {
		c.put("logprobs", []byte("[]"))
	}
	c.end()
	c.event("response.content_part.done")
	c.place()
	c.putInt("content_index", o.index)
	c.out = c.part(append(c.out, `,"part":`...))
	c.end()
	if len(o.parts) > 0 {
		o.parts = append(o.parts, ',')
	}
	o.parts = c.part(o.parts)
	o.part, o.text = "", o.text[:0]
	o.index++
}

// close completes the open item.
func (c *composer) close(status string) {
	o := &c.open
	if o.kind == "" {
		return
	}
	if o.kind == "function_call" {
		c.event("response.function_call_arguments.done")
		c.place()
		c.put("name", c.calls[o.call].name)
		c.putText("arguments", o.text)
		c.end()
		c.calls[o.call].done = true
	} else {
		c.closePart()
	}
	c.event("response.output_item.done")
	c.putInt("output_index", c.count)
	c.out = c.item(append(c.out, `,"item":`...), status)
	c.end()
	if c.count > 0 {
		c.items = append(c.items, ',')
	}
	c.items = c.item(c.items, status)
	c.count++
	o.kind = ""
}

// outcome returns the status for a finish_reason, and why the response is incomplete.
func (c *composer) outcome() (status, reason string) {
	switch c.finish {
	case "length":
		return "incomplete", "max_output_tokens"
	case "content_filter":
		return "incomplete", "content_filter"
	case "error":
		return "failed", ""
	}
	return "completed", ""
}

// complete completes the response and returns it.
func (c *composer) complete() []byte {
	status, reason := c.outcome()
	c.begin()
	if c.count == 0 && c.open.kind == "" && status != "failed" {
		c.add("message", "msg_") // an empty answer is an answer, too
	}
	last := status // of the item that was cut off, if any
	if status == "failed" {
		last = "incomplete"
	}
	c.close(last)
	whole := c.response(make([]byte, 0, len(c.items)+len(c.echo)+1024), status, reason)
	if c.Final != nil && status != "failed" {
		c.Final(whole)
	}
	c.event("response." + status)
	c.put("response", whole)
	c.end()
	c.over = true
	return whole
}

// fail ends the response with an error.
func (c *composer) fail(e *wire.Error) {
	c.begin()
	c.out = append(c.out, e.Frame(wire.Responses, c.seq)...)
	c.seq++
	c.over = true
}

// sameRaw reports whether two raw values are present and equal.
func sameRaw(a, b []byte) bool { return len(a) > 0 && bytes.Equal(a, b) }
