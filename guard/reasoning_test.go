package guard

import "testing"

// TestThoughtsBeyondTheLimitAreHeld checks that a reasoning budget larger than the output
// limit is held in addition to it, wherever the request sets it.
func TestThoughtsBeyondTheLimitAreHeld(t *testing.T) {
	r := vendorRig(t, &vendor{status: 200, kind: "application/json"}, nil)
	for extra, want := range map[string]int64{
		``:                        100,
		`"thinking_budget":5000,`: 5100,
		`"thinking":{"type":"enabled","budget_tokens":5000},`: 5100,
		`"reasoning":{"max_tokens":5000},`:                    5100,
		`"chat_template_kwargs":{"thinking_budget":5000},`:    5100,
		`"reasoning_budget":-1,`:                              100,
		`"thinking_budget":80,`:                               100,
		`"chat_template_kwargs":{"seed":5000},`:               100,
		`"thinking":true,`:                                    100,
	} {
		plan, err := r.prepare(prompt("m", "hello", extra+`"max_tokens":100`))
		if err != nil {
			t.Errorf("%s: %v", extra, err)
		} else if plan.Output != want {
			t.Errorf("%s: holds %d tokens of output, want %d", extra, plan.Output, want)
		}
	}
}
