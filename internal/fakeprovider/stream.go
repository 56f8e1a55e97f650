package fakeprovider

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

const chunkObject = "chat.completion.chunk"

type chunkChoice struct {
	Index   int       `json:"index"`
	Delta   delta     `json:"delta"`
	Logprob *struct{} `json:"logprobs"`
	Finish  *string   `json:"finish_reason"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// stream writes one answer as server-sent events.
type stream struct {
	x       *exchange
	a       *answer
	out     io.Writer
	flush   func()
	newline string
	gap     time.Duration
	usage   Usage // so far
	sent    int   // content chunks
	middle  int   // chunks before the fault
	over    bool  // nothing more may be written
	form    form
}

// form writes the events of one endpoint's streams.
type form interface {
	begin()               // before the first piece
	piece(i int, d delta) // of choice i
	end()                 // finish reasons, usage and whatever else comes last
	fail(e *apiError)     // an error instead of the rest
	pad(text string)      // an event of this size
}

func newStream(x *exchange, a *answer) *stream {
	s := &stream{x: x, a: a, out: x.w, newline: "\n"}
	switch x.r.URL.Path {
	case "/v1/responses":
		s.form = &responseForm{s: s, r: newResponse(x, a)}
	case "/v1/completions":
		s.form = textForm{s}
	case "/v1/messages":
		s.form = &claudeForm{stream: s}
	default:
		s.form = chatForm{s}
	}
	s.flush = func() { _ = http.NewResponseController(x.w).Flush() }
	switch x.b.Newline {
	case "crlf":
		s.newline = "\r\n"
	case "cr":
		s.newline = "\r"
	}
	_, s.gap = x.cadence()
	s.usage = a.usage
	s.usage.Completion, s.usage.Reasoning = 0, 0
	total := 0
	for _, c := range a.choices {
		total += len(c.deltas(x.b.Chunk))
	}
	s.middle = cmp.Or(x.b.After, total/2)
	return s
}

// run writes the whole stream, including faults.
func (s *stream) run() {
	x := s.x
	x.w.Header().Set("Cache-Control", "no-cache")
	if x.b.Gzip && strings.Contains(x.r.Header.Get("Accept-Encoding"), "gzip") {
		x.w.Header().Set("Content-Encoding", "gzip")
		zip, flush := gzip.NewWriter(x.w), s.flush
		s.out, s.flush = zip, func() { _ = zip.Flush(); flush() }
		defer func() { _ = zip.Close() }()
	}
	x.begin(http.StatusOK, "text/event-stream; charset=utf-8")
	s.flush()
	x.used(s.usage)
	if first, _ := x.cadence(); !x.s.sleep(x.ctx, first) {
		s.gone()
		return
	}
	if x.b.Early {
		s.fault()
		s.middle = -1
	}
	if !s.over {
		s.begin()
		s.body()
	}
	s.end()
}

// begin starts the answer; reasoning is complete by then.
func (s *stream) begin() {
	for _, c := range s.a.choices {
		s.usage.Completion += c.reasoning
		s.usage.Reasoning += c.reasoning
	}
	s.form.begin()
	s.x.used(s.usage)
}

// chatForm writes chat.completion.chunks.
type chatForm struct{ *stream }

// begin sends the chunks with the role.
func (s chatForm) begin() {
	for i, c := range s.a.choices {
		d := delta{Role: "assistant"}
		if len(c.calls) == 0 {
			d.Content = new("")
		}
		s.chunk(i, d, nil)
	}
}

func (s chatForm) piece(i int, d delta) { s.chunk(i, d, nil) }

func (s chatForm) fail(e *apiError) { s.event(e.body()) }

func (s chatForm) end() {
	for i, c := range s.a.choices {
		s.chunk(i, delta{}, &c.finish)
	}
	if s.x.q.IncludeUsage && s.x.b.Usage != UsageEvery {
		if raw := s.x.usage(chatUsage(s.usage)); raw != nil {
			c := s.a.frame(chunkObject)
			c.Choices, c.Usage = []chunkChoice{}, raw
			s.event(encode(c))
		}
	}
	s.sayDone()
}

// sayDone sends [DONE], or omits it.
func (s *stream) sayDone() {
	if s.concludes() {
		s.event([]byte("[DONE]"))
	}
}

// concludes records the end of the answer, and reports whether its last event is sent.
func (s *stream) concludes() bool {
	if s.x.b.Cut == CutNoDone {
		s.x.outcome(WasCut)
		return false
	}
	s.x.outcome(OK)
	return true
}

// piece is one delta and its number of tokens.
type piece struct {
	delta  delta
	tokens int64
}

// deltas returns the pieces of a choice, with perChunk tokens of text each.
func (c *choice) deltas(perChunk int) []piece {
	perChunk = max(perChunk, 1)
	var out []piece
	for i := range c.calls {
		out = append(out, c.callDeltas(i)...)
	}
	share := int64(1)
	if n := int64(len(c.pieces)); n > 0 {
		share = max(1, c.tokens/n)
	}
	for i := 0; i < len(c.pieces); i += perChunk {
		part := c.pieces[i:min(i+perChunk, len(c.pieces))]
		text := strings.Join(part, "")
		out = append(out, piece{delta{Content: &text}, share * int64(len(part))})
	}
	return out
}

// callDeltas returns the pieces of one call: its name, then parts of its arguments.
func (c *choice) callDeltas(i int) []piece {
	head := c.calls[i]
	args := head.Function.Arguments
	head.Index, head.Function = &i, &calledFunc{Name: head.Function.Name}
	out := []piece{{delta{ToolCalls: []toolCall{head}}, 8}}
	for _, part := range split(args, int64(len(args)/12+1)) {
		t := toolCall{Index: &i, Function: &calledFunc{Arguments: part}}
		out = append(out, piece{delta{ToolCalls: []toolCall{t}}, 3})
	}
	return out
}

// body sends the content of all choices, interleaved.
func (s *stream) body() {
	lists := make([][]piece, len(s.a.choices))
	longest := 0
	for i, c := range s.a.choices {
		lists[i] = c.deltas(s.x.b.Chunk)
		longest = max(longest, len(lists[i]))
	}
	for row := range longest {
		for i, list := range lists {
			if row < len(list) && !s.content(i, list[row]) {
				return
			}
		}
	}
	if s.x.b.Endless {
		s.endless()
	}
	if s.sent <= s.middle && !s.over {
		s.fault()
	}
}

// endless continues until the connection ends.
func (s *stream) endless() {
	p := prose{rng: newRand(s.a.id), started: true}
	for {
		text := p.next()
		if !s.content(0, piece{delta{Content: &text}, 1}) {
			return
		}
	}
}

// content sends one piece, after a fault that is due, and reports whether the stream continues.
func (s *stream) content(i int, p piece) bool {
	if s.sent == s.middle {
		s.fault()
	}
	if s.over {
		return false
	}
	s.sent++
	s.usage.Completion += p.tokens
	s.form.piece(i, p.delta)
	s.x.used(s.usage)
	if !s.over && !s.x.s.sleep(s.x.ctx, s.gap) {
		s.gone()
	}
	return !s.over
}

// fault produces the behavior's faults in the middle of the stream.
func (s *stream) fault() {
	b := &s.x.b
	if b.Garbage {
		s.raw("data: {\"id\":\"chatcmpl-broken\",\"choices\":[{\"delta\":{\"content\":" + s.newline + s.newline)
	}
	if b.Raw != "" {
		s.raw(strings.Repeat(b.Raw, max(1, b.Repeat)))
	}
	if b.LongLine > 0 {
		s.form.pad(strings.Repeat("x", b.LongLine))
	}
	if b.Stall > 0 && !s.x.s.sleep(s.x.ctx, b.Stall) {
		s.gone()
		return
	}
	switch b.Cut {
	case CutReset:
		s.over = true
		s.x.s.sleep(s.x.ctx, 20*time.Millisecond) // a reset would overtake bytes in flight
		s.x.reset()
	case CutAbort:
		s.x.outcome(WasCut)
		panic(http.ErrAbortHandler)
	case CutEOF:
		s.over = true
		s.x.outcome(WasCut)
	case CutError:
		fail := *b
		fail.Status = 500
		s.form.fail(fail.scripted())
		s.over = true
		s.x.outcome(WasCut)
	}
}

// pad sends a chunk with padding.
func (s *stream) pad(text string) {
	c := s.a.frame(chunkObject)
	c.Choices, c.Obfuscation = []chunkChoice{{}}, text
	s.event(encode(c))
}

// gone records that the client has disconnected.
func (s *stream) gone() {
	s.over = true
	s.x.abandon()
}

// end completes the answer.
func (s *stream) end() {
	if s.over {
		return
	}
	s.usage = s.a.usage
	s.x.used(s.usage)
	s.x.s.log.update(s.x.rec, (*Record).last)
	s.form.end()
}

// chunk sends one delta of one choice.
func (s *stream) chunk(i int, d delta, finish *string) {
	c := s.a.frame(chunkObject)
	c.Choices = []chunkChoice{{Index: i, Delta: d, Finish: finish}}
	switch {
	case s.x.b.Usage == UsageEvery:
		c.Usage = s.x.usage(chatUsage(s.usage))
	case s.x.q.IncludeUsage && s.x.b.Usage != UsageNone:
		c.Usage = json.RawMessage("null")
	}
	s.event(encode(c))
}

// event sends one data line.
func (s *stream) event(data []byte) { s.named("", data) }

// named sends one event, with the name of its type unless that is empty.
func (s *stream) named(kind string, data []byte) {
	text := "data: " + string(data) + s.newline + s.newline
	if kind != "" {
		text = "event: " + kind + s.newline + text
	}
	if s.x.b.Comments {
		text = ": FAKE PROCESSING" + s.newline + s.newline + text
	}
	s.raw(text)
}

// raw writes and flushes, in as many writes as Split requires.
func (s *stream) raw(text string) {
	if s.over {
		return
	}
	for _, part := range s.x.b.writes(text) {
		if _, err := io.WriteString(s.out, part); err != nil {
			s.gone()
			return
		}
		s.flush()
		if len(part) < len(text) && s.x.b.Split == "utf8" {
			time.Sleep(200 * time.Microsecond) // so that the client reads it separately
		}
	}
}

// writes splits a text according to Split: after each byte of a multi-byte character, or after
// every byte.
func (b *Behaviour) writes(text string) []string {
	if b.Split == "" {
		return []string{text}
	}
	var parts []string
	from := 0
	for i := 1; i < len(text); i++ {
		if b.Split == "byte" || !utf8.RuneStart(text[i]) {
			parts = append(parts, text[from:i])
			from = i
		}
	}
	return append(parts, text[from:])
}
