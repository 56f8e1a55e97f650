package wire

import (
	"net/http"
	"testing"
	"time"
)

// TestVendorLimits reads rate limits in the formats that vendors are known to use.
func TestVendorLimits(t *testing.T) {
	none := RateLimit{-1, -1, -1}
	for _, x := range []struct {
		name             string
		header           []string
		requests, tokens RateLimit
	}{
		{"azure in seconds", []string{"x-ratelimit-limit-tokens", "10000", "x-ratelimit-remaining-tokens", "9000", "x-ratelimit-reset-tokens", "12"}, none, RateLimit{10000, 9000, 12 * time.Second}},
		{"azure with nothing to tell", []string{"x-ratelimit-limit-tokens", "-1", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-limit-requests", "0", "x-ratelimit-remaining-requests", "0"}, none, RateLimit{-1, 0, -1}},
		{"groq by the day", []string{"x-groq-region", "us-west-1", "x-ratelimit-limit-requests", "14400", "x-ratelimit-remaining-requests", "14370", "x-ratelimit-reset-requests", "2m59.56s", "x-ratelimit-limit-tokens", "18000", "x-ratelimit-remaining-tokens", "17997", "x-ratelimit-reset-tokens", "7.66s"}, none, RateLimit{18000, 17997, 7660 * time.Millisecond}},
		{"mistral", []string{"x-ratelimit-limit-req-minute", "60", "x-ratelimit-remaining-req-minute", "59", "x-ratelimit-limit-tokens-minute", "500000", "x-ratelimit-remaining-tokens-minute", "499000"}, RateLimit{60, 59, -1}, RateLimit{500000, 499000, -1}},
		{"cerebras", []string{"x-ratelimit-limit-requests-day", "14400", "x-ratelimit-limit-tokens-minute", "60000", "x-ratelimit-remaining-tokens-minute", "50", "x-ratelimit-reset-tokens-minute", "26.5"}, none, RateLimit{60000, 50, 26500 * time.Millisecond}},
		{"together by the second", []string{"x-ratelimit-limit", "10", "x-ratelimit-remaining", "9", "x-ratelimit-reset", "1", "x-tokenlimit-limit", "3000"}, none, none},
		{"gemini, vllm, ollama, deepseek", nil, none, none},
	} {
		h := http.Header{}
		for i := 0; i < len(x.header); i += 2 {
			h.Set(x.header[i], x.header[i+1])
		}
		if got := ParseRateLimits(h, time.Now()); got.Requests != x.requests || got.Tokens != x.tokens {
			t.Errorf("%s: %+v", x.name, got)
		}
	}
}
