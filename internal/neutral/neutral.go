// Package neutral has the form that requests and answers take between two wires: the caller's, such as
// /v1/responses, and the provider's, such as chat completions. Each wire is a package with one
// translation to this form and one from it; no wire knows another.
//
// Values stay in JSON as their sender wrote them. Nothing is lost of a number or an escape, and a
// long text is copied once, into what is sent. The package stores nothing.
package neutral

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmguard/llmguard/internal/wire"
)

// Raw is a JSON value as it was sent; nil if it is absent or null.
type Raw = jsontext.Value

// Request is a request to generate text. Every translation to it refuses what it has no place for,
// and what the provider's wire cannot express, by the caller's names; see Lacks.
type Request struct {
	Model Raw
	// Messages are the conversation, system prompts included.
	Messages []Message
	Tools    []Tool
	// Choice says which of the tools to call, and Parallel whether several at once. Both mean nothing
	// without Tools.
	Choice   Choice
	Parallel Raw
	Format   Format
	// Effort is how much to think; "" for the model's default. A budget of tokens for it, as other
	// wires have one, would be a field here.
	Effort    string
	Verbosity Raw
	// Limit is the most tokens of output; -1 for no limit.
	Limit int64

	Stream, Temperature, TopP, User, ServiceTier Raw

	// More is an object of members that the caller's API does not define. Every provider gets them.
	More Raw
}

// The fields of a Request that wires name differently, in errors: what a provider refuses is named
// as the caller named it.
const (
	ParamMessages = "Messages"
	ParamLimit    = "Limit"
	ParamFormat   = "Format"
	ParamEffort   = "Effort"
)

// Lacks completes the sentence that refuses what a provider's wire cannot express: it says what the
// provider supports instead. The first wire that can express more than chat completions, such as
// files by id or images in a tool's result, makes it a struct with a field for each of these.
type Lacks string

// Refuse returns the error for something that the provider's wire has no equivalent for.
func (l Lacks) Refuse(param, what string) error {
	return wire.BadRequest(param, "unsupported_parameter",
		"%s cannot be used with this model: its provider %s", what, string(l))
}

// Role is whose message it is.
type Role string

// The roles. RoleSystem is also a developer's.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is what one side says. An assistant's message has all tool calls until their results.
type Message struct {
	Role Role
	// CallID names the call whose result a tool's message is.
	CallID Raw
	Parts  []Part
}

// Kind is the kind of a content part, or of an event.
type Kind int

// The kinds of parts. Reasoning of earlier turns is hidden, so it is no part; with a signature, as
// other wires have it, it would be one.
const (
	Text  Kind = iota // Text
	Image             // URL and Detail
	File              // Data and Name
	Audio             // Data, an object with data and format
	Call              // CallID, Name and Arguments, of an assistant
)

// Part is a piece of content. Its Kind says which fields it has: strings but for Audio's Data. A mark for a
// provider's cache would be a field here.
type Part struct {
	Kind              Kind
	Text              Raw
	URL, Detail       Raw
	Data, Name        Raw
	CallID, Arguments Raw // Arguments is a string that contains JSON
}

// Tool is a function that the model may call.
type Tool struct {
	Name, Description, Parameters Raw
	Strict                        bool
}

// Choice is a mode, such as "auto", "none" or "required", or the name of a tool to call.
type Choice struct{ Mode, Name Raw }

// Format is the form of the output: the zero value is text.
type Format struct {
	// Type is "json_object" or "json_schema".
	Type string
	// Schema is, for "json_schema", an object with a name, a schema and what else describes it.
	Schema Raw
}

// With returns an object with one more member. object is an object without spaces around it, or nil; it is changed.
func With(object Raw, name string, value Raw) Raw {
	if len(object) <= 2 {
		object = append(object[:0], '{')
	} else {
		object[len(object)-1] = ','
	}
	object = append(wire.AppendQuoted(object, name), ':')
	if value == nil {
		value = Raw("null")
	}
	return append(append(object, value...), '}')
}

// Inside returns what is between the quotes of a string, or nil for any other value.
func Inside(raw Raw) []byte {
	if !wire.IsString(raw) {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// AsSent are options of package json that change no value of type Raw.
var AsSent = json.JoinOptions(
	jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true))
