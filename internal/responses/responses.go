// Package responses is the wire of /v1/responses, for callers whose provider does not have it. It reads
// requests to the neutral form, and writes answers, plain or streamed, from it.
//
// It copies JSON strings unchanged and decodes as little as possible. A request that the provider's
// wire has no equivalent for is rejected with the name of the member. Nothing that would change the
// answer is dropped silently, except hidden reasoning of earlier turns that another API wrote. The package
// stores nothing and does no I/O of its own.
package responses

import (
	"bytes"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
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

// Other APIs have no namespaces, so a function in one is named after both.

// between joins the names of a namespace and of a function in it.
const between = "__"

// joined returns the name of a function in a namespace, a string; unchanged if one of the two is none.
func joined(space, name raw) raw {
	if !wire.IsString(space) || !wire.IsString(name) {
		return name
	}
	return neutral.Quote(string(neutral.Inside(space)) + between + string(neutral.Inside(name)))
}

// namespaces returns the namespaces of a request's tools.
func namespaces(r *wire.Request) (spaces []raw) {
	tools := r.Member("tools")
	if !bytes.Contains(tools, []byte(`"namespace"`)) {
		return nil
	}
	_ = neutral.Each(tools, "tools", func(_ string, t *tool) error { // it was read before
		if string(t.Type) == `"namespace"` {
			spaces = append(spaces, bytes.Clone(t.Name))
		}
		return nil
	})
	return spaces
}

// split returns the namespace of a function that was joined, nil for any other, and its name.
func split(spaces []raw, called raw) (space, name raw) {
	for _, space := range spaces {
		rest, ok := bytes.CutPrefix(neutral.Inside(called), append(bytes.Clone(neutral.Inside(space)), between...))
		if ok {
			return space, neutral.Quote(rest)
		}
	}
	return nil, called
}
