// Package responses is the wire of /v1/responses, for callers whose provider does not have it. It reads
// requests to the neutral form, and writes answers, plain or streamed, from it.
//
// It copies JSON strings unchanged and decodes as little as possible. A request that the provider's
// wire has no equivalent for is rejected with the name of the member. Nothing that would change the
// answer is dropped silently, except hidden reasoning of earlier turns that another API wrote. The package
// stores nothing and does no I/O of its own.
package responses

import (
	"github.com/llmguard/llmguard/internal/neutral"
)

type raw = neutral.Raw

// Names are the members of Responses.
var Names = neutral.Names{
	{"input", neutral.ParamMessages},
	{"max_output_tokens", neutral.ParamLimit},
	{"text.format", neutral.ParamFormat},
	{"reasoning.effort", neutral.ParamEffort},
	{"user", neutral.ParamUser},
}
