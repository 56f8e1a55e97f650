package wire

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hostile is text from outside: the name of a limit or model that could spoil a message.
const hostile = "Daily-QUOTA billing credit balance will reset at out of credits quota exhausted"

// refusals has one error of every constructor.
func refusals(wait time.Duration) map[string]*Error {
	cause := errors.New("redis: secret")
	return map[string]*Error{
		"BadRequest":          BadRequest("n", "invalid_type", "n is %q", "\x00\xff\n\u2028</script>"),
		"RateLimited":         RateLimited(hostile, wait),
		"QuotaExceeded":       QuotaExceeded("The budget is used up."),
		"ServiceUnavailable":  ServiceUnavailable(hostile, wait, cause),
		"BadGateway":          BadGateway(hostile, cause),
		"InvalidKey":          InvalidKey("Incorrect API key provided."),
		"Forbidden":           Forbidden("model_not_found", "%s", "no"),
		"NotFound":            NotFound("", "unknown_url", "Unknown URL: %s", "/x"),
		"MethodNotAllowed":    MethodNotAllowed(strings.Repeat("X", 1000), []string{"GET", "POST"}),
		"TooLarge":            TooLarge(5),
		"UnsupportedEncoding": UnsupportedEncoding(strings.Repeat("x", 1000)),
		"NotFinished":         NotFinished(hostile, wait),
		"KeyReused":           KeyReused(),
		"Internal":            Internal(cause),
	}
}

