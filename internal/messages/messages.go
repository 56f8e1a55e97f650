// Package messages is the wire of Anthropic's Messages. For callers whose provider has another wire it reads
// requests to the neutral form and writes answers from it; for providers it writes requests and reads
// answers.
//
// It copies JSON strings unchanged and decodes as little as possible. What the other wire has no equivalent
// for is refused with the name of the member, or dropped as docs/wire.md lists it (Other wires). The package
// stores nothing and does no I/O of its own.
package messages

import (
	"github.com/llmguard/llmguard/internal/neutral"
)

type raw = neutral.Raw

// Lacks is what Messages cannot express.
var Lacks = neutral.Lacks{
	Instead: "supports only Anthropic's Messages, which have no equivalent",
	Audio:   true, AnyJSON: true, Verbosity: true, Tiers: true,
}

// Names are the members of Messages.
var Names = neutral.Names{
	{"messages", neutral.ParamMessages},
	{"system", neutral.ParamMessages},
	{"max_tokens", neutral.ParamLimit},
	{"output_config.format", neutral.ParamFormat},
	{"output_config.effort", neutral.ParamEffort},
	{"thinking", neutral.ParamEffort},
	{"stop_sequences", neutral.ParamStop},
	{"metadata.user_id", neutral.ParamUser},
}

// Types of content blocks, in requests and answers.
const (
	textBlock     = "text"
	thinkingBlock = "thinking"
	redactedBlock = "redacted_thinking"
	callBlock     = "tool_use"
)
