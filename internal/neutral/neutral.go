// Package neutral has the form that requests and answers take between two wires: the caller's, such as
// /v1/responses, and the provider's, such as chat completions. Each wire is a package with one
// translation to this form and one from it; no wire knows another.
//
// Values stay in JSON as their sender wrote them. Nothing is lost of a number or an escape, and a
// long text is copied once, into what is sent. The package stores nothing.
package neutral

import (
	"slices"

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
	// Effort is how much to think: "none", "minimal", "low", "medium", "high", "xhigh" or "max"; "" for
	// the model's default. Budget is the most tokens to think, for models that know no effort; 0 if not
	// given.
	Effort    string
	Budget    int64
	Verbosity Raw
	// Limit is the most tokens of output; -1 for no limit.
	Limit int64
	// Stop is an array of texts that end the output, and that are not part of it.
	Stop Raw

	Stream, Temperature, TopP, TopK, User, ServiceTier Raw

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
	ParamStop     = "Stop"
	ParamUser     = "User"
)

// Pass adds the members to More that the caller's API does not define. Those that chat completions
// define are refused, because the provider would interpret them.
func (q *Request) Pass(r *wire.Request) error {
	for _, name := range r.Unknown {
		if wire.OfChat(name) {
			return wire.BadRequest(name, "unknown_parameter", "Unknown parameter: '%s'. It is a parameter of chat "+
				"completions.", name)
		}
		if v := r.Member(name); v != nil {
			q.More = With(q.More, name, v)
		}
	}
	return nil
}

// Say adds a message.
func (q *Request) Say(role Role, parts ...Part) {
	q.Messages = append(q.Messages, Message{Role: role, Parts: parts})
}

// Answers returns the message of the assistant that the conversation ends with, which it adds if it
// ends with another.
func (q *Request) Answers() *Message {
	n := len(q.Messages)
	if n == 0 || q.Messages[n-1].Role != RoleAssistant {
		q.Say(RoleAssistant)
		n++
	}
	return &q.Messages[n-1]
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
	// CallID names the call whose result a tool's message is. Failed means that the call failed, and
	// Cache is a mark for a provider's cache.
	CallID Raw
	Failed bool
	Cache  Raw
	Parts  []Part
}

// Kind is the kind of a content part, or of an event.
type Kind int

// The kinds of parts, which are also kinds of events.
const (
	Text      Kind = iota // Text
	Image                 // URL and Detail
	File                  // URL, or Data and Name
	Audio                 // Data, an object with data and format
	Call                  // CallID, Name and Arguments, of an assistant
	Reasoning             // Text and Signature, of an assistant
	Redacted              // Data: reasoning that only its provider can read
)

// Part is a piece of content. Its Kind says which fields it has: strings but for Audio's Data.
type Part struct {
	Kind              Kind
	Text, Signature   Raw // Signature proves who wrote a reasoning; nil if there is none
	URL, Detail       Raw
	Data, Name        Raw
	CallID, Arguments Raw // Arguments is a string that contains JSON
	Cache             Raw // a mark for a provider's cache, an object
}

// HasMedia reports whether some part is no text.
func HasMedia(parts []Part) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Kind != Text })
}

// Tool is a function that the model may call.
type Tool struct {
	Name, Description, Parameters Raw
	Strict                        bool
	Cache                         Raw // a mark for a provider's cache, an object
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
