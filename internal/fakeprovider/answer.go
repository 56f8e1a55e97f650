package fakeprovider

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"
)

// answer is a chat completion in a form from which both response formats are written.
type answer struct {
	id, model, tier string
	created         int64
	choices         []*choice
	usage           Usage
	others          []Charge // of the Messages API: further samplings, which are not in usage
	fallback        bool     // another model answers than the one that was asked
}

// choice is one of the n choices.
type choice struct {
	pieces    []string // content, token by token
	calls     []toolCall
	finish    string
	tokens    int64 // visible, without reasoning
	reasoning int64
}

type toolCall struct {
	Index    *int        `json:"index,omitempty"`
	ID       string      `json:"id,omitempty"`
	Type     string      `json:"type,omitempty"`
	Function *calledFunc `json:"function,omitempty"`
}

type calledFunc struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// newID returns prefix followed by 26 random letters.
func newID(prefix string) string { return prefix + rand.Text() }

// answerTo generates the answer.
func (s *Server) answerTo(q *Request, b *Behaviour) (*answer, error) {
	a := &answer{
		id: newID("chatcmpl-"), model: cmp.Or(b.Model, q.Model), tier: cmp.Or(b.Tier, q.tier()),
		created: time.Now().Unix(),
	}
	for i := range q.N {
		c, err := s.choice(q, b, newRand(s.opts.Seed, q.Model, q.UserText, i))
		if err != nil {
			return nil, err
		}
		a.choices = append(a.choices, c)
		a.usage.Completion += c.tokens + c.reasoning
		a.usage.Reasoning += c.reasoning
	}
	if per := q.N / max(len(q.inputs), 1); q.bestOf > per { // candidates that were not the best are billed too
		a.usage.Completion = a.usage.Completion * int64(q.bestOf) / int64(per)
	}
	if q.claude != nil {
		s.claudeInput(q, b, a)
		return a, nil
	}
	a.usage.Prompt = q.promptTokens()
	s.cached(q, b, &a.usage)
	return a, nil
}

// cached sets what the prompt cache had, and for GPT-5.6 and later what was written to it.
func (s *Server) cached(q *Request, b *Behaviour, u *Usage) {
	u.Cached = s.hit(q, u.Prompt)
	switch {
	case b.Cached > 0:
		u.Cached = min(b.Cached, u.Prompt)
	case b.Cached < 0:
		u.Cached = 0
	}
	if strings.HasPrefix(q.Model, "gpt-5.6") || strings.HasPrefix(q.Model, "gpt-6") {
		if whole := u.Prompt / cacheStep * cacheStep; whole >= cacheMinimum {
			u.CacheWrite = max(whole-u.Cached, 0)
		}
	}
}

// choice generates reasoning and then output, within the output limit.
func (s *Server) choice(q *Request, b *Behaviour, rng *mrand.Rand) (*choice, error) {
	c := &choice{finish: "stop", reasoning: q.reasoning(b, rng)}
	room := int64(-1)
	if q.MaxTokens >= 0 {
		c.reasoning = min(c.reasoning, q.MaxTokens)
		room = q.MaxTokens - c.reasoning
	}
	err := c.write(q, b, rng, room)
	c.finish = cmp.Or(b.Finish, c.finish)
	return c, err
}

// reasoning returns the number of reasoning tokens, in multiples of 64 like OpenAI's.
func (q *Request) reasoning(b *Behaviour, rng *mrand.Rand) int64 {
	switch {
	case b.Reasoning != 0:
		return max(b.Reasoning, 0)
	case q.claude != nil && !q.claude.thinks, q.claude == nil && !reasons(q.Model):
		return 0
	}
	effort := map[string]int64{"none": 0, "minimal": 0, "low": 1, "medium": 3, "high": 8, "xhigh": 16, "max": 32}
	steps, known := effort[q.Effort]
	if !known {
		steps = effort["medium"]
	}
	if steps == 0 {
		return 0
	}
	return 64 * (steps + rng.Int64N(steps+1))
}

// write generates tool calls or text.
func (c *choice) write(q *Request, b *Behaviour, rng *mrand.Rand, room int64) error {
	if q.callsTool(b) {
		return c.callTools(q, b, rng, room)
	}
	text, given := b.Text, b.Text != ""
	if !given {
		var err error
		text, given, err = q.structured(rng)
		if err != nil {
			return err
		}
	}
	if given {
		c.fixed(q.Model, text, room)
		return nil
	}
	n := plausible(rng)
	switch {
	case b.Output != 0:
		n = max(b.Output, 0)
	case b.Fill && room >= 0:
		n = room
	}
	if room >= 0 && (n > room || b.Fill) {
		n, c.finish = min(n, room), "length"
	}
	c.invent(q.Model, b, rng, n)
	return nil
}

