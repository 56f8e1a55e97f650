package chat

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// Reader reads chunks of a stream, and whole answers, which have the same members.
type Reader struct {
	to      neutral.Writer
	head    neutral.Head
	calls   []call
	begun   bool
	stopped bool

	chunk struct {
		Choices     raw `json:"choices"`
		Error       raw `json:"error"`
		Usage       raw `json:"usage"`
		ID          raw `json:"id"`
		Model       raw `json:"model"`
		ServiceTier raw `json:"service_tier"`
		Created     raw `json:"created"`
	}
	choice struct {
		Delta        raw `json:"delta"`
		Message      raw `json:"message"`
		FinishReason raw `json:"finish_reason"`
		Usage        raw `json:"usage"` // Moonshot's
	}
	delta struct {
		Content          raw `json:"content"`
		Refusal          raw `json:"refusal"`
		ReasoningContent raw `json:"reasoning_content"`
		Reasoning        raw `json:"reasoning"` // some servers send the same text under both names
		ToolCalls        raw `json:"tool_calls"`
	}
	part struct { // Mistral's, of content and of thinking
		Text     raw `json:"text"`
		Thinking raw `json:"thinking"`
	}
	piece struct { // of a tool call
		Index    raw `json:"index"`
		ID       raw `json:"id"`
		Function raw `json:"function"`
	}
	function struct {
		Name      raw `json:"name"`
		Arguments raw `json:"arguments"`
	}
}

// call is a tool call of the answer.
type call struct {
	id, index raw
	argued    bool
}

// NewReader returns a reader of one answer, which it passes to w.
func NewReader(w neutral.Writer) neutral.Reader { return &Reader{to: w} }

// Whole implements neutral.Reader.
func (r *Reader) Whole(document []byte) error {
	if err := r.read(document); err != nil {
		return err
	}
	if r.chunk.Choices == nil {
		return errors.New("chat: the answer has no choice")
	}
	r.to.Write(neutral.Event{Kind: neutral.End})
	return nil
}

// Chunk implements neutral.Reader.
func (r *Reader) Chunk(data []byte) {
	if string(data) != wire.EndMark {
		_ = r.read(data)
	} else if r.begun {
		r.to.Write(neutral.Event{Kind: neutral.End})
	}
}

// Close implements neutral.Reader: some servers omit the end mark.
func (r *Reader) Close() {
	if r.stopped {
		r.to.Write(neutral.Event{Kind: neutral.End})
	}
}

func (r *Reader) read(data []byte) error {
	document := wire.EventJSON(data)
	if err := neutral.Read(document, &r.chunk); err != nil {
		return err
	}
	c := &r.chunk
	r.heads()
	empty := c.Choices == nil && c.Usage == nil
	if empty || c.Error != nil {
		if chunk, _ := wire.ScanChunk(document, nil); chunk.Error {
			r.begin()
			r.to.Write(neutral.Event{Kind: neutral.Failure, Err: failure(data)})
			return nil
		}
	}
	if empty && !r.begun {
		return nil
	}
	r.begin()
	r.count(c.Usage)
	if c.Choices == nil || c.Choices[0] != '[' {
		return nil
	}
	return wire.EachItem(c.Choices, func(i int, value []byte) error {
		if i > 0 { // only one was requested
			return nil
		}
		if err := neutral.Read(value, &r.choice); err != nil {
			return err
		}
		return r.said()
	})
}

// heads notes what the chunk says of the answer.
func (r *Reader) heads() {
	c := &r.chunk
	if r.head.ID == nil && wire.IsString(c.ID) {
		r.head.ID = bytes.Clone(c.ID)
	}
	if r.head.Model == nil && wire.IsString(c.Model) {
		r.head.Model = bytes.Clone(c.Model)
	}
	if wire.IsString(c.ServiceTier) {
		r.head.Tier = append(r.head.Tier[:0], c.ServiceTier...)
	}
	if n, err := strconv.ParseInt(string(c.Created), 10, 42); err == nil && n > 0 && !r.begun {
		r.head.Created = n
	}
}

func (r *Reader) begin() {
	r.begun = true
	r.to.Write(neutral.Event{Kind: neutral.Begin, Head: r.head})
}

func (r *Reader) text(kind neutral.Kind, text raw) {
	if len(neutral.Inside(text)) > 0 {
		r.to.Write(neutral.Event{Kind: kind, Text: text})
	}
}

