package messages

import (
	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// The types below are what the API sends: a message, whole or as it begins, and the events of a stream.
type (
	sent struct {
		ID      raw     `json:"id"`
		Type    string  `json:"type"`
		Role    string  `json:"role"`
		Model   raw     `json:"model"`
		Content []block `json:"content"`
		ending  `json:",embed"`
		Usage   usage `json:"usage"`
	}
	ending struct {
		Reason   raw `json:"stop_reason"`
		Sequence raw `json:"stop_sequence"`
		Details  raw `json:"stop_details"`
	}
	sentEvent struct {
		Type    string `json:"type"`
		Message *sent  `json:"message,omitzero"`
		Index   *int   `json:"index,omitzero"`
		Block   *block `json:"content_block,omitzero"`
		Delta   any    `json:"delta,omitempty"` // *block, or *ending
		Usage   *usage `json:"usage,omitzero"`
	}
)

// Writer builds a message, or the events of its stream, from the events of an answer.
type Writer struct {
	neutral.Draft
	usage   usage
	refused bool
	open    string // the type of the open block of a stream; "" if there is none
	sealed  bool   // the open block has a signature, so that reasoning begins another
	index   int    // of the open block, or of the next
}

// NewWriter returns a writer of one answer.
func NewWriter(r neutral.Reply, streams bool) neutral.Writer {
	return &Writer{Draft: neutral.NewDraft(r, streams)}
}

// Write implements neutral.Writer.
func (w *Writer) Write(e neutral.Event) {
	if w.Over {
		return
	}
	switch e.Kind {
	case neutral.Begin:
		w.begin(e.Head)
	case neutral.Count:
		w.usage = usageOf(e.Usage)
	case neutral.Stop:
		e.Text = append(raw(nil), e.Text...)
		w.Stop = e
	case neutral.Failure:
		w.Fail(e.Err, 0)
	case neutral.End:
		w.complete()
	case neutral.Refusal:
		w.refused = true
		e.Kind = neutral.Text
		w.content(e)
	case neutral.Call:
		w.content(w.Called(e, "toolu_"))
	default:
		w.content(e)
	}
}

func (w *Writer) send(e sentEvent) {
	if !w.Streams {
		return
	}
	out := w.Out()
	out.WriteString("event: " + e.Type + "\ndata: ")
	_ = json.MarshalWrite(out, &e, neutral.AsSent) // raw values were read before, and a buffer has room
	out.WriteString("\n\n")
}

// begin sends the message as far as it is known, once.
func (w *Writer) begin(h neutral.Head) {
	if w.Begin(h, "msg_") {
		w.send(sentEvent{Type: "message_start", Message: w.message(ending{none, none, none})})
	}
}

// none is the value of a member that is not known, or does not apply.
var none = raw("null")

func (w *Writer) message(end ending) *sent {
	w.settle()
	content := blocksOf(w.Parts)
	if content == nil {
		content = []block{}
	}
	return &sent{w.Head.ID, "message", string(neutral.RoleAssistant), w.Head.Model, content, end, w.usage}
}

// settle sets the service tier, which other APIs report elsewhere.
func (w *Writer) settle() {
	w.usage.Tier = w.Head.Tier
	if string(w.Head.Tier) == `"default"` {
		w.usage.Tier = raw(`"standard"`)
	}
}

// empty is a text that the pieces after it make.
var empty = raw(`""`)

// content adds an event of the content to a whole answer, or sends it as a piece of a block.
func (w *Writer) content(e neutral.Event) {
	if !w.Streams {
		w.Keep(e)
		return
	}
	switch e.Kind {
	case neutral.Text:
		w.piece(block{Type: textBlock, Text: empty}, block{Type: "text_delta", Text: e.Text})
	case neutral.Reasoning:
		w.piece(thinkingOf(nil, nil), block{Type: "thinking_delta", Thinking: e.Text})
	case neutral.Signature:
		w.piece(thinkingOf(nil, nil), block{Type: "signature_delta", Signature: e.Text})
		w.sealed = true
	case neutral.Redacted:
		w.add(block{Type: redactedBlock, Data: e.Text})
	case neutral.Call:
		w.add(block{Type: callBlock, ID: e.ID, Name: e.Name, Input: raw("{}")})
	case neutral.Arguments:
		w.argue(e)
	}
}

// piece sends a piece of a block, which it opens if necessary. Reasoning that follows a signature is another one.
func (w *Writer) piece(of, piece block) {
	if w.open != of.Type || w.sealed {
		w.add(of)
	}
	w.delta(piece)
}

func (w *Writer) delta(piece block) {
	w.send(sentEvent{Type: "content_block_delta", Index: &w.index, Delta: &piece})
}

func (w *Writer) argue(e neutral.Event) {
	if w.open != callBlock || e.Call != w.Calls-1 {
		w.Fail(wire.BadGateway("The provider continued a function call that it had already finished", nil), 0)
		return
	}
	if e.Text != nil {
		w.delta(block{Type: "input_json_delta", Partial: e.Text})
	}
}

func (w *Writer) add(b block) {
	w.close()
	w.open = b.Type
	w.send(sentEvent{Type: "content_block_start", Index: &w.index, Block: &b})
}

func (w *Writer) close() {
	if w.open == "" {
		return
	}
	w.send(sentEvent{Type: "content_block_stop", Index: &w.index})
	w.open, w.sealed = "", false
	w.index++
}

func (w *Writer) ending() ending {
	reason, end := "end_turn", ending{Sequence: none, Details: none}
	switch {
	case w.Stop.Reason == neutral.Length:
		reason = "max_tokens"
	case w.Stop.Reason == neutral.Filtered, w.refused:
		reason = "refusal"
		end.Details = neutral.With(neutral.With(raw(`{"type":"refusal"}`), "category", nil), "explanation", w.Stop.Text)
	case w.Calls > 0:
		reason = callBlock
	case w.Stop.Reason == neutral.Sequence:
		reason = "stop_sequence"
		end.Sequence = w.Stop.Text
	}
	end.Reason = neutral.Quote(reason)
	return end
}

func (w *Writer) complete() {
	if w.Stop.Reason == neutral.Failed {
		w.Fail(wire.BadGateway("The provider ended the answer with an error", nil), 0)
		return
	}
	w.close()
	w.Over = true
	end := w.ending()
	if w.Streams {
		w.settle()
		w.send(sentEvent{Type: "message_delta", Delta: &end, Usage: &w.usage})
		w.send(sentEvent{Type: "message_stop"})
		return
	}
	w.Document, _ = json.Marshal(w.message(end), neutral.AsSent) // raw values were read before
}
