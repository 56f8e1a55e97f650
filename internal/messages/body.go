package messages

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmguard/llmguard/internal/neutral"
)

type (
	request struct {
		Model       raw       `json:"model"`
		MaxTokens   int64     `json:"max_tokens"`
		System      []block   `json:"system,omitzero"`
		Messages    []message `json:"messages"`
		Tools       []tool    `json:"tools,omitzero"`
		ToolChoice  *choice   `json:"tool_choice,omitzero"`
		Thinking    raw       `json:"thinking,omitzero"`
		Output      raw       `json:"output_config,omitzero"`
		Stop        raw       `json:"stop_sequences,omitzero"`
		Stream      raw       `json:"stream,omitzero"`
		Temperature raw       `json:"temperature,omitzero"`
		TopP        raw       `json:"top_p,omitzero"`
		TopK        raw       `json:"top_k,omitzero"`
		Metadata    raw       `json:"metadata,omitzero"`
		ServiceTier string    `json:"service_tier,omitzero"`
		More        raw       `json:",embed"`
	}
	message struct {
		Role    neutral.Role `json:"role"`
		Content []block      `json:"content"`
	}
	// block is a content block, or a piece of one in a stream.
	block struct {
		Type      string  `json:"type"`
		Partial   raw     `json:"partial_json,omitzero"`
		Text      raw     `json:"text,omitzero"`
		Thinking  raw     `json:"thinking,omitzero"`
		Signature raw     `json:"signature,omitzero"`
		Data      raw     `json:"data,omitzero"`
		Source    *origin `json:"source,omitzero"`
		Title     raw     `json:"title,omitzero"`
		ID        raw     `json:"id,omitzero"`
		Name      raw     `json:"name,omitzero"`
		Input     raw     `json:"input,omitzero"`
		CallID    raw     `json:"tool_use_id,omitzero"`
		Content   []block `json:"content,omitzero"`
		Failed    bool    `json:"is_error,omitzero"`
		Cache     raw     `json:"cache_control,omitzero"`
	}
	origin struct {
		Type      string `json:"type"`
		MediaType raw    `json:"media_type,omitzero"`
		Data      raw    `json:"data,omitzero"`
		URL       raw    `json:"url,omitzero"`
	}
	tool struct {
		Name        raw  `json:"name"`
		Description raw  `json:"description,omitzero"`
		Schema      raw  `json:"input_schema"`
		Strict      bool `json:"strict,omitzero"`
		Cache       raw  `json:"cache_control,omitzero"`
	}
	choice struct {
		Type   string `json:"type"`
		Name   raw    `json:"name,omitzero"`
		Single bool   `json:"disable_parallel_tool_use,omitzero"`
	}
)

// Body returns the body of a Messages request. It drops reasoning without a signature, which the API would refuse,
// and the detail of pictures.
func Body(r *neutral.Request, f neutral.Form) ([]byte, error) {
	q := request{
		Model: r.Model, MaxTokens: r.Limit, Stream: r.Stream, Temperature: r.Temperature, TopP: r.TopP, TopK: r.TopK,
		Stop: r.Stop, ServiceTier: serviceTiers[string(r.ServiceTier)], Messages: []message{}, More: r.More,
	}
	if q.MaxTokens < 0 {
		q.MaxTokens = f.Limit
	}
	for i := range r.Messages {
		q.add(&r.Messages[i])
	}
	q.offer(r)
	q.reason(r, f.Model)
	if r.Format.Schema != nil {
		schema := neutral.Member(r.Format.Schema, "schema") // the provider refuses its absence
		form := neutral.With(neutral.With(nil, "type", neutral.Quote(r.Format.Type)), "schema", schema)
		q.Output = neutral.With(q.Output, "format", form)
	}
	if r.User != nil {
		q.Metadata = neutral.With(nil, "user_id", r.User)
	}
	body := bytes.NewBuffer(make([]byte, 0, f.Size+f.Size/3)) // a buffer with less room left would grow
	err := json.MarshalWrite(body, &q, neutral.AsSent)
	return body.Bytes(), err
}

// serviceTiers are the names of the tiers that other APIs have, too.
var serviceTiers = map[string]string{`"auto"`: "auto", `"default"`: "standard_only"}

// budgetModels are how the names of models begin that know only a budget of thinking: those before 4.6.
var budgetModels = []string{
	"claude-3", "claude-haiku-4", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025", "claude-opus-4-5",
	"claude-sonnet-4-0", "claude-sonnet-4-2025", "claude-sonnet-4-5",
}

// budgets are the tokens of thinking for each effort. leastBudget is the smallest that the API takes.
var budgets = map[string]int64{
	"minimal": leastBudget, "low": 2048, "medium": 8192, "high": 24_576, "xhigh": 32_000, "max": 64_000,
}

const leastBudget = 1024

