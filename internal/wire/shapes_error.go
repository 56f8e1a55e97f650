package wire

import (
	"encoding/json"
	"net/http"
)

// shape is a place in a document where servers put something: the names on the way to it, through lists.
type shape struct{ path, servers string }

// errorObjects are all places of an error, which is an object, a list with one, or a text. The first one counts.
var errorObjects = []shape{
	{"error", "OpenAI, Azure, Mistral, OpenRouter, Anthropic, vLLM; Gemini in a list; Ollama, Hugging Face as a text"},
	{"choices.error", "OpenRouter, of the vendor behind it"},
	{"response.error", "OpenAI, in a stream of responses"},
	{"errors", "Cloudflare, several"},
}

// errorTexts are all places of a message beside those of errorObjects.
var errorTexts = []shape{
	{"message", "vLLM, Mistral, AWS, Cohere"},
	{"detail", "FastAPI: LiteLLM, SGLang, TGI"},
	{miniMaxText, "MiniMax"},
}

const miniMaxText = "base_resp.status_msg"

// errorNames are the members that name an error, in its object or next to its message.
type errorNames struct {
	Type       any    // a text: OpenAI, Anthropic, vLLM
	Shape      string `json:"__type"` // AWS
	Param      any    // a text: OpenAI
	Code       any    // a text: OpenAI, Azure; a number: Gemini, vLLM, OpenRouter
	StatusCode any    `json:"status_code"` // a number: SGLang
	Status     any    // a text: Gemini; a number: DeepInfra
	Details    json.RawMessage
}

// errorDetail is an item of the details of an error, as of Gemini, or all of them, as of Anthropic.
type errorDetail struct {
	ErrorCode  string `json:"error_code"` // enforced_spend_limit_reached
	RetryDelay string // such as 34s
	Reason     string // such as API_KEY_INVALID
}

// statusWords are parts of the codes and types of errors, in lower case and without separators,
// with the status that they mean. The first one that is found counts.
var statusWords = []struct {
	status int
	words  []string
}{
	{http.StatusUnauthorized, []string{"apikey", "unauth", "authentication"}},
	{http.StatusForbidden, []string{"permission", "forbidden", "accessdenied"}},
	{http.StatusBadRequest, []string{"contextlength", "contextwindow", "contentfilter", "policy", "safety"}},
	{http.StatusPaymentRequired, []string{"billing", "payment", "insufficientbalance", "insufficientcredit"}},
	{http.StatusTooManyRequests, []string{
		"ratelimit", "quota", "toomanyrequests", "resourceexhausted", "slowdown", "throttl", "creditbalance",
		"limitexceeded",
	}},
	{http.StatusServiceUnavailable, []string{"overload", "unavailable", "capacity"}},
	{http.StatusGatewayTimeout, []string{"timeout", "timedout", "deadline"}},
	{http.StatusNotFound, []string{"notfound"}},
	{http.StatusRequestEntityTooLarge, []string{"toolarge"}},
	{http.StatusBadGateway, []string{"badgateway", "upstream"}},
	{http.StatusInternalServerError, []string{"server", "internal", "apierror"}},
	{http.StatusBadRequest, []string{
		"invalid", "badrequest", "unsupported", "unprocessable", "failedprecondition", "image", "mismatch",
	}},
}

// accountCodes are the codes and types of errors that concern the account or its credential, whatever
// the call. Only these make a 403 one of the account: others concern what was asked for.
var accountCodes = map[string]bool{
	"invalid_api_key": true, "incorrect_api_key": true, "authentication_error": true, "account_deactivated": true,
	"account_disabled": true, "api_key_disabled": true, "api_key_expired": true, "billing_not_active": true,
	"API_KEY_INVALID": true, "UNAUTHENTICATED": true, "ACCESS_TOKEN_EXPIRED": true, "BILLING_DISABLED": true,
	"CONSUMER_SUSPENDED": true,
}

// narrowCodes are the codes of a 401 that concern the right to one thing.
var narrowCodes = map[string]bool{"missing_scope": true, "insufficient_permissions": true, "permission_error": true}

// monthSpent is the code of a 429 for an account that has used up its month.
const monthSpent = "enforced_spend_limit_reached"

// spentTexts begin the messages of a 400 for an account without money: Anthropic.
var spentTexts = []string{
	"Your credit balance is too low", "You have reached your specified API usage limits",
	"You have reached your specified workspace API usage limits",
}

// spentCodes are the codes of a 429 that waiting does not fix (docs/errors.md, Retry advice).
var spentCodes = map[string]bool{
	monthSpent:           true,
	"insufficient_quota": true, "credit_balance_exhausted": true, "organization_spend_limit_exceeded": true,
	"project_spend_limit_exceeded": true, "organization_usage_limit_exceeded": true,
}
