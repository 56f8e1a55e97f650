package guard

import (
	"testing"

	"github.com/llmguard/llmguard/pricing"
)

// writesRig returns a vendor whose model m has prices for both kinds of cache writes.
func writesRig(t *testing.T, v *vendor) *rig {
	t.Helper()
	r := vendorRig(t, v, nil)
	r.prices(t, `[{model: m, max_output: 1000, prices: [{input: 1, cache_write: 1.25, cache_write_1h: 2, output: 5}]}]`)
	return r
}

// TestCacheWriteTime checks that input written to the cache for an hour is charged as such,
// even if the answer does not distinguish it from other writes.
func TestCacheWriteTime(t *testing.T) {
	const (
		apart     = `"cache_creation_input_tokens":100,"prompt_tokens_details":{"cache_creation_tokens":100,"cache_creation_token_details":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40}}`
		usual     = `"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":0}`
		summed    = `"prompt_tokens_details":{"cache_write_tokens":100}`
		forHour   = `{"type":"ephemeral","ttl":"1h"}`
		default5m = `{"type":"ephemeral"}`
	)
	for _, x := range []struct {
		name, control, usage string
		usual, hour          int64
	}{
		{"told apart", forHour, apart, 60, 40},
		{"told apart, not asked for", default5m, apart, 60, 40},
		{"none for an hour", forHour, usual, 100, 0},
		{"one sum, asked for an hour", forHour, summed, 0, 100},
		{"one sum", default5m, summed, 100, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := &vendor{status: 200, kind: "application/json", body: `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],
				"usage":{"prompt_tokens":500,"completion_tokens":3,"total_tokens":503,` + x.usage + `}}`}
			r := writesRig(t, v)
			c, _, err := r.run(t.Context(), `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":`+x.control+`}]}]}`)
			if err != nil {
				t.Fatal(err)
			}
			u, want := c.Result.Usage, pricing.Nano(400*1000+x.usual*1250+x.hour*2000+3*5000)
			if u.CacheWrite != x.usual || u.CacheWrite1h != x.hour || c.Result.Cost != want {
				t.Errorf("%+v, cost %d, fault %q; want %d and %d written, cost %d", u, c.Result.Cost, c.Result.Fault, x.usual, x.hour, want)
			}
		})
	}
}

// TestBatchedCacheWriteTime checks the same for a call of the provider's Batch API, which
// is ended without its request.
func TestBatchedCacheWriteTime(t *testing.T) {
	const answer = `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],
		"usage":{"prompt_tokens":500,"completion_tokens":3,"total_tokens":503,"prompt_tokens_details":{"cache_write_tokens":100}}}`
	for control, hour := range map[string]int64{`{"type":"ephemeral","ttl":"1h"}`: 100, `{"type":"ephemeral"}`: 0} {
		r := writesRig(t, &vendor{})
		p := r.plan(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":` + control + `}]}]}`)
		c := r.batched(p, answer)
		if u := c.Result.Usage; u.CacheWrite1h != hour || u.CacheWrite != 100-hour {
			t.Errorf("%s: %+v", control, u)
		}
	}
}
