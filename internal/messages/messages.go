// Package messages is the wire of Anthropic's Messages. For callers whose provider has another wire it reads
// requests to the neutral form and writes answers from it; for providers it writes requests and reads
// answers.
//
// It copies JSON strings unchanged and decodes as little as possible. What the other wire has no equivalent
// for is refused with the name of the member, or dropped as docs/wire.md lists it (Other wires). The package
// stores nothing and does no I/O of its own.
package messages

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
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

// In Messages what was read from a cache, and written to it, is no part of the input tokens. Package wire reads
// usage, because it knows the forms of all servers.

// usage is usage in the form of Messages.
type usage struct {
	Input   int64    `json:"input_tokens"`
	Written int64    `json:"cache_creation_input_tokens"`
	Read    int64    `json:"cache_read_input_tokens"`
	Timed   *written `json:"cache_creation,omitzero"`
	Output  int64    `json:"output_tokens"`
	Details struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	Tier raw `json:"service_tier,omitzero"`
	More raw `json:",embed"`
}

// written are tokens written to a cache, by how long they stay.
type written struct {
	Short int64 `json:"ephemeral_5m_input_tokens"`
	Long  int64 `json:"ephemeral_1h_input_tokens"`
}

// openAI is neutral usage in the form of OpenAI, which package wire reads.
type openAI struct {
	Input         raw `json:"prompt_tokens,omitzero"`
	InputDetails  raw `json:"prompt_tokens_details,omitzero"`
	Output        raw `json:"completion_tokens,omitzero"`
	OutputDetails raw `json:"completion_tokens_details,omitzero"`
	Total         raw `json:"total_tokens,omitzero"`
	CacheRead     raw `json:"-"` // More has it, under its own name
	More          raw `json:",embed"`
}

// usageOf returns usage in the form of Messages. Clients require numbers, so unknown usage is zero.
func usageOf(given *neutral.Usage) usage {
	if given == nil {
		return usage{}
	}
	o := openAI(*given)
	text, _ := json.Marshal(&o, neutral.AsSent) // raw values were read before
	a, ok := wire.ParseUsage(wire.ChatCompletions, slices.Concat([]byte(`{"choices":[],"usage":`), text, []byte("}")))
	if !ok {
		return usage{}
	}
	n := a.Usage
	u := usage{
		Input:   n.Input - n.CachedInput - n.CacheWrite - n.CacheWrite1h,
		Written: n.CacheWrite + n.CacheWrite1h, Read: n.CachedInput, Output: n.Output, More: neutral.Uncounted(given.More),
	}
	u.Details.Thinking = n.Reasoning
	if a.TimedWrites {
		u.Timed = &written{n.CacheWrite, n.CacheWrite1h}
	}
	return u
}

// readUsage reads usage, of which an event may report only a part; before is what earlier ones reported.
func readUsage(given raw, before *wire.Answer) *neutral.Usage {
	a, ok := wire.ParseUsage(wire.Messages, slices.Concat([]byte(`{"content":[],"usage":`), given, []byte("}")))
	if !ok {
		return nil
	}
	*before = a.After(*before)
	return neutral.Counted(before, given)
}