// said passes on the content of the choice.
func (r *Reader) said() error {
	r.count(r.choice.Usage)
	message := r.choice.Delta
	if message == nil {
		message = r.choice.Message
	}
	d := &r.delta
	_ = neutral.Read(message, &r.delta)
	thought := nonEmpty(d.ReasoningContent)
	if thought == nil {
		thought = d.Reasoning
	}
	r.text(neutral.Reasoning, thought)
	if err := r.content(); err != nil {
		return err
	}
	r.text(neutral.Refusal, d.Refusal)
	if d.ToolCalls != nil && d.ToolCalls[0] == '[' {
		if err := wire.EachItem(d.ToolCalls, r.called); err != nil {
			return err
		}
	}
	if reason := openai.FinishReason(wire.Word(r.choice.FinishReason)); reason != "" {
		r.stopped = true
		r.to.Write(neutral.Event{Kind: neutral.Stop, Reason: reasons[reason]})
	}
	return nil
}

// reasons are the reasons that are not neutral.Done. The last word is OpenRouter's.
var reasons = map[openai.FinishReason]neutral.Reason{
	openai.FinishReasonLength: neutral.Length, openai.FinishReasonContentFilter: neutral.Filtered, "error": neutral.Failed,
}

// content passes on a string, or Mistral's parts of reasoning and text.
func (r *Reader) content() error {
	content := r.delta.Content
	if content == nil || content[0] != '[' {
		r.text(neutral.Text, content)
		return nil
	}
	return wire.EachItem(content, func(_ int, value []byte) error {
		if err := neutral.Read(value, &r.part); err != nil {
			return err
		}
		thoughts := r.part.Thinking
		if thoughts != nil && thoughts[0] == '[' {
			return wire.EachItem(thoughts, func(_ int, thought []byte) error {
				err := neutral.Read(thought, &r.part)
				r.text(neutral.Reasoning, r.part.Text)
				return err
			})
		}
		r.text(neutral.Reasoning, thoughts)
		r.text(neutral.Text, r.part.Text)
		return nil
	})
}

// called passes on a piece of a tool call. Ollama may send the arguments as an object.
func (r *Reader) called(_ int, value []byte) error {
	if err := neutral.Read(value, &r.piece); err != nil {
		return err
	}
	p, f := &r.piece, &r.function
	_ = neutral.Read(p.Function, &r.function)
	id, name := nonEmpty(p.ID), nonEmpty(f.Name)
	at := r.known(id, name)
	if at < 0 {
		at = len(r.calls)
		r.calls = append(r.calls, call{id: bytes.Clone(id), index: bytes.Clone(p.Index)})
		r.to.Write(neutral.Event{Kind: neutral.Call, Call: at, ID: id, Name: name})
	}
	text := nonEmpty(f.Arguments)
	if len(f.Arguments) > 0 && f.Arguments[0] == '{' {
		text = wire.AppendQuoted(nil, string(f.Arguments))
	}
	r.calls[at].argued = r.calls[at].argued || text != nil
	r.to.Write(neutral.Event{Kind: neutral.Arguments, Call: at, Text: text})
	return nil
}

// known returns the call that the current piece continues, or -1. A piece starts a new call if
// its index is new, or if it has a name and either another id or the previous call already has
// arguments. Some servers number all calls 0; others give every piece its own id, or none.
func (r *Reader) known(id, name raw) int {
	index := r.piece.Index
	for i := len(r.calls) - 1; i >= 0; i-- {
		c := &r.calls[i]
		last := i == len(r.calls)-1
		here := same(c.index, index) || index == nil && last && name == nil
		named := name != nil && (id != nil || c.argued)
		if same(c.id, id) || here && !named {
			return i
		}
	}
	return -1
}

func same(a, b raw) bool { return len(a) > 0 && bytes.Equal(a, b) }

// nonEmpty returns a string that is not empty, or nil.
func nonEmpty(s raw) raw {
	if len(neutral.Inside(s)) == 0 {
		return nil
	}
	return s
}

// usage is neutral.Usage with chat's names.
type usage struct {
	Input         raw `json:"prompt_tokens"`
	InputDetails  raw `json:"prompt_tokens_details"`
	Output        raw `json:"completion_tokens"`
	OutputDetails raw `json:"completion_tokens_details"`
	Total         raw `json:"total_tokens"`
	CacheRead     raw `json:"-"`
	More          raw `json:",embed"`
}

func (r *Reader) count(given raw) {
	if given == nil {
		return
	}
	e := neutral.Event{Kind: neutral.Count}
	var u usage
	if given[0] == '{' && json.Unmarshal(given, &u, neutral.AsSent) == nil {
		u.CacheRead = neutral.Member(u.More, "prompt_cache_hit_tokens") // DeepSeek's
		e.Usage = (*neutral.Usage)(&u)
	}
	r.to.Write(e)
}

// failure reads an event that replaces the rest of a stream. Its code says what a number said.
func failure(event []byte) *wire.Error {
	e := wire.ParseErrorEvent(event)
	if e.Code == "upstream_error" && e.Status != http.StatusBadGateway {
		e.Code = strconv.Itoa(e.Status)
	}
	return e
}
