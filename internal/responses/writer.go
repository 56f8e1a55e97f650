package responses

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

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
	neutral.Draft
	echo   raw   // members of the request that are repeated
	spaces []raw // of the request's tools
	event  event // reused
	seq    int64

	full      bool
	usage     raw
	items     []item // finished ones
	size      int    // about the bytes of items and open
	at, index int    // of the open item, and of its open part
	open      *item
	part      string // the open part of a message: "output_text" or "refusal"; "" if none is open
	text      []byte // of the open part or call: a JSON string without its last quote
	sealed    []byte // what the open reasoning is signed with, or consists of, after its mark
	call      int    // the number of the open call
}

// NewWriter returns a writer of one answer.
func NewWriter(r neutral.Reply, streams bool) neutral.Writer {
	w := &Writer{Draft: neutral.NewDraft(r, streams), usage: raw("null"), spaces: namespaces(r.Request)}
	body := r.Request.Body
	for w.echo == nil || len(w.echo) > maxEcho { // images are not repeated, so this is rare
		w.echo = append(wire.AppendEcho(nil, body, "model", "service_tier"), '}')
		w.echo[0] = '{' // in place of the first comma
		body = []byte("{}")
	}
	return w
}

// Full implements neutral.Writer.
func (w *Writer) Full() bool { return w.full }

// Held implements neutral.Writer.
func (w *Writer) Held() int { return w.size + cap(w.text) + cap(w.sealed) + cap(w.echo) }

// Write implements neutral.Writer.
func (w *Writer) Write(e neutral.Event) {
	if w.Over || w.full && e.Kind != neutral.Failure {
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
	case neutral.Signature:
		w.seal(signatureMark, e.Text)
	case neutral.Redacted:
		w.close(openai.ResponseStatusCompleted)
		w.seal(redactedMark, e.Text)
	case neutral.Call:
		e = w.Called(e, "call_")
		it := newItem("function_call")
		it.CallID, it.Arguments = e.ID, raw(`""`)
		it.Namespace, it.Name = split(w.spaces, e.Name)
		w.add(it)
		w.call = e.Call
	case neutral.Arguments:
		w.argue(e)
	case neutral.Count:
		w.usage = usageOf(e.Usage)
	case neutral.Stop:
		w.Stop.Reason = e.Reason
	case neutral.Failure:
		w.Fail(e.Err, w.seq)
	case neutral.End:
		w.complete()
	}
}

func (w *Writer) send(kind openai.ResponseStreamEventType, e event) {
	if !w.Streams {
		return
	}
	w.event = e
	w.event.Type, w.event.Sequence = kind, w.seq
	w.seq++
	w.Out().WriteString("event: " + string(kind) + "\ndata: ")
	_ = json.MarshalWrite(w.Out(), &w.event, neutral.AsSent) // raw values were read before, and a buffer has room
	w.Out().WriteString("\n\n")
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
	if !w.Begin(h, "resp_") {
		return
	}
	e := event{Response: w.response(openai.ResponseStatusInProgress, "", raw("null"))}
	w.send(openai.ResponseStreamEventCreated, e)
	w.send(openai.ResponseStreamEventInProgress, e)
}

// response returns the response in its present state. reason is why it is incomplete.
func (w *Writer) response(status openai.ResponseStatus, reason string, usage raw) raw {
	r := response{
		ID: w.Head.ID, Object: "response", Created: w.Head.Created, Status: status, Background: w.Request.Background,
		Model: w.Head.Model, ServiceTier: w.Head.Tier, Output: w.items, Usage: usage, Echo: w.echo,
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

// The marks tell from each other, and from what other APIs encrypt, what encrypted_content holds, so that a caller
// who sends an answer back sends its signatures.
const (
	signatureMark = "signature:"
	redactedMark  = "redacted:"
)

// seal adds what only the provider reads to a reasoning, which it opens if necessary.
func (w *Writer) seal(mark string, text raw) {
	if w.open == nil || w.open.Type != "reasoning" || len(w.sealed) > 0 {
		w.add(newItem("reasoning"))
	}
	w.hold(len(text))
	if !w.full {
		w.sealed = append(append(w.sealed, mark...), neutral.Inside(text)...)
	}
}

// say adds text to a part of an item, and opens them if necessary. Nothing follows a signature.
func (w *Writer) say(part string, text raw) {
	if of := parts[part].item; w.open == nil || w.open.Type != of || len(w.sealed) > 0 {
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
	if len(w.sealed) > 0 {
		it.Encrypted, w.sealed = neutral.Quote(w.sealed), w.sealed[:0]
	}
	it.Status = status
	w.send(openai.ResponseStreamEventOutputItemDone, event{OutputIndex: &w.at, Item: it})
	w.items = append(w.items, *it)
	w.open, w.at = nil, len(w.items)
}

func (w *Writer) complete() {
	status, reason := openai.ResponseStatusCompleted, ""
	switch w.Stop.Reason {
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
	w.Document = w.response(status, reason, w.usage)
	if w.Final != nil && status != openai.ResponseStatusFailed {
		w.Final(w.Document)
	}
	w.send(openai.ResponseStreamEventType("response."+string(status)), event{Response: w.Document})
	w.Over = true
}

// usage is neutral.Usage with the names of Responses. Numbers and undefined members are copied unchanged.
type usage struct {
	Input         raw `json:"input_tokens"`
	InputDetails  raw `json:"input_tokens_details"`
	Output        raw `json:"output_tokens"`
	OutputDetails raw `json:"output_tokens_details"`
	Total         raw `json:"total_tokens"`
	CacheRead     raw `json:"-"`
	More          raw `json:",embed"`
}

// usageOf adds the members that clients rely on if they are missing.
func usageOf(given *neutral.Usage) raw {
	if given == nil {
		return raw("null")
	}
	u := usage(given.Complete())
	text, _ := json.Marshal(&u, neutral.AsSent) // raw values were read before
	return text
}
