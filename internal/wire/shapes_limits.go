package wire

// limitOf is what a limit counts.
type limitOf int

const (
	ofTokens limitOf = iota
	ofRequests
	ofOutput
)

// limitShape are the headers of one limit: how much it allows, what is left, and when all of it is available
// again.
type limitShape struct {
	of                      limitOf
	limit, remaining, reset string
	unless                  string // the header of a server whose limit is not by the minute
	rounded                 int64  // what is left is rounded to multiples of it
	servers                 string
}

// limitShapes are all headers in which servers report their limits. The first limit that is there counts.
var limitShapes = []limitShape{
	xShape(ofRequests, "Requests", "X-Groq-Region", "OpenAI, Azure, LiteLLM"),
	xShape(ofRequests, "Req-Minute", "", "Mistral"),
	xShape(ofRequests, "Requests-Minute", "", "Cerebras"),
	anthropicShape(ofRequests, "Requests", 0),
	xShape(ofTokens, "Tokens", "", "OpenAI, Azure, Groq, LiteLLM"),
	xShape(ofTokens, "Tokens-Minute", "", "Mistral, Cerebras"),
	anthropicShape(ofTokens, "Tokens", 0),
	anthropicShape(ofTokens, "Input-Tokens", 0),
}

// splitShapes are those of servers that count input and output apart.
var splitShapes = []limitShape{
	xShape(ofRequests, "Requests", "", "OpenAI"),
	anthropicShape(ofRequests, "Requests", 0),
	anthropicShape(ofTokens, "Input-Tokens", thousand),
	anthropicShape(ofOutput, "Output-Tokens", thousand),
}

const thousand = 1000

func xShape(of limitOf, name, unless, servers string) limitShape {
	const prefix = "X-Ratelimit-"
	return limitShape{
		of: of, limit: prefix + "Limit-" + name, remaining: prefix + "Remaining-" + name, reset: prefix + "Reset-" + name,
		unless: unless, servers: servers,
	}
}

const anthropic = "Anthropic-Ratelimit-"

func anthropicShape(of limitOf, name string, rounded int64) limitShape {
	name = anthropic + name
	return limitShape{
		of: of, limit: name + "-Limit", remaining: name + "-Remaining", reset: name + "-Reset",
		rounded: rounded, servers: "Anthropic",
	}
}
