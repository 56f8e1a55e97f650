package responses

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
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

const (
	// maxText limits one answer in bytes of JSON. The last event of a stream contains all of it and
	// must not exceed wire.MaxAnswer.
	maxText = 6 << 20
	// overhead is about how many bytes an item, or a part, needs beside its text.
	overhead = 256
	// maxEcho limits what part of a request is repeated in each response.
	maxEcho = 1 << 20
)

// Writer builds a response from the events of an answer, and the events that report it. It keeps the
// text of the answer, at most 6 MB, because the last events repeat it.
type Writer struct {
	Reply
	streams bool
	echo    raw          // members of the request that are repeated
	out     bytes.Buffer // events
	event   event        // reused
	seq     int64

	begun, over, full bool
	head              neutral.Head
	usage             raw
	reason            neutral.Reason
	items             []item // finished ones
	size              int    // about the bytes of items and open
	at, index         int    // of the open item, and of its open part
	open              *item
	part              string // the open part of a message: "output_text" or "refusal"; "" if none is open
	text              []byte // of the open part or call: a JSON string without its last quote
	call              int    // the number of the open call
	answer            []byte
}

// NewWriter returns a writer of one answer.
func NewWriter(r Reply, streams bool) *Writer {
	w := &Writer{Reply: r, streams: streams, head: neutral.Head{Created: time.Now().Unix()}, usage: raw("null")}
	body := r.Request.Body
	for w.echo == nil || len(w.echo) > maxEcho { // images are not repeated, so this is rare
		w.echo = append(wire.AppendEcho(nil, body, "model", "service_tier"), '}')
		w.echo[0] = '{' // in place of the first comma
		body = []byte("{}")
	}
	return w
}

// Out implements neutral.Writer.
func (w *Writer) Out() *bytes.Buffer { return &w.out }

// Full implements neutral.Writer.
func (w *Writer) Full() bool { return w.full }

// Answer implements neutral.Writer.
func (w *Writer) Answer() []byte { return w.answer }

// Held implements neutral.Writer.
func (w *Writer) Held() int { return w.size + cap(w.text) + cap(w.echo) }

// Write implements neutral.Writer.
func (w *Writer) Write(e neutral.Event) {
	if w.over || w.full && e.Kind != neutral.Failure {
		return
	}
	switch e.Kind {
	case neutral.Begin:
		w.begin(e.Head)
	case neutral.Reasoning:
		w.say("reasoning_text", e.Text)
	case neutral.Text:
		w.say("output_text", e.Text)
	case neutral.Refusal:
		w.say("refusal", e.Text)
	case neutral.Call:
		it := newItem("function_call")
		it.CallID, it.Name, it.Arguments = bytes.Clone(e.ID), bytes.Clone(e.Name), raw(`""`)
		if it.CallID == nil {
			it.CallID = wire.AppendQuoted(nil, NewID("call_"))
		}
		if it.Name == nil {
			it.Name = raw(`""`)
		}
		w.add(it)
		w.call = e.Call
	case neutral.Arguments:
		w.argue(e)
	case neutral.Count:
		w.usage = usageOf(e.Usage)
	case neutral.Stop:
		w.reason = e.Reason
	case neutral.Failure:
		w.out.Write(e.Err.Frame(wire.Responses, w.seq))
		w.over = true
	case neutral.End:
		w.complete()
	}
}

// send sends an event.
func (w *Writer) send(kind openai.ResponseStreamEventType, e event) {
	if !w.streams {
		return
	}
	w.event = e
	w.event.Type, w.event.Sequence = kind, w.seq
	w.seq++
	w.out.WriteString("event: " + string(kind) + "\ndata: ")
	_ = json.MarshalWrite(&w.out, &w.event, neutral.AsSent) // raw values were read before, and a buffer has room
	w.out.WriteString("\n\n")
}

// place sends an event about the open item, with its place.
func (w *Writer) place(kind openai.ResponseStreamEventType, e event) {
	e.ItemID, e.OutputIndex = w.open.ID, &w.at
	if w.part != "" {
		w.index = len(w.open.Content)
		e.ContentIndex = &w.index
	}
	w.send(kind, e)
}

// begin sends the events for the start of the response, once.
func (w *Writer) begin(h neutral.Head) {
	if h.Created == 0 || w.begun {
		h.Created = w.head.Created
	}
	w.head = h
	if w.begun {
		return
	}
	w.begun = true
	e := event{Response: w.response(openai.ResponseStatusInProgress, "", raw("null"))}
	w.send(openai.ResponseStreamEventCreated, e)
	w.send(openai.ResponseStreamEventInProgress, e)
}

// response returns the response in its present state. reason is why it is incomplete.
func (w *Writer) response(status openai.ResponseStatus, reason string, usage raw) raw {
	r := response{
		ID: w.ID, Object: "response", Created: w.head.Created, Status: status, Background: w.Request.Background,
		Model: w.head.Model, ServiceTier: w.head.Tier, Output: w.items, Usage: usage, Echo: w.echo,
	}
	if r.Model == nil {
		r.Model = w.Request.Member("model")
	}
	if status == openai.ResponseStatusFailed {
		r.Error = &openai.ResponseError{Code: "server_error", Message: "The provider ended the answer with an error"}
	}
	if reason != "" {
		r.IncompleteDetails = &openai.ResponseIncompleteDetails{Reason: reason}
	}
	text, _ := json.Marshal(&r, neutral.AsSent) // raw values were read before
	return text
}

