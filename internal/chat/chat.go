// Package chat is the wire of chat completions. For providers that have no other it writes requests from the
// neutral form and reads answers to it. For callers of it whose provider has another wire it reads requests
// to the neutral form and writes answers from it.
//
// It copies JSON strings unchanged and decodes as little as possible. The package stores nothing and does
// no I/O of its own.
package chat

import (
	"github.com/llmguard/llmguard/internal/neutral"
)

type raw = neutral.Raw

// Lacks is what chat completions cannot express.
var Lacks = neutral.Lacks{
	Instead:     "supports only chat completions, which have no equivalent",
	ResultMedia: true, FileURL: true, TopK: true,
}

// Names are the members of chat completions.
var Names = neutral.Names{
	{"messages", neutral.ParamMessages},
	{"max_completion_tokens", neutral.ParamLimit},
	{"max_tokens", neutral.ParamLimit},
	{"response_format", neutral.ParamFormat},
	{"reasoning_effort", neutral.ParamEffort},
	{"stop", neutral.ParamStop},
	{"user", neutral.ParamUser},
}
