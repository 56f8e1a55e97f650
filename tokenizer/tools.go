package tokenizer

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// ToolCallOverhead is the maximum that a tool call in an assistant message adds to the tokens
	// of its name and arguments.
	ToolCallOverhead = 8

	toolsBase   = 9  // the system message that contains the definitions
	toolsMargin = 16 // added to the estimate for counts to hold
)

// ToolsTokens returns the input tokens to hold for the JSON of a request's "tools" or "functions":
// the larger of its rendering (see ToolsRendered) and its JSON, plus 16. For the published counts
// of pamelafox and hmarr this is never below the actual number.
func ToolsTokens(enc Encoding, toolsJSON []byte) int {
	if empty(toolsJSON) {
		return 0
	}
	rendered, _ := ToolsRendered(enc, toolsJSON)
	return max(rendered, Count(enc, compact(toolsJSON))) + toolsMargin
}

// ToolsRendered returns the expected input tokens for "tools" or "functions". OpenAI's models see
// definitions as a TypeScript namespace; the rendering is that of hmarr/openai-chat-tokens, exact
// for its 19 cases verified against the API. If the request has a system message, the actual count
// is 4 lower. ok is false if toolsJSON is not an array of definitions; the count is then that of
// its JSON.
func ToolsRendered(enc Encoding, toolsJSON []byte) (tokens int, ok bool) {
	if empty(toolsJSON) {
		return 0, true
	}
	tools, err := parseTools(toolsJSON)
	if err != nil {
		return Count(enc, compact(toolsJSON)), false
	}
	return Count(enc, renderTools(tools)) + toolsBase, true
}

// ToolChoiceTokens returns what a request's "tool_choice" or "function_call" adds: 1 for "none", 7
// plus the name for a named function, otherwise nothing.
func ToolChoiceTokens(enc Encoding, choiceJSON []byte) int {
	if string(bytes.TrimSpace(choiceJSON)) == `"none"` {
		return 1
	}
	d := newDecoder(choiceJSON)
	if d.PeekKind() != '{' {
		return 0
	}
	var t toolDefinition
	if err := t.parse(d, 0); err != nil || t.name == "" {
		return 0
	}
	return 7 + Count(enc, []byte(t.name))
}

// ResponseFormatTokens returns the input tokens to hold for a request's "response_format". A JSON
// schema is added to the prompt in an unpublished format: its JSON is the estimate. Other formats
// add nothing.
func ResponseFormatTokens(enc Encoding, formatJSON []byte) int {
	if empty(formatJSON) || !bytes.Contains(formatJSON, []byte("schema")) {
		return 0
	}
	return Count(enc, compact(formatJSON)) + toolsMargin
}

// empty reports whether a JSON field is absent, null or an empty array.
func empty(raw []byte) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "[]":
		return true
	}
	return false
}

// compact returns raw without insignificant white space, or raw itself if it is not JSON.
func compact(raw []byte) []byte {
	v := jsontext.Value(raw).Clone()
	if err := v.Compact(lenient...); err != nil {
		return raw
	}
	return v
}

// A toolDefinition is an element of "tools" or "functions".
type toolDefinition struct {
	name, description string
	parameters        *schema
}

// A schema is the part of a JSON schema that is rendered.
type schema struct {
	types       []string
	description string
	properties  []property // in the order given
	required    map[string]bool
	enum        []string // as rendered
	items       *schema
	anyOf       []*schema
}

type property struct {
	name string
	schema
}

// schemaDepth bounds the nesting that is rendered; deeper schemas are "any".
const schemaDepth = 16

// renderTools writes definitions as the TypeScript that the models see.
func renderTools(tools []toolDefinition) []byte {
	b := []byte("namespace functions {\n\n")
	for _, t := range tools {
		if t.description != "" {
			b = append(append(append(b, "// "...), t.description...), '\n')
		}
		b = append(append(b, "type "...), t.name...)
		if t.parameters != nil && len(t.parameters.properties) > 0 {
			b = append(b, " = (_: {\n"...)
			b = t.parameters.renderProperties(b, 0)
			b = append(b, "\n}) => any;\n\n"...)
		} else {
			b = append(b, " = () => any;\n\n"...)
		}
	}
	return append(b, "} // namespace functions"...)
}

func (s *schema) renderProperties(b []byte, indent int) []byte {
	for i, p := range s.properties {
		if i > 0 {
			b = append(b, '\n')
		}
		if p.description != "" && indent < 2 {
			b = append(append(append(b, "// "...), p.description...), '\n')
		}
		b = append(append(b, spaces[:indent]...), p.name...)
		if !s.required[p.name] {
			b = append(b, '?')
		}
		b = append(b, ": "...)
		b = append(p.render(b, indent), ',')
	}
	return b
}

var spaces = bytes.Repeat([]byte{' '}, 2*schemaDepth+2)

// render writes the type of a schema.
func (s *schema) render(b []byte, indent int) []byte {
	for i, option := range s.anyOf {
		if i > 0 {
			b = append(b, " | "...)
		}
		b = option.render(b, indent)
	}
	for i, value := range s.enum {
		if i > 0 {
			b = append(b, " | "...)
		}
		b = append(b, value...)
	}
	if len(s.anyOf)+len(s.enum) > 0 {
		return b
	}
	if len(s.types) == 0 {
		return append(b, "any"...)
	}
	for i, t := range s.types {
		if i > 0 {
			b = append(b, " | "...)
		}
		b = s.renderType(b, t, indent)
	}
	return b
}

func (s *schema) renderType(b []byte, name string, indent int) []byte {
	switch name {
	case "integer", "number":
		return append(b, "number"...)
	case "array":
		if s.items == nil {
			return append(b, "any[]"...)
		}
		return append(s.items.render(b, indent), "[]"...)
	case "object":
		b = append(b, "{\n"...)
		return append(s.renderProperties(b, indent+2), "\n}"...)
	default:
		return append(b, name...)
	}
}