// foreign is text with multi-byte characters.
const foreign = "Überraschung: 日本語 🙂"

// invent generates n tokens.
func (c *choice) invent(model string, b *Behaviour, rng *mrand.Rand, n int64) {
	p := prose{rng: rng}
	c.tokens = n
	if k := countText(model, foreign); b.Split != "" && n >= k {
		p.started = true
		n -= k
		c.pieces = append(c.pieces, foreign)
	}
	c.pieces = append(c.pieces, p.take(n, c.finish == "stop")...)
}

// plausible returns the length of an answer when the request specifies none.
func plausible(rng *mrand.Rand) int64 { return 24 + rng.Int64N(96) }

// fixed sets a given text, truncated at the limit.
func (c *choice) fixed(model, text string, room int64) {
	c.tokens = countText(model, text)
	if room >= 0 && c.tokens > room {
		text = truncate(model, text, room)
		c.tokens, c.finish = countText(model, text), "length"
	}
	c.pieces = split(text, c.tokens)
}

// structured returns the text for a response_format that requires JSON.
func (q *Request) structured(rng *mrand.Rand) (text string, asked bool, err error) {
	switch q.format.Type {
	case "", "text":
		return "", false, nil
	case "json_object":
		return `{"answer":"` + strings.Join((&prose{rng: rng}).take(8, true), "") + `"}`, true, nil
	case "json_schema":
		text, err := instance(rng, q.format.JSONSchema.Schema)
		if err != nil {
			return "", true, invalid("response_format", "", "Invalid schema for response_format '%s': %v.",
				q.format.JSONSchema.Name, err)
		}
		return text, true, nil
	}
	return "", true, invalid("response_format.type", "invalid_value",
		"Invalid value: '%s'. Supported values are: 'json_object', 'json_schema', and 'text'.", q.format.Type)
}

// callsTool reports whether to call a tool: if tools are offered, but not again after a tool
// result, unless the request requires it.
func (q *Request) callsTool(b *Behaviour) bool {
	if len(q.tools) == 0 || b.Tools < 0 || bytes.Equal(q.toolChoice, []byte(`"none"`)) {
		return false
	}
	insists := b.Call != "" || len(q.toolChoice) > 0 && !bytes.Equal(q.toolChoice, []byte(`"auto"`))
	last := q.messages[len(q.messages)-1].Role
	return insists || b.Tools > 0 || last != "tool"
}

// callTools calls the named tool, or the first one offered.
func (c *choice) callTools(q *Request, b *Behaviour, rng *mrand.Rand, room int64) error {
	offered := q.chosen(b.Call)
	if len(offered) == 0 {
		return invalid("tool_choice", "", "Tool choice names a tool that is not in 'tools'.")
	}
	c.finish = "tool_calls"
	n := max(b.Tools, 1)
	if q.claude != nil && q.claude.Choice.Alone {
		n = 1
	}
	for i := range n {
		call, err := callOf(offered[i%len(offered)], rng)
		if err != nil {
			return err
		}
		if b.Args != "" {
			call.Function.Arguments = b.Args
		}
		c.add(q.Model, call, &room)
	}
	return nil
}

// add appends a call, and truncates its arguments when the limit is reached.
func (c *choice) add(model string, call toolCall, room *int64) {
	called := call.Function
	overhead := 8 + countText(model, called.Name)
	tokens := overhead + countText(model, called.Arguments)
	if *room >= 0 && tokens > *room {
		called.Arguments = truncate(model, called.Arguments, max(*room-overhead, 0))
		tokens, c.finish = *room, "length"
	}
	if *room >= 0 {
		*room -= tokens
	}
	c.tokens += tokens
	c.calls = append(c.calls, call)
}

// chosen returns the tools that tool_choice allows, and of these only the one with a name unless that is empty.
func (q *Request) chosen(name string) []tool {
	var named struct{ Function openai.ToolFunction }
	var flat openai.ToolFunction
	_ = json.Unmarshal(q.toolChoice, &named) // it may be a word
	_ = json.Unmarshal(q.toolChoice, &flat)
	name = cmp.Or(name, flat.Name+named.Function.Name)
	return slices.DeleteFunc(slices.Clone(q.tools), func(t tool) bool { return name != "" && t.Function.Name != name })
}

func callOf(t tool, rng *mrand.Rand) (toolCall, error) {
	call := toolCall{ID: newID("call_"), Type: "function"}
	args := "{}"
	if len(t.Function.Parameters) > 0 {
		var err error
		args, err = instance(rng, t.Function.Parameters)
		if err != nil {
			return call, invalid("tools", "invalid_function_parameters", "Invalid schema for function '%s': %v.",
				t.Function.Name, err)
		}
	}
	call.Function = &calledFunc{Name: t.Function.Name, Arguments: args}
	return call, nil
}