// add opens an item.
func (w *Writer) add(it *item) {
	w.close(openai.ResponseStatusCompleted)
	it.Status = openai.ResponseStatusInProgress
	w.open, w.text = it, append(w.text[:0], '"')
	w.hold(overhead + len(it.CallID) + len(it.Name))
	w.send(openai.ResponseStreamEventOutputItemAdded, event{OutputIndex: &w.at, Item: it})
}

// parts are the items that have a part, the events that add text to it, and those that contain its full text.
var parts = map[string]struct {
	item        string
	delta, done openai.ResponseStreamEventType
}{
	"output_text": {"message", openai.ResponseStreamEventOutputTextDelta, openai.ResponseStreamEventOutputTextDone},
	"refusal":     {"message", openai.ResponseStreamEventRefusalDelta, openai.ResponseStreamEventRefusalDone},
	"reasoning_text": {
		"reasoning", openai.ResponseStreamEventReasoningTextDelta, openai.ResponseStreamEventReasoningTextDone,
	},
}

// say adds text to a part of an item, and opens them if necessary.
func (w *Writer) say(part string, text raw) {
	if of := parts[part].item; w.open == nil || w.open.Type != of {
		w.add(newItem(of))
	}
	if w.part != part {
		w.closePart()
		w.part = part
		w.hold(overhead)
		w.place(openai.ResponseStreamEventContentPartAdded, event{Part: w.content()})
	}
	w.grow(text)
	e := event{Delta: text}
	if part == "output_text" {
		e.Logprobs = none
	}
	w.place(parts[part].delta, e)
}

// grow appends to the text of the open part or call.
func (w *Writer) grow(text raw) {
	w.hold(len(text))
	if !w.full {
		w.text = append(w.text, neutral.Inside(text)...)
	}
}

// hold counts bytes that are held until the end.
func (w *Writer) hold(n int) {
	w.size += n
	w.full = w.full || w.size > maxText
}

// argue appends to the arguments of the open call.
func (w *Writer) argue(e neutral.Event) {
	switch {
	case w.open == nil || w.open.CallID == nil || w.call != e.Call:
		w.Write(neutral.Event{Kind: neutral.Failure, Err: wire.BadGateway(
			"The provider continued a function call that it had already finished", nil)})
	case e.Text != nil:
		w.grow(e.Text)
		w.place(openai.ResponseStreamEventFunctionArgumentsDelta, event{Delta: e.Text})
	}
}

// whole returns the text of the open part or call.
func (w *Writer) whole() raw { return append(bytes.Clone(w.text), '"') }

// content returns the open part.
func (w *Writer) content() *content {
	c := content{Type: w.part, Text: w.whole()}
	switch w.part {
	case "output_text":
		c.Annotations, c.Logprobs = none, none
	case "refusal":
		c.Text, c.Refusal = nil, c.Text
	}
	return &c
}

// closePart completes the open part.
func (w *Writer) closePart() {
	if w.part == "" {
		return
	}
	c := w.content()
	w.place(parts[w.part].done, event{Text: c.Text, Refusal: c.Refusal, Logprobs: c.Logprobs})
	w.place(openai.ResponseStreamEventContentPartDone, event{Part: c})
	w.open.Content = append(w.open.Content, *c)
	w.part, w.text = "", w.text[:1]
}

// close completes the open item.
func (w *Writer) close(status openai.ResponseStatus) {
	it := w.open
	if it == nil {
		return
	}
	w.closePart()
	if it.CallID != nil {
		it.Arguments = w.whole()
		w.place(openai.ResponseStreamEventFunctionArgumentsDone, event{Name: it.Name, Arguments: it.Arguments})
	}
	it.Status = status
	w.send(openai.ResponseStreamEventOutputItemDone, event{OutputIndex: &w.at, Item: it})
	w.items = append(w.items, *it)
	w.open, w.at = nil, len(w.items)
}

// complete completes the response.
func (w *Writer) complete() {
	status, reason := openai.ResponseStatusCompleted, ""
	switch w.reason {
	case neutral.Length:
		status, reason = openai.ResponseStatusIncomplete, "max_output_tokens"
	case neutral.Filtered:
		status, reason = openai.ResponseStatusIncomplete, "content_filter"
	case neutral.Failed:
		status = openai.ResponseStatusFailed
	}
	if len(w.items) == 0 && w.open == nil && status != openai.ResponseStatusFailed {
		w.add(newItem("message")) // an empty answer is an answer, too
	}
	last := status // of the item that was cut off, if any
	if status == openai.ResponseStatusFailed {
		last = openai.ResponseStatusIncomplete
	}
	w.close(last)
	w.answer = w.response(status, reason, w.usage)
	if w.Final != nil && status != openai.ResponseStatusFailed {
		w.Final(w.answer)
	}
	w.send(openai.ResponseStreamEventType("response."+string(status)), event{Response: w.answer})
	w.over = true
}