// reason sets how much to think. Models before 4.6 know only a budget, and later ones only an effort.
func (q *request) reason(r *neutral.Request, model string) {
	effort, budget := r.Effort, r.Budget
	if slices.ContainsFunc(budgetModels, func(begin string) bool { return strings.HasPrefix(model, begin) }) {
		budget = cmp.Or(budget, min(budgets[effort], q.MaxTokens/2))
		if effort != "none" {
			effort = ""
		}
		if budget < leastBudget { // too little is left for thinking
			budget = 0
		}
	}
	switch {
	case budget > 0:
		q.Thinking = neutral.With(raw(`{"type":"enabled"}`), "budget_tokens", strconv.AppendInt(nil, budget, 10))
	case effort == "none":
		q.Thinking = raw(`{"type":"disabled"}`)
		return
	case effort != "":
		q.Thinking = raw(`{"type":"adaptive"}`)
	}
	if effort == "minimal" {
		effort = "low"
	}
	if effort != "" {
		q.Output = neutral.With(nil, "effort", neutral.Quote(effort))
	}
}

// noParameters is the schema of a function without any.
var noParameters = raw(`{"type":"object","properties":{}}`)

// offer sets the tools, and which of them to call.
func (q *request) offer(r *neutral.Request) {
	for _, t := range r.Tools {
		if t.Parameters == nil {
			t.Parameters = noParameters
		}
		q.Tools = append(q.Tools, tool{t.Name, t.Description, t.Parameters, t.Strict, t.Cache})
	}
	c := choice{Single: string(r.Parallel) == "false"}
	switch mode := string(r.Choice.Mode); {
	case len(r.Tools) == 0:
		return
	case r.Choice.Name != nil:
		c.Type, c.Name = "tool", r.Choice.Name
	case mode == `"required"`:
		c.Type = "any"
	case mode == `"none"`:
		c = choice{Type: "none"}
	case mode != "", c.Single:
		c.Type = "auto"
	default:
		return
	}
	q.ToolChoice = &c
}

// add adds a message. What one side says in several messages becomes one, with the results of tools as the user's. The
// API accepts a system prompt at its place only after the user; elsewhere it joins the first.
func (q *request) add(m *neutral.Message) {
	blocks, role := blocksOf(slices.DeleteFunc(slices.Clone(m.Parts), unfit)), m.Role
	if role == neutral.RoleTool {
		role = neutral.RoleUser
		result := block{Type: "tool_result", CallID: m.CallID, Content: blocks, Failed: m.Failed, Cache: m.Cache}
		blocks = []block{result}
	}
	var last neutral.Role
	if n := len(q.Messages); n > 0 {
		last = q.Messages[n-1].Role
	}
	switch {
	case len(blocks) == 0:
	case role == last:
		content := &q.Messages[len(q.Messages)-1].Content
		*content = append(*content, blocks...)
	case role == neutral.RoleSystem && last != neutral.RoleUser:
		q.System = append(q.System, blocks...)
	default:
		q.Messages = append(q.Messages, message{role, blocks})
	}
}

// unfit reports whether the API would refuse a part: an empty text, or reasoning without a signature.
func unfit(p neutral.Part) bool {
	return p.Kind == neutral.Text && len(neutral.Inside(p.Text)) == 0 ||
		p.Kind == neutral.Reasoning && len(neutral.Inside(p.Signature)) == 0
}

func blocksOf(parts []neutral.Part) []block {
	var list []block
	for i := range parts {
		b := blockOf(&parts[i])
		b.Cache = parts[i].Cache
		list = append(list, b)
	}
	return list
}

func blockOf(p *neutral.Part) block {
	switch p.Kind {
	case neutral.Image:
		return block{Type: "image", Source: originOf(p.URL)}
	case neutral.File:
		return block{Type: "document", Source: originOf(slices.Concat(p.Data, p.URL)), Title: p.Name}
	case neutral.Reasoning:
		return thinkingOf(p.Text, p.Signature)
	case neutral.Redacted:
		return block{Type: redactedBlock, Data: p.Data}
	case neutral.Call:
		return block{Type: callBlock, ID: p.CallID, Name: p.Name, Input: object(p.Arguments)}
	}
	return block{Type: textBlock, Text: p.Text}
}

// thinkingOf returns a block of reasoning, which has both texts even if they are empty.
func thinkingOf(text, signature raw) block {
	b := block{Type: thinkingBlock, Thinking: text, Signature: signature}
	if text == nil {
		b.Thinking = empty
	}
	if signature == nil {
		b.Signature = empty
	}
	return b
}

// originOf returns the source for a URL. One with the data is split.
func originOf(url raw) *origin {
	rest, ok := bytes.CutPrefix(neutral.Inside(url), []byte("data:"))
	kind, data, split := bytes.Cut(rest, []byte(";base64,"))
	if ok && split {
		return &origin{Type: "base64", MediaType: neutral.Quote(kind), Data: neutral.Quote(data)}
	}
	return &origin{Type: "url", URL: url}
}

// object returns the arguments of a call as the object that the API requires. What is none is wrapped as Anthropic
// recommends.
func object(arguments raw) raw {
	text, err := jsontext.AppendUnquote(nil, arguments)
	value := raw(bytes.TrimSpace(text))
	switch {
	case err == nil && len(value) == 0:
		return raw("{}")
	case err == nil && value[0] == '{' && value.IsValid():
		return value
	}
	return neutral.With(nil, "INVALID_JSON", arguments)
}
