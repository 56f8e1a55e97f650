package chat

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// The types below are a whole answer and a chunk of a stream, which have the same members.
type (
	completion struct {
		ID      raw      `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   raw      `json:"model"`
		Tier    raw      `json:"service_tier,omitzero"`
		Choices []choice `json:"choices"`
		Usage   raw      `json:"usage,omitzero"`
	}
	choice struct {
		Index   int      `json:"index"`
		Delta   *message `json:"delta,omitzero"`
		Message *message `json:"message,omitzero"`
		Reason  raw      `json:"finish_reason"` // null before the end
	}
)

// maxThinking limits, in bytes of JSON, one reasoning, which is repeated with its signature.
const maxThinking = 6 << 20

// Writer builds a chat completion, or the chunks of its stream, from the events of an answer.
type Writer struct {
	neutral.Draft
	usage    raw
	thinking raw // of a stream, until its signature
	thoughts int
}

// NewWriter returns a writer of one answer.
func NewWriter(r neutral.Reply, streams bool) neutral.Writer {
	return &Writer{Draft: neutral.NewDraft(r, streams)}
}

// Full implements neutral.Writer.
func (w *Writer) Full() bool { return len(w.thinking) > maxThinking }

// Held implements neutral.Writer.
func (w *Writer) Held() int { return cap(w.thinking) }

// Write implements neutral.Writer.
func (w *Writer) Write(e neutral.Event) {
	if w.Over {
		return
	}
	switch e.Kind {
	case neutral.Begin:
		if w.Begin(e.Head, "chatcmpl-") {
			w.delta(message{Role: neutral.RoleAssistant, Content: raw(`""`)})
		}
	case neutral.Count:
		w.usage = usageOf(e.Usage)
	case neutral.Stop:
		e.Text = bytes.Clone(e.Text)
		w.Stop = e
	case neutral.Failure:
		w.Fail(e.Err, 0)
	case neutral.End:
		w.complete()
	case neutral.Call:
		w.content(w.Called(e, "call_"))
	default:
		w.content(e)
	}
}

func (w *Writer) delta(m message) { w.send([]choice{{Delta: &m}}, nil) }

func (w *Writer) send(choices []choice, usage raw) {
	if w.Streams {
		w.Out().WriteString("data: ")
		w.Out().Write(w.completion("chat.completion.chunk", choices, usage))
		w.Out().WriteString("\n\n")
	}
}

func (w *Writer) completion(object string, choices []choice, usage raw) []byte {
	h := w.Head
	c := completion{h.ID, object, h.Created, h.Model, h.Tier, choices, usage}
	text, _ := json.Marshal(&c, neutral.AsSent) // raw values were read before
	return text
}

// content adds an event of the content to a whole answer, or sends it. Reasoning is kept until its signature, which is
// sent with it.
func (w *Writer) content(e neutral.Event) {
	if !w.Streams {
		w.Keep(e)
		return
	}
	switch e.Kind {
	case neutral.Text:
		w.thinking = nil
		w.delta(message{Content: e.Text})
	case neutral.Refusal:
		w.delta(message{Refusal: e.Text})
	case neutral.Reasoning:
		w.thinking = neutral.Grow(w.thinking, e.Text)
		w.delta(message{Reasoning: e.Text})
	case neutral.Signature:
		w.think(thought{Type: signedType, Text: neutral.Quote(neutral.Inside(w.thinking)), Signature: e.Text})
		w.thinking = nil
	case neutral.Redacted:
		w.think(thought{Type: encryptedType, Data: e.Text})
	case neutral.Call:
		c := callOf(e.ID, e.Name, raw(`""`))
		c.Index = &e.Call
		w.delta(message{ToolCalls: []toolCall{c}})
	case neutral.Arguments:
		if e.Text != nil {
			w.delta(message{ToolCalls: []toolCall{{Index: &e.Call, Function: called{Arguments: e.Text}}}})
		}
	}
}

func (w *Writer) think(t thought) {
	t.Index, t.Format = w.thoughts, signedFormat
	w.thoughts++
	w.delta(message{Details: []thought{t}})
}

// finish returns why the answer ended.
func (w *Writer) finish() raw {
	for word, reason := range reasons {
		if reason == w.Stop.Reason {
			return neutral.Quote(word)
		}
	}
	if w.Calls > 0 {
		return neutral.Quote(openai.FinishReasonToolCalls)
	}
	return neutral.Quote(openai.FinishReasonStop)
}

func (w *Writer) complete() {
	if w.Stop.Reason == neutral.Filtered && w.Stop.Text != nil {
		w.content(neutral.Event{Kind: neutral.Refusal, Text: w.Stop.Text})
	}
	w.Over = true
	if !w.Streams {
		m := messageOf(neutral.Message{Role: neutral.RoleAssistant, Parts: w.Parts})
		w.Document = w.completion("chat.completion", []choice{{Message: &m, Reason: w.finish()}}, w.usage)
		return
	}
	w.send([]choice{{Delta: &message{}, Reason: w.finish()}}, nil)
	if w.usage != nil && w.Request.IncludeUsage {
		w.send([]choice{}, w.usage)
	}
	w.Out().WriteString("data: " + wire.EndMark + "\n\n")
}

// usageOf returns usage in chat's names; nil if it is unknown.
func usageOf(given *neutral.Usage) raw {
	if given == nil {
		return nil
	}
	u := usage(given.Complete())
	text, _ := json.Marshal(&u, neutral.AsSent) // raw values were read before
	return text
}
