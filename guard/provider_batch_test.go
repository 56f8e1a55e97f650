package guard

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// batched returns the call of a line that a provider's Batch API answered, rebuilt from what is stored of it.
func (r *rig) batched(p *Plan, answer string) *Call {
	r.t.Helper()
	b, err := r.guard.Batches.Hold(r.t.Context(), p, wire.NewCallID(), 1, time.Hour)
	if err != nil {
		r.t.Fatal(err)
	}
	stored, err := json.Marshal(b)
	if err != nil {
		r.t.Fatal(err)
	}
	again := Batched{Provider: b.Provider, Model: b.Model, Upstream: b.Upstream, Endpoint: b.Endpoint}
	if err = json.Unmarshal(stored, &again); err != nil {
		r.t.Fatal(err)
	}
	end := &BatchedEnd{Batched: again, Status: http.StatusOK, Body: []byte(answer)}
	c, err := r.guard.Batches.call(r.t.Context(), r.caller(), end)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// TestBatchedWithoutUsage: a line whose answer has no usage is charged as if its request were still known when it ends.
func TestBatchedWithoutUsage(t *testing.T) {
	r := claudeRig(t, roomy()...)
	caller := r.caller()
	caller.Batched = true
	const answer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5",` +
		`"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}`
	for more, whole := range map[string]bool{ // whether the hold is charged, because the text does not bound the bill
		``: false,
		`,"thinking":{"type":"enabled","budget_tokens":5000}`:                 true,
		`,"new_in_2027":{"a":1}`:                                              true,
		`,"fallbacks":[{"model":"claude-haiku-4-5"}]`:                         true,
		`,"context_management":{"edits":[{"type":"compact_20260112"}]}`:       true,
		`,"cache_control":{"type":"ephemeral"}`:                               false,
		`,"cache_control":{"type":"ephemeral","ttl":"1h"}`:                    false,
		`,"cache_control":{"type":"ephemeral"},"thinking":{"type":"enabled"}`: true,
	} {
		body := `{"model":"claude-sonnet-4-5","max_tokens":6000,"messages":[{"role":"user","content":"x"}]` + more + `}`
		req, err := wire.Scan(wire.Messages, []byte(body), wire.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		p, err := r.guard.Plans.Prepare(caller, req)
		if err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		live := r.begin(p)
		err = (&upstreamCall{call: live, upstream: t.Context()}).settlePlain([]byte(answer))
		if err != nil {
			t.Fatalf("%s: %v", more, err)
		}
		got, want := r.batched(p, answer).Result, live.Result
		if got.Cost != want.Cost || got.Usage != want.Usage || (got.Cost == p.Max.Cost) != whole || !got.Estimated {
			t.Errorf("%s: charged %d for %+v, live %d for %+v; held %d", more, got.Cost, got.Usage, want.Cost, want.Usage, p.Max.Cost)
		}
	}
}
