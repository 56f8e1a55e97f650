package fakeprovider

import (
	"fmt"
	"net/http"
)

// apiError is an error in OpenAI's format. A nil Param or Code is null.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	outcome Outcome
}

// Error implements error, so that apiError can be returned while a request is read.
func (e *apiError) Error() string { return e.Message }

func (e *apiError) body() []byte { return encode(map[string]*apiError{"error": e}) }

// errorJSON returns an error in the format of the API that was called.
func (x *exchange) errorJSON(e *apiError) []byte {
	if x.claude {
		return encode(x.claudeError(e))
	}
	return e.body()
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// invalid returns the 400 for an invalid request; empty param and code become null.
func invalid(param, code, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, Type: "invalid_request_error",
		Param: nullable(param), Code: nullable(code),
		Message: fmt.Sprintf(format, args...), outcome: Rejected,
	}
}

// with sets another status.
func (e *apiError) with(status int) *apiError {
	e.status = status
	return e
}

func notFound(r *http.Request) *apiError {
	return invalid("", "unknown_url",
		"Unknown request URL: %s %s. Please check the URL for typos, or see the docs at "+
			"https://platform.openai.com/docs/api-reference/.", r.Method, r.URL.Path).with(http.StatusNotFound)
}

func noModel(model string) *apiError {
	return invalid("", "model_not_found", "The model `%s` does not exist or you do not have access to it.", model).
		with(http.StatusNotFound)
}

func badKey(key string) *apiError {
	text := "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer " +
		"auth (i.e. Authorization: Bearer YOUR_KEY)."
	code := ""
	if key != "" {
		code = "invalid_api_key"
		text = "Incorrect API key provided: " + masked(key) +
			". You can find your API key at https://platform.openai.com/account/api-keys."
	}
	return &apiError{
		status: http.StatusUnauthorized, Type: "invalid_request_error",
		Code: nullable(code), Message: text, outcome: Unauthorized,
	}
}

func masked(key string) string {
	if len(key) < 12 {
		return "****"
	}
	return key[:4] + "****" + key[len(key)-4:]
}

// defaultErrors are OpenAI's error texts by status.
var defaultErrors = map[int][3]string{
	400: {"invalid_request_error", "", "Invalid request."},
	401: {"invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
	403: {"request_forbidden", "unsupported_country_region_territory", "Country, region, or territory not supported"},
	404: {"invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."},
	429: {"rate_limit_error", "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."},
	500: {"server_error", "", "The server had an error while processing your request. Sorry about that!"},
	503: {"service_unavailable_error", "server_is_overloaded", "That model is currently overloaded with other requests."},
}

// scripted returns the error that a Behaviour requests.
func (b *Behaviour) scripted() *apiError {
	d, ok := defaultErrors[b.Status]
	if !ok {
		d = [3]string{"server_error", "", http.StatusText(b.Status)}
	}
	for i, own := range []string{b.Type, b.Code, b.Message} {
		if own != "" {
			d[i] = own
		}
	}
	return &apiError{status: b.Status, Type: d[0], Code: nullable(d[1]), Message: d[2], outcome: Scripted}
}

// errorBodies are bodies that break parsers, by name.
var errorBodies = map[string]string{
	"html": "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad " +
		"Gateway</h1></center></body></html>",
	"empty":  "",
	"string": `{"error":"something went wrong"}`,
	"detail": `{"detail":"something went wrong"}`,
	"number": `{"error":{"message":"something went wrong","type":"server_error","param":null,"code":5001}}`,
}

// errorBody returns the body and content type of a scripted error.
func (x *exchange) errorBody() ([]byte, string) {
	if x.b.Body == "" {
		return x.errorJSON(x.b.scripted()), "application/json"
	}
	text, known := errorBodies[x.b.Body]
	if !known {
		text = x.b.Body
	}
	if x.b.Body == "html" || x.b.Body == "empty" {
		return []byte(text), "text/html"
	}
	return []byte(text), "application/json"
}
