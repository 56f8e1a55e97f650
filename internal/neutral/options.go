package neutral

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/llmguard/llmguard/internal/wire"
)

// Options hold what a translation of a request needs in addition to it.
type Options struct {
	// Lacks refuses what the provider's wire cannot express.
	Lacks Lacks
	// Turns are the conversation so far, oldest first, and Items the items that the request references,
	// by id. Only some wires have requests that refer to them.
	Turns []Turn
	Items map[string][]byte
}

// Turn is an earlier response of a conversation, as stored: raw JSON arrays of items.
type Turn struct{ Input, Output []byte }

// Size returns about how many bytes a request needs, earlier turns included.
func (o *Options) Size(r *wire.Request) int {
	size := len(r.Body) + 256
	for _, t := range o.Turns {
		size += len(t.Input) + len(t.Output)
	}
	return size
}

// Form says how a body is written for a provider.
type Form struct {
	// Model is the provider's name of the model, where models differ.
	Model string
	// LimitField is the provider's name for the output limit where servers of a wire differ:
	// "max_tokens" or "max_completion_tokens".
	LimitField string
	// Limit is the output limit, in tokens, of a request that has none, for wires that require one.
	Limit int64
	// Size is about how many bytes the body will have.
	Size int
}

// Lacks says what a provider's wire cannot express, and refuses it. What no two wires have in common
// has no field: it is refused wherever it is read.
type Lacks struct {
	// Instead completes the sentence that refuses it: it says what the provider supports instead.
	Instead string

	ResultMedia bool // pictures and files in the result of a tool
	FileURL     bool // files by their URL
	TopK        bool
	Audio       bool // recordings
	AnyJSON     bool // output in JSON without a schema
	Verbosity   bool
	Tiers       bool // service tiers other than the account's own and the default
}

// Refuse returns the error for something that the provider's wire has no equivalent for.
func (l Lacks) Refuse(param, what string) error {
	return wire.BadRequest(param, "unsupported_parameter",
		"%s cannot be used with this model: its provider %s", what, l.Instead)
}

// Tier refuses a service tier that the provider does not have.
func (l Lacks) Tier(tier string) error {
	switch {
	case !l.Tiers, tier == "", tier == "auto", tier == "default":
		return nil
	}
	return l.Refuse("service_tier", "This service_tier")
}

// Names are the members of a wire that are fields of a Request.
type Names []struct{ Member, Field string }

// Param returns the member for a field, or another name unchanged.
func (n Names) Param(field string) string {
	for _, name := range n {
		if name.Field == field {
			return name.Member
		}
	}
	return field
}

// Field returns the field that a member belongs to, or another member unchanged. Indexes of messages differ between
// wires, so they are dropped.
func (n Names) Field(param string) string {
	for _, name := range n {
		rest, ok := strings.CutPrefix(param, name.Member)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return name.Field
		}
	}
	return param
}

// Required returns the error for a required member of the object at param.
func Required(param, name string) error {
	if param != "" {
		name = param + "." + name
	}
	return wire.BadRequest(name, "missing_required_parameter", "Missing required parameter: '%s'.", name)
}

// Invalid returns the error for a value that a member cannot have.
func Invalid(param string, value Raw) error {
	return wire.BadRequest(param, "invalid_value", "Invalid value for '%s': %s.", param, Shorten(value))
}

// NeedsStrings returns the error for the first of the members of the object at param that is no string. A member is its
// name, a string, and its value.
func NeedsStrings(param string, members ...any) error {
	for i := 0; i < len(members); i += 2 {
		if value, _ := members[i+1].(Raw); !wire.IsString(value) {
			return Required(param, members[i].(string))
		}
	}
	return nil
}

// Shorten shortens a raw value for an error message.
func Shorten(raw []byte) string {
	const most = 60
	if len(raw) == 0 {
		return "without a type"
	}
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// WrongType converts the error for a value of the wrong type. An error for the caller, and nil, stay as they are.
func WrongType(err error, param string) error {
	var public *wire.Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	return wire.BadRequest(param, "invalid_type", "Invalid type for '%s'.", param)
}

// NewID returns a new id in OpenAI's format: a prefix such as "resp_" and 48 hexadecimal
// digits.
func NewID(prefix string) string {
	var raw [24]byte
	rand.Read(raw[:]) // never fails: the runtime would abort the process
	return prefix + hex.EncodeToString(raw[:])
}
