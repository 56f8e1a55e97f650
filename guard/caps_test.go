package guard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// capOf returns a spend cap of a deployment or provider with one cost limit.
func capOf(provider, id string, amount int64) budget.Cap {
	return budget.Cap{Provider: provider, Limits: []budget.Limit{{
		ID: id, Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: time.Hour},
	}}}
}

// capUse returns what each limit of the caps counts, and how much of it is held.
func (r *rig) capUse() map[string][2]int64 {
	r.t.Helper()
	out := map[string][2]int64{}
	for _, c := range r.guard.Policy().Caps {
		list, err := r.store.PeekCap(r.t.Context(), c)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, s := range list {
			out[s.LimitID] = [2]int64{s.Used, s.Held}
		}
	}
	return out
}

// TestCapping checks that a cap counts the calls of its provider, models and endpoints.
func TestCapping(t *testing.T) {
	r := newRig(t)
	some := capOf("", "some", 1)
	some.Limits[0].Models, some.Limits[0].Endpoints = []string{"smart", "gpt-5*"}, []string{"chat.completions"}
	off := capOf("", "off", 1)
	off.Limits[0].Mode = budget.Off
	r.guard.Policy().Caps = []budget.Cap{capOf("", "all", 1), capOf("openai", "ours", 1), capOf("other", "theirs", 1), some, off}
	f := func(body, want string) {
		t.Helper()
		var got []string
		for _, c := range r.plan(body).Caps {
			for _, l := range c.Limits {
				got = append(got, l.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is under %q, want %q", body, got, want)
		}
	}
	f(prompt("gpt-4o", "hi", ""), "ours all")
	f(prompt("smart", "hi", ""), "ours all some") // an alias of gpt-4o
	f(prompt("gpt-5-mini", "hi", ""), "ours all some")
	f(`{"model":"text-embedding-3-small","input":"one"}`, "ours all")
}

// TestCapCounts checks that caps count what a call costs, however it ends.
func TestCapCounts(t *testing.T) {
	r := newRig(t, roomy()...)
	r.guard.Policy().Caps = []budget.Cap{capOf("openai", "provider", 1e12), capOf("", "deployment", 1e12)}
	before := int64(0)
	for _, directive := range []string{"output=40", "output=5 stream", "status=400", "status=500", "usage=none"} {
		extra := `"max_tokens":100`
		if strings.Contains(directive, "stream") {
			extra += `,"stream":true`
		}
		c, _, _ := r.run(t.Context(), prompt("gpt-4o", "[fake: "+directive+"]", extra))
		if !c.Result.void() {
			before += int64(c.Result.Cost)
		}
		for id, got := range r.capUse() {
			if got != [2]int64{before, 0} {
				t.Errorf("after %s (%s) the cap %s counts %v, want %d", directive, c.Result.Outcome, id, got, before)
			}
		}
		if got := r.used()["window"]; got != before {
			t.Errorf("after %s the org's limit counts %d, want %d", directive, got, before)
		}
	}
	c := r.begin(r.plan(prompt("gpt-4o", "hi", ""))) // never sent
	c.EndNow(t.Context())
	if got := r.capUse()["deployment"]; got != [2]int64{before, 0} {
		t.Errorf("a call that was not sent leaves %v", got)
	}
}

// TestCapRefusal checks that a caller learns that a cap is reached and when to retry, but
// nothing about what others spend.
func TestCapRefusal(t *testing.T) {
	r := newRig(t, money("own", 900_000_000))
	secret := capOf("", "board-approved", 123_456_789)
	r.guard.Policy().Caps = []budget.Cap{secret}
	r.begin(r.plan(prompt("gpt-4o", "hi", `"max_tokens":9000`))) // $0.09002
	before := r.capUse()

	f := func(e *Refusal, code, says, retry string) {
		t.Helper()
		public := e.Public()
		h := http.Header{}
		e.Tell(h)
		all := public.Message + " " + strings.Join(public.Header.Values("Retry-After"), "")
		for _, values := range h {
			all += " " + strings.Join(values, " ")
		}
		if (public.Status == 402) != (code == "insufficient_quota") || public.Code != code || !strings.Contains(public.Message, says) || public.Header.Get("X-Should-Retry") != retry {
			t.Errorf("%+v", public)
		}
		for _, hint := range []string{"board", "123456", "0.09", "0.03", "max_tokens"} {
			if strings.Contains(all, hint) {
				t.Errorf("the caller is told %q: %s", hint, all)
			}
		}
		if !strings.Contains(e.Error(), "board-approved") || !strings.Contains(e.Error(), "123456789") {
			t.Errorf("the operator is told %q", e.Error())
		}
	}
	e := r.refused(prompt("gpt-4o", "hi", `"max_tokens":4000`))
	f(e, "rate_limit_exceeded", "the spend cap of this deployment", "false")
	if e.Final() || !e.Soon || e.Binding.Wait <= time.Minute || e.Advice != "" {
		t.Errorf("%+v", e)
	}
	h := http.Header{}
	if e.Tell(h); !strings.HasPrefix(h.Get(HeaderLimits), "own;metric=cost;limit=0.900000000;remaining=0.809980000;") {
		t.Errorf("the org's own limits: %v", h)
	}
	if after := r.capUse(); after["board-approved"] != before["board-approved"] || len(r.refusedHolds()) > 0 {
		t.Errorf("a refused call leaves %v of %v, holds %v", after, before, r.refusedHolds())
	}

	never := r.plan(prompt("gpt-4o", "hi", `"max_tokens":14000`)).Check()
	if !errors.As(never, &e) || !e.Final() || e.Cap == nil {
		t.Fatalf("got %v", never)
	}
	f(e, "insufficient_quota", "the call alone is larger than the spend cap of this deployment", "false")
}

// refusedHolds lists the org's holds after the first.
func (r *rig) refusedHolds() []string {
	return r.redis.Client().ZRange(r.t.Context(), "lg:{acme}:leases", 1, -1).Val()
}

// TestCapCuts checks that a stream whose hold grows is cut off at a cap as at a limit, and
// that its caller learns nothing about the cap except that it is reached.
func TestCapCuts(t *testing.T) {
	r := growing(t, 20, money("own", 1e9))
	secret := capOf("openai", "board-approved", 8*in+100*out)
	r.guard.Policy().Caps = []budget.Cap{secret}
	p := r.teach()
	c := r.begin(r.plan(prompt("gpt-4o", "hi", `"stream":true`)))
	l, err := p.listen(t.Context(), c, 500)
	if err != nil || c.Result.Outcome != Cut {
		t.Fatalf("%s, %v", c.Result.Outcome, err)
	}
	p.hungUp(t)
	c.End(t.Context())
	r.settle()
	got := l.Body.String()
	if l.got < 80 || l.got > 100 || !strings.Contains(got, "the spend cap of this model's provider") || !strings.Contains(got, "cut off") ||
		strings.Contains(got, "board") || strings.Contains(got, "$") {
		t.Errorf("after %d words: %s", l.got, got[max(0, len(got)-400):])
	}
	if use := r.capUse()["board-approved"]; use != [2]int64{int64(c.Result.Cost), 0} || r.used()["own"] != use[0] {
		t.Errorf("charged %v, the cap counts %v, the org's limit %v", c.Result.Cost, use, r.used())
	}
}
