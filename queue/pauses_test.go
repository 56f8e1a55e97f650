package queue

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// answerOf is a provider's answer for a model that was sent now.
func answerOf(model string, status int, header http.Header, body string) quota.Head {
	h := quota.Head{Model: model, Status: status, Header: header, Sent: time.Now()}
	if body != "" {
		h.Body = []byte(body)
	}
	return h
}

// takes requests quota for a call of a model; it returns the grant, or why there is none.
func (e *env) takes(model string) (*quota.Grant, string) {
	e.t.Helper()
	g, err := e.Quota().Take(e.t.Context(), quota.Request{Pool: "p", ID: wire.NewCallID(), Org: "acme", User: model, Model: model})
	var busy *quota.BusyError
	if errors.As(err, &busy) {
		return nil, busy.Reason
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return g, ""
}

func (e *env) observes(h quota.Head) {
	e.t.Helper()
	if _, err := e.Observe(e.t.Context(), "p", h); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) gives(g *quota.Grant) {
	e.t.Helper()
	if err := e.Give(e.t.Context(), g, false); err != nil {
		e.t.Fatal(err)
	}
}

// TestPausesAreBounded: whatever a provider asks for, a pause ends within the bound, an account's within an
// hour, and one that an older version has written within five minutes.
func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	const account, retry = `{"error":{"message":"no","type":"t","code":"insufficient_quota"}}`, "Retry-After"
	gemini := `[{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%s"}]}}]`
	for name, tc := range map[string]struct {
		status int
		header http.Header
		body   string
		want   time.Duration
	}{
		"huge":          {503, http.Header{retry: {"9999999999999"}}, "", time.Minute},
		"overflow":      {429, http.Header{retry: {"1e300"}}, "", time.Minute},
		"infinite":      {429, http.Header{retry: {"Inf"}}, "", time.Minute},
		"not a number":  {429, http.Header{retry: {"NaN"}}, "", time.Second},
		"negative":      {529, http.Header{retry: {"-5"}}, "", time.Second},
		"date":          {429, http.Header{retry: {"Fri, 01 Jan 2199 00:00:00 GMT"}}, "", time.Minute},
		"ms":            {429, http.Header{"Retry-After-Ms": {"99999999999999"}}, "", time.Minute},
		"short":         {429, http.Header{retry: {"7"}}, "", 7 * time.Second},
		"reset":         {429, http.Header{"X-Ratelimit-Limit-Requests": {"60"}, "X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"9999999999"}}, "", time.Second},
		"gemini":        {429, http.Header{}, fmt.Sprintf(gemini, "4s"), 4 * time.Second},
		"gemini, huge":  {429, http.Header{}, fmt.Sprintf(gemini, "99999999999s"), time.Minute},
		"spent":         {429, http.Header{retry: {"1"}}, account, time.Hour},
		"spent, 402":    {402, http.Header{}, `{}`, time.Hour},
		"key refused":   {401, http.Header{retry: {"99999999"}}, `{"error":{"code":"invalid_api_key"}}`, time.Hour},
		"key forbidden": {403, http.Header{}, `{"error":{"code":"account_deactivated"}}`, time.Hour},
		"moderated":     {403, http.Header{}, `{"error":{"code":403,"message":"flagged"}}`, 0},
		"missing scope": {401, http.Header{}, `{"error":{"code":"missing_scope"}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, Options{}, Pool{ID: "p", MaxPause: time.Minute})
			e.at(simStart)
			e.observes(answerOf("m", tc.status, tc.header, tc.body))
			d, err := e.Depth(t.Context(), "p")
			if err != nil || (d.Blocked-tc.want).Abs() > time.Millisecond {
				t.Errorf("blocked for %s, %v; want %s", d.Blocked, err, tc.want)
			}
		})
	}
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.at(simStart)
	e.rdb.HSet(t.Context(), "lg:{p}:quota", "blk", (simStart + 364*24*time.Hour).Microseconds())
	if _, why := e.takes("m"); why != "blocked" {
		t.Errorf("a pause of an older version: got %q, want blocked", why)
	}
	e.at(simStart + 5*time.Minute)
	if _, why := e.takes("m"); why != "" {
		t.Errorf("five minutes later: got %q, want a grant", why)
	}
}

// TestOneTrialAfterALongPause: after a pause that was cut short, one call is tried. Others follow when its
// answer is no refusal. A trial that ends without an answer makes place for another.
func TestOneTrialAfterALongPause(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"", "account"} {
		e := newEnv(t, Options{}, Pool{ID: "p", MaxPause: time.Minute})
		now := simStart
		refuse := func() {
			e.observes(answerOf("m", 429, http.Header{"Retry-After": {"9999"}, "X-Ratelimit-Scope": {scope}}, ""))
			now += time.Minute
			e.at(now)
		}
		e.at(now)
		refuse()
		for i := range 3 {
			g, why := e.takes("m")
			if g == nil {
				t.Fatalf("%q, trial %d: %s", scope, i, why)
			}
			if _, why := e.takes("m"); why != "blocked" {
				t.Fatalf("%q: got %q beside trial %d, want blocked", scope, why, i)
			}
			other, why := e.takes("n")
			if blocked := scope != ""; (other == nil) != blocked {
				t.Fatalf("%q: got %q for another model beside trial %d", scope, why, i)
			}
			if other != nil {
				e.gives(other)
			}
			if i == 1 {
				refuse()
			}
			if i < 2 {
				e.gives(g) // the first without any answer
				continue
			}
			now += time.Second
			e.at(now)
			e.observes(answerOf("m", 200, nil, ""))
		}
		for range 2 {
			now += 3 * time.Second // the pace is reduced
			e.at(now)
			if _, why := e.takes("m"); why != "" {
				t.Errorf("%q: got %q after a trial that was answered, want a grant", scope, why)
			}
		}
	}
}

// TestARefusalRestsItsModelFirst: live calls and jobs of other models continue, however many jobs of the
// refused one are before them; a second refused model rests the pool; and Resume ends all of it.
func TestARefusalRestsItsModelFirst(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	now := simStart
	e.at(now)
	minute := http.Header{"Retry-After": {"60"}}
	e.observes(answerOf("m", 429, minute, ""))
	first := e.put(e.job("p", "acme", "u", Async, 1))
	for i := range 3 * 32 {
		e.put(e.job("p", "acme", fmt.Sprint("u", i), Async, 1))
	}
	last := e.job("p", "zeta", "z", Async, 1)
	last.Model = "n"
	e.put(last)
	if at := e.expect(first); (at.ETA-time.Minute).Abs() > 5*time.Second || at.Cause != "pool:p" {
		t.Errorf("a job of the refused model: got %s for %s, want a minute", at.ETA, at.Cause)
	}
	if at := e.expect(last); at.ETA != 0 {
		t.Errorf("a job of another model: got %s for %s, want now", at.ETA, at.Cause)
	}
	if _, why := e.takes("m"); why != "blocked" {
		t.Errorf("the refused model: got %q, want blocked", why)
	}
	if _, why := e.takes("n"); why != "" {
		t.Errorf("another model: got %q, want a grant", why)
	}
	var got []*Claim
	for range 10 {
		got = append(got, e.claim("p", 100)...)
	}
	if len(got) != 1 || got[0].Job.ID != last.ID {
		t.Errorf("got %d claims, want the job of the other model only", len(got))
	}
	if d, err := e.Depth(t.Context(), "p"); err != nil || d.BlockedModel != "m" || d.Blocked <= 0 {
		t.Errorf("got %+v, %v; want model m blocked", d, err)
	}
	e.observes(answerOf("n", 429, http.Header{"Retry-After": {"5"}}, ""))
	if _, why := e.takes("x"); why != "blocked" {
		t.Errorf("a third model beside two refused ones: got %q, want blocked", why)
	}
	now += 6 * time.Second
	e.at(now)
	if _, why := e.takes("x"); why != "" {
		t.Errorf("after the shorter pause: got %q, want a grant", why)
	}
	if left, err := e.Quota().Resume(t.Context(), "p"); err != nil || left != 54*time.Second {
		t.Errorf("resumed %s early, %v; want 54 s", left, err)
	}
	now += 3 * time.Second
	e.at(now)
	if _, why := e.takes("m"); why != "" {
		t.Errorf("after it was resumed: got %q, want a grant", why)
	}
	now += time.Minute
	e.at(now)
	if n := len(e.claim("p", 100)); n == 0 {
		t.Error("no job of the refused model runs after the pause")
	}
}
