package wire

// limitShape are the headers of one limit: how much it allows, how much is left, and when all of it is available again.
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
	{true, claude + "Requests-Limit", claude + "Requests-Remaining", claude + "Requests-Reset", "", "Anthropic"},
	{false, xLimit + "Tokens", xRemaining + "Tokens", xReset + "Tokens", "", "OpenAI, Azure, Groq, LiteLLM"},
	{false, xLimit + "Tokens-Minute", xRemaining + "Tokens-Minute", xReset + "Tokens-Minute", "", "Mistral, Cerebras"},
	{false, claude + "Tokens-Limit", claude + "Tokens-Remaining", claude + "Tokens-Reset", "", "Anthropic"},
	{false, claude + "Input-Tokens-Limit", claude + "Input-Tokens-Remaining", claude + "Input-Tokens-Reset", "", "Anthropic"},
}

const (
	xLimit     = "X-Ratelimit-Limit-"
	xRemaining = "X-Ratelimit-Remaining-"
	xReset     = "X-Ratelimit-Reset-"
	claude     = "Anthropic-Ratelimit-"
)
