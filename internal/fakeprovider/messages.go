package fakeprovider

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Anthropic's Messages API. Text, tool calls and faults are those of chat completions. Requests
// are checked as strictly as Anthropic does, so that a proxy cannot send nonsense unnoticed.

// anthropic reports whether a request is to Anthropic's API.
func anthropic(r *http.Request) bool {
	if r.URL.Path == "/v1/models" || strings.HasPrefix(r.URL.Path, "/v1/models/") {
		return r.Header.Get("Anthropic-Version") != ""
	}
	return r.URL.Path == "/v1/messages" || strings.HasPrefix(r.URL.Path, "/v1/messages/")
}

var (
	_ = post("/v1/messages", func(x *exchange) error { return generate(x, x.q.readClaude(x.s, messageMembers)) })
	_ = post("/v1/messages/count_tokens", countMessageTokens)
)

// countMessageTokens answers POST /v1/messages/count_tokens. It is free, and not counted against
// the quota.
func countMessageTokens(x *exchange) error {
	err := x.admit(x.q.readClaude(x.s, countMembers))
	if err != nil || x.opening() {
		return err
	}
	tokens := x.q.claude.input.Prompt
	body := map[string]any{"input_tokens": tokens}
	if x.q.has("context_management") {
		body["context_management"] = map[string]any{"original_input_tokens": tokens}
	}
	x.finish(encode(body))
	return nil
}

// authorizeClaude checks the credential, which may be in either header or the same in both, and
// the version.
func (x *exchange) authorizeClaude() error {
	keys := slices.Clone(x.r.Header.Values("X-Api-Key"))
	for _, value := range x.r.Header.Values("Authorization") {
		key, bearer := strings.CutPrefix(value, "Bearer ")
		if !bearer {
			key = ""
		}
		keys = append(keys, key)
	}
	keys = slices.Compact(keys)
	if len(keys) != 1 || keys[0] == "" || x.s.opts.Key != "" && keys[0] != x.s.opts.Key {
		e := invalid("", "", "invalid x-api-key")
		e.status, e.outcome = http.StatusUnauthorized, Unauthorized
		return e
	}
	if !claudeDate.MatchString(x.r.Header.Get("Anthropic-Version")) {
		return invalid("", "", "anthropic-version: a valid version is required")
	}
	return nil
}

var claudeDate = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)

// claudeErrors are Anthropic's error types by status.
var claudeErrors = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
	404: "not_found_error", 405: "invalid_request_error", 409: "conflict_error", 413: "request_too_large",
	429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
}

// claudeError returns an error in Anthropic's format. A scripted code is in its details.
func (x *exchange) claudeError(e *apiError) map[string]any {
	fault := map[string]any{
		"type":    cmp.Or(x.b.Type, claudeErrors[e.status], "api_error"),
		"message": cmp.Or(e.Message, "Overloaded"),
	}
	if x.b.Code != "" {
		fault["details"] = map[string]any{"error_code": x.b.Code}
	}
	return map[string]any{"type": "error", "error": fault, "request_id": x.id}
}

// claude returns the 429 in Anthropic's words, and sets the anthropic-ratelimit-* headers.
func (v verdict) claude(x *exchange) error {
	h, now := x.w.Header(), x.s.now().UTC()
	for i, w := range v.windows {
		name := "Anthropic-Ratelimit-" + rates[i].header
		if i > 0 { // tokens are rounded
			w.left = (w.left + 500) / 1000 * 1000
		}
		h.Set(name+"-Limit", strconv.FormatInt(w.limit, 10))
		h.Set(name+"-Remaining", strconv.FormatInt(w.left, 10))
		h.Set(name+"-Reset", now.Add(w.reset).Format(time.RFC3339))
	}
	if !v.refused {
		return nil
	}
	v.retryAfter(h)
	e := invalid("", "", "This request would exceed your organization's rate limit of %d %s per minute (model: %s).",
		v.limit, rates[v.rate].anthropic, x.q.Model)
	e.status, e.outcome = http.StatusTooManyRequests, Limited
	return e
}

// claudeModels are listed when Options.Models is nil.
var claudeModels = []string{"claude-opus-5", "claude-sonnet-5", "claude-opus-4-8", "claude-haiku-4-5"}

// claudeAtLeast reports whether a model's version is at least this one, such as "4.7".
func claudeAtLeast(model, version string) bool {
	m := claudeVersion.FindStringSubmatch(model)
	return m != nil && m[1]+"."+m[2] >= version
}

// claudeVersion matches claude-opus-5 and claude-haiku-4-5-20251001. The date of
// claude-sonnet-4-20250514 is not a minor version.
var claudeVersion = regexp.MustCompile(`claude-[a-z]+-(\d)(?:-(\d)\b)?`)
