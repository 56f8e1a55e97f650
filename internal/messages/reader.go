package messages

import (
	"bytes"
	"errors"
	"slices"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// Reader reads events of a stream, and whole answers.
type Reader struct {
	to    neutral.Writer
	used  wire.Answer // the usage so far
	calls []openCall
	// signature is the inside of the open block's signature: writers get it whole.
	signature      []byte
	begun, stopped bool
}

// openCall is a tool call: the index of its block, and whether it has arguments.
type openCall struct {
	index  string
	argued bool
}

// The types below are what the API sends: an event, a message or what ends it, and a block or a piece of one.
type (
	event struct {
		Type    raw `json:"type"`
		Message raw `json:"message"`
		Index   raw `json:"index"`
		Block   raw `json:"content_block"`
		Delta   raw `json:"delta"`
		Usage   raw `json:"usage"`
	}
	answer struct {
		ID       raw `json:"id"`
		Model    raw `json:"model"`
		Content  raw `json:"content"`
		Reason   raw `json:"stop_reason"`
		Sequence raw `json:"stop_sequence"`
		Details  raw `json:"stop_details"`
		Usage    raw `json:"usage"`
	}
	piece struct {
		Type      raw `json:"type"`
		Text      raw `json:"text"`
		Thinking  raw `json:"thinking"`
		Signature raw `json:"signature"`
		Data      raw `json:"data"`
		ID        raw `json:"id"`
		Name      raw `json:"name"`
		Input     raw `json:"input"`
		Partial   raw `json:"partial_json"`
	}
)

// NewReader returns a reader of one answer, which it passes to w.
func NewReader(w neutral.Writer) neutral.Reader { return &Reader{to: w} }

// Whole implements neutral.Reader.
func (r *Reader) Whole(document []byte) error {
	var a answer
	if err := neutral.Read(document, &a); err != nil {
		return err
	}
	if a.Content == nil {
		return errors.New("messages: the answer has no content")
	}
	r.begin(&a)
	err := neutral.Each(a.Content, "content", func(index string, p *piece) error {
		r.start(index, p)
		r.stop(index)
		return nil
	})
	if err == nil {
		r.ended(&a)
		r.write(neutral.Event{Kind: neutral.End})
	}
	return err
}

// Chunk implements neutral.Reader. What is no object has no members.
func (r *Reader) Chunk(data []byte) {
	var e event
	var a answer
	var p piece
	_ = neutral.Read(wire.EventJSON(data), &e)
	index := string(e.Index)
	switch wire.Word(e.Type) {
	case "message_start":
		_ = neutral.Read(e.Message, &a)
		r.begin(&a)
	case "content_block_start":
		_ = neutral.Read(e.Block, &p)
		r.start(index, &p)
	case "content_block_delta":
		_ = neutral.Read(e.Delta, &p)
		r.delta(index, &p)
	case "content_block_stop":
		r.stop(index)
	case "message_delta":
		_ = neutral.Read(e.Delta, &a)
		a.Usage = e.Usage
		r.ended(&a)
	case "message_stop":
		r.write(neutral.Event{Kind: neutral.End})
	case "error":
		r.begin(&a)
		r.write(neutral.Event{Kind: neutral.Failure, Err: wire.ParseErrorEvent(data)})
	}
}

// Close implements neutral.Reader: what follows the end of a message is not waited for.
func (r *Reader) Close() {
	if r.stopped {
		r.write(neutral.Event{Kind: neutral.End})
	}
}

func (r *Reader) write(e neutral.Event) {
	if r.begun {
		r.to.Write(e)
	}
}

// begin passes on what is known when the message begins.
func (r *Reader) begin(a *answer) {
	if r.begun {
		return
	}
	r.begun = true
	r.count(a.Usage)
	tier := neutral.Member(a.Usage, "service_tier")
	if string(tier) == `"standard"` {
		tier = raw(`"default"`)
	}
	h := neutral.Head{ID: bytes.Clone(a.ID), Model: bytes.Clone(a.Model), Tier: bytes.Clone(tier)}
	r.write(neutral.Event{Kind: neutral.Begin, Head: h})
}

func (r *Reader) text(kind neutral.Kind, text raw) {
	if len(neutral.Inside(text)) > 0 {
		r.write(neutral.Event{Kind: kind, Text: text})
	}
}

// start passes on a block as it begins, or a whole one. Tools that the provider runs are not among the request's.
func (r *Reader) start(index string, p *piece) {
	switch wire.Word(p.Type) {
	case textBlock:
		r.text(neutral.Text, p.Text)
	case thinkingBlock:
		r.text(neutral.Reasoning, p.Thinking)
		r.signature = append(r.signature, neutral.Inside(p.Signature)...)
	case redactedBlock:
		r.text(neutral.Redacted, p.Data)
	case callBlock:
		r.calls = append(r.calls, openCall{index: index})
		r.write(neutral.Event{Kind: neutral.Call, Call: len(r.calls) - 1, ID: p.ID, Name: p.Name})
		if len(p.Input) > len("{}") {
			r.argue(index, wire.AppendQuoted(nil, string(p.Input)))
		}
	}
}

func (r *Reader) delta(index string, p *piece) {
	switch wire.Word(p.Type) {
	case "text_delta":
		r.text(neutral.Text, p.Text)
	case "thinking_delta":
		r.text(neutral.Reasoning, p.Thinking)
	case "signature_delta":
		r.signature = append(r.signature, neutral.Inside(p.Signature)...)
	case "input_json_delta":
		r.argue(index, p.Partial)
	}
}

func (r *Reader) argue(index string, text raw) {
	call := r.call(index)
	if call < 0 || len(neutral.Inside(text)) == 0 {
		return
	}
	r.calls[call].argued = true
	r.write(neutral.Event{Kind: neutral.Arguments, Call: call, Text: text})
}

// call returns the call in a block, or -1.
func (r *Reader) call(index string) int {
	return slices.IndexFunc(r.calls, func(c openCall) bool { return c.index == index })
}

// stop ends a block. Clients of other wires expect arguments, even if there are none.
func (r *Reader) stop(index string) {
	if len(r.signature) > 0 {
		r.text(neutral.Signature, neutral.Quote(r.signature))
		r.signature = r.signature[:0]
	}
	if call := r.call(index); call >= 0 && !r.calls[call].argued {
		r.argue(index, raw(`"{}"`))
	}
}

func (r *Reader) count(given raw) {
	if given != nil {
		r.to.Write(neutral.Event{Kind: neutral.Count, Usage: readUsage(given, &r.used)})
	}
}

// reasons are the neutral reasons that are not neutral.Done. A turn that the provider pauses is not complete.
var reasons = map[string]neutral.Reason{
	"stop_sequence": neutral.Sequence, "max_tokens": neutral.Length, "model_context_window_exceeded": neutral.Length,
	"pause_turn": neutral.Length, "refusal": neutral.Filtered,
}

func (r *Reader) ended(a *answer) {
	r.count(a.Usage)
	reason := wire.Word(a.Reason)
	if reason == "" {
		return
	}
	r.stopped = true
	e := neutral.Event{Kind: neutral.Stop, Reason: reasons[reason]}
	switch e.Reason {
	case neutral.Sequence:
		e.Text = a.Sequence
	case neutral.Filtered:
		e.Text = neutral.Member(a.Details, "explanation")
	}
	if !wire.IsString(e.Text) {
		e.Text = nil
	}
	r.write(e)
}
