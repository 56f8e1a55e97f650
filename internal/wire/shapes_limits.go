package wire

// limitShape are the headers of one limit: how much it allows, what is left, and when all of it is available
// again.
type limitShape struct {
	requests                bool // or else tokens
	limit, remaining, reset string
	unless                  string // the header of a server whose limit is not by the minute
	servers                 string
}

// limitShapes are all headers in which servers report their limits. The first limit that is there counts.
var limitShapes = []limitShape{
	{true, xLimit + "Requests", xRemaining + "Requests", xReset + "Requests", "X-Groq-Region", "OpenAI, Azure, LiteLLM"},
	{true, xLimit + "Req-Minute", xRemaining + "Req-Minute", xReset + "Req-Minute", "", "Mistral"},
	{true, xLimit + "Requests-Minute", xRemaining + "Requests-Minute", xReset + "Requests-Minute", "", "Cerebras"},
	{true, anthropic + "Requests-Limit", anthropic + "Requests-Remaining", anthropic + "Requests-Reset", "", "Anthropic"},
	{false, xLimit + "Tokens", xRemaining + "Tokens", xReset + "Tokens", "", "OpenAI, Azure, Groq, LiteLLM"},
	{false, xLimit + "Tokens-Minute", xRemaining + "Tokens-Minute", xReset + "Tokens-Minute", "", "Mistral, Cerebras"},
	{false, anthropic + "Tokens-Limit", anthropic + "Tokens-Remaining", anthropic + "Tokens-Reset", "", "Anthropic"},
	{
		false, anthropic + "Input-Tokens-Limit", anthropic + "Input-Tokens-Remaining", anthropic + "Input-Tokens-Reset", "",
		"Anthropic",
	},
}

const (
	xLimit     = "X-Ratelimit-Limit-"
	xRemaining = "X-Ratelimit-Remaining-"
	xReset     = "X-Ratelimit-Reset-"
	anthropic  = "Anthropic-Ratelimit-"
)