// TestErrorBody: error is always an object, code and param are strings or null (docs/errors.md, Error
// bodies).
func TestErrorBody(t *testing.T) {
	for name, e := range refusals(time.Second) {
		var top map[string]json.RawMessage
		var inner map[string]any
		if err := json.Unmarshal(e.JSON(), &top); err != nil || len(top) != 1 {
			t.Errorf("%s: %s: %v", name, e.JSON(), err)
			continue
		}
		if err := json.Unmarshal(top["error"], &inner); err != nil || len(inner) != 4 {
			t.Errorf("%s: %s: %v", name, e.JSON(), err)
			continue
		}
		for field, value := range map[string]string{"message": e.Message, "type": e.Type, "param": e.Param, "code": e.Code} {
			got, present := inner[field]
			want := any(strings.ToValidUTF8(value, "\ufffd"))
			if value == "" {
				want = nil
			}
			if !present || got != want {
				t.Errorf("%s: %s is %v, want %v", name, field, got, want)
			}
		}
		if e.Message == "" || e.Type == "" || e.Status < 400 || strings.Contains(string(e.JSON()), "secret") {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestErrorRetries checks the rules in docs/errors.md, Retry advice.
func TestErrorRetries(t *testing.T) {
	spoils := regexp.MustCompile(`(?i)quota|billing|credit balance|out of credits|will reset at`)
	for _, c := range []struct {
		wait  time.Duration
		after string
		never bool
	}{
		{-time.Hour, "1", false},
		{0, "1", false},
		{time.Millisecond, "1", false},
		{time.Second, "1", false},
		{1001 * time.Millisecond, "2", false},
		{59*time.Second + 1, "60", false},
		{60 * time.Second, "60", false},
		{60*time.Second + 1, "61", true},
		{time.Hour, "3600", true},
		{math.MaxInt64, "9223372037", true},
		{math.MinInt64 + 1, "1", false},
	} {
		for name, e := range refusals(c.wait) {
			after, should := e.Header.Get("Retry-After"), e.Header.Get("X-Should-Retry")
			switch name {
			case "RateLimited", "Overloaded", "ServiceUnavailable", "NotFinished":
				if after != c.after || (should == "false") != c.never {
					t.Errorf("%s, %v: Retry-After %q, x-should-retry %q", name, c.wait, after, should)
				}
			case "BadGateway":
				if after != "1" || should != "" {
					t.Errorf("%s: Retry-After %q, x-should-retry %q", name, after, should)
				}
			case "QuotaExceeded":
				if after != "" || should != "false" || e.Status != 402 || e.Type != "insufficient_quota" || e.Code != e.Type {
					t.Errorf("%s: %+v", name, e)
				}
			default:
				if after != "" || should != "" || e.Status == 429 || e.Status > 500 {
					t.Errorf("%s: %+v", name, e)
				}
			}
			if after != "" && spoils.MatchString(e.Message) {
				t.Errorf("%s: a retryable error says %q", name, e.Message)
			}
		}
	}
}

func TestErrorHeaders(t *testing.T) {
	all := refusals(time.Second)
	for _, c := range []struct{ name, header, want string }{
		{"TooLarge", "Connection", "close"}, {"UnsupportedEncoding", "Connection", "close"}, {"MethodNotAllowed", "Allow", "GET, POST"},
	} {
		if got := all[c.name].Header.Get(c.header); got != c.want {
			t.Errorf("%s: %s %q, want %q", c.name, c.header, got, c.want)
		}
	}
	for name, e := range all {
		for header := range e.Header {
			if header != http.CanonicalHeaderKey(header) {
				t.Errorf("%s: header %q is not canonical", name, header)
			}
		}
	}
}

// TestErrorFrame checks the frames in docs/errors.md, Errors in a stream.
func TestErrorFrame(t *testing.T) {
	e := &Error{Status: 429, Type: "rate_limit_error", Code: "rate_limit_exceeded", Message: "a\n\"b\""}
	object := `{"message":"a\n\"b\"","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}`
	if got, want := string(e.Frame(ChatCompletions, 7)), "data: {\"error\":"+object+"}\n\n"; got != want {
		t.Errorf("chat: %q\nwant %q", got, want)
	}
	want := "event: error\ndata: {\"type\":\"error\",\"sequence_number\":7,\"code\":\"rate_limit_exceeded\",\"message\":\"a\\n\\\"b\\\"\",\"param\":null,\"error\":" + object + "}\n\n"
	if got := string(e.Frame(Responses, 7)); got != want {
		t.Errorf("responses: %q\nwant %q", got, want)
	}
	if got := string(e.Frame(Responses, 0)); got != strings.Replace(want, ":7,", ":0,", 1) {
		t.Errorf("responses: %q", got)
	}
	for name, e := range refusals(time.Second) {
		for _, frame := range [][]byte{e.Frame(ChatCompletions, 7), e.Frame(Responses, 0)} {
			events, rest := cutStream(t, string(frame), 1)
			if len(events) != 1 || rest != "" || !json.Valid(EventData(frame)) {
				t.Errorf("%s: %q is not one event", name, frame)
			}
		}
		if c, err := ScanChunk(EventData(e.Frame(ChatCompletions, 7)), nil); err != nil || !c.Error {
			t.Errorf("%s: the frame does not read as an error: %v", name, err)
		}
	}
}

func TestErrorKeepsItsFields(t *testing.T) {
	cause := errors.New("cause")
	e := ServiceUnavailable("m", time.Second, cause)
	if !errors.Is(e, cause) || e.Error() != "503 m: cause" || Internal(nil).Error() == "" {
		t.Errorf("%v", e)
	}
	text, err := json.Marshal(e)
	if err != nil || strings.Contains(string(text), "cause") {
		t.Fatalf("%s, %v", text, err)
	}
	var back Error
	if err := json.Unmarshal(text, &back); err != nil || string(back.JSON()) != string(e.JSON()) ||
		back.Status != 503 || back.Header.Get("Retry-After") != "1" {
		t.Errorf("%s came back as %+v, %v", text, back, err)
	}
}

func TestAppendReset(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1: "1ms", 12 * time.Millisecond: "12ms", time.Second: "1s", 6 * time.Minute: "6m0s",
		8640 * time.Millisecond: "8.64s", 1500*time.Millisecond + 1: "1.501s", 24 * time.Hour: "24h0m0s", math.MaxInt64: "2562047h47m16.854775807s",
	} {
		if got := string(AppendReset(nil, d)); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestParseRateLimits(t *testing.T) {
	none := RateLimit{-1, -1, -1}
	for _, c := range []struct {
		header map[string]string
		want   RateLimits
	}{
		{nil, NoLimits},
		{map[string]string{
			"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
			"x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "6m0s",
		}, RateLimits{RateLimit{60, 59, time.Second}, RateLimit{150000, 149984, 6 * time.Minute}, none}},
		{map[string]string{"x-ratelimit-reset-tokens": "12ms", "x-ratelimit-reset-requests": "0"}, RateLimits{RateLimit{-1, -1, 0}, RateLimit{-1, -1, 12 * time.Millisecond}, none}},
		{map[string]string{"x-ratelimit-reset-tokens": "30", "x-ratelimit-remaining-tokens": "-1"}, RateLimits{none, RateLimit{-1, -1, 30 * time.Second}, none}},
		{map[string]string{"x-ratelimit-reset-tokens": "soon", "x-ratelimit-limit-tokens": "1e9", "x-ratelimit-reset-requests": "-5s"}, NoLimits},
		{map[string]string{"x-ratelimit-limit-tokens": "99999999999999999999"}, NoLimits},
		{map[string]string{
			"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49", "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:01Z",
			"anthropic-ratelimit-input-tokens-limit": "40000", "anthropic-ratelimit-input-tokens-remaining": "39000", "anthropic-ratelimit-input-tokens-reset": "2026-11-20T11:59:00Z",
		}, RateLimits{RateLimit{50, 49, time.Second}, RateLimit{40000, 39000, 0}, none}},
	} {
		h := http.Header{}
		for name, value := range c.header {
			h.Set(name, value)
		}
		if got := ParseRateLimits(h, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.header, got, c.want)
		}
	}
}

// TestParseSplitLimits: limits of input and output are read apart, and what is left may be more than its rounding says.
func TestParseSplitLimits(t *testing.T) {
	h := http.Header{}
	for name, value := range map[string]string{
		"Requests-Limit": "50", "Requests-Remaining": "49", "Requests-Reset": "2026-11-20T12:00:01Z",
		"Tokens-Limit": "48000", "Tokens-Remaining": "1000", "Tokens-Reset": "2026-11-20T12:00:50Z",
		"Input-Tokens-Limit": "40000", "Input-Tokens-Remaining": "39000", "Input-Tokens-Reset": "2026-11-20T12:00:02Z",
		"Output-Tokens-Limit": "8000", "Output-Tokens-Remaining": "8000", "Output-Tokens-Reset": "2026-11-20T12:00:00Z",
	} {
		h.Set(anthropic+name, value)
	}
	want := RateLimits{RateLimit{50, 49, time.Second}, RateLimit{40_000, 39_500, 2 * time.Second}, RateLimit{8000, 8000, 0}}
	if got := ParseSplitLimits(h, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ParseSplitLimits(http.Header{}, time.Now()); got != NoLimits {
		t.Errorf("without headers: %+v", got)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		ms, after string
		want      time.Duration
		ok        bool
	}{
		{"", "", 0, false},
		{"", "5", 5 * time.Second, true},
		{"", " 5 ", 5 * time.Second, true},
		{"", "0", 0, true},
		{"", "1.5", 1500 * time.Millisecond, true},
		{"250", "5", 250 * time.Millisecond, true},
		{"0.5", "", 500 * time.Microsecond, true},
		{"x", "5", 5 * time.Second, true},
		{"", "-5", 0, false},
		{"-1", "7", 7 * time.Second, true},
		{"", "NaN", 0, false},
		{"", "Inf", maxWait, true},
		{"", "1e400", maxWait, true},
		{"", "99999999999999999999", maxWait, true},
		{"", "Fri, 20 Nov 2026 12:00:30 GMT", 30 * time.Second, true},
		{"", "Fri, 20 Nov 2026 11:00:00 GMT", 0, true},
		{"", "Fri, 20 Nov 9026 11:00:00 GMT", maxWait, true},
		{"", "tomorrow", 0, false},
	} {
		h := http.Header{}
		h.Set("retry-after-ms", c.ms)
		h.Set("retry-after", c.after)
		if got, ok := ParseRetryAfter(h, now); got != c.want || ok != c.ok {
			t.Errorf("%q, %q: %v, %v; want %v, %v", c.ms, c.after, got, ok, c.want, c.ok)
		}
	}
}

// TestAdviceLinksToTheCode: an answer with a code of ours links to its explanation; one with the provider's code or
// without a code does not.
func TestAdviceLinksToTheCode(t *testing.T) {
	relayed, _ := ParseError(400, []byte(`{"error":{"message":"x","type":"invalid_request_error","param":null,"code":"their_code"}}`))
	inOtherForm, _ := ParseError(400, []byte(`{"error":{"message":"x","code":"their_code"}}`))
	for _, c := range []struct {
		e    *Error
		want string
	}{
		{StoreFull(0, nil), "<" + Docs + `errors.md#store_full>; rel="help"`},
		{BadGateway("x", nil), "<" + Docs + `errors.md#upstream_error>; rel="help"`},
		{BadRequest("", "", "x"), ""},
		{relayed, ""},
		{inOtherForm, ""},
	} {
		h := http.Header{}
		HeaderRules{}.Advise(h, c.e)
		if got := h.Get("Link"); got != c.want {
			t.Errorf("%s: Link %q, want %q", c.e.Code, got, c.want)
		}
	}
}
