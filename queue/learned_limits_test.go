package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// upstream is a provider in simulated time that counts a sliding minute like OpenAI,
// including refused requests. In a storm it answers 429 with a wrong Retry-After or none.
// Its limit headers are always correct.
type upstream struct {
	rpm, tpm int64
	log      []arrival
	storms   func(at time.Duration) bool
	advice   func(i int) string // Retry-After of a refusal in a storm
	refused  int
}

type arrival struct {
	at      time.Duration
	tokens  int64
	refused bool
}

// within sums the minute before a time.
func (u *upstream) within(at time.Duration) (requests, tokens int64, newest time.Duration) {
	for _, a := range slices.Backward(u.log) {
		if at-a.at >= time.Minute {
			break
		}
		if a.at > at {
			continue
		}
		requests, tokens, newest = requests+1, tokens+a.tokens, max(newest, a.at)
	}
	return requests, tokens, newest
}

func (u *upstream) answer(at time.Duration, tokens int64) quota.Head {
	requests, used, _ := u.within(at)
	a := arrival{at: at, tokens: tokens}
	h := http.Header{}
	switch {
	case u.storms != nil && u.storms(at):
		a.refused, a.tokens = true, 0
		if text := u.advice(u.refused); text != "" {
			h.Set("Retry-After", text)
		}
	case requests+1 > u.rpm || (u.tpm > 0 && used+tokens > u.tpm):
		a.refused, a.tokens = true, 0
	}
	u.log = append(u.log, a)
	requests, used, newest := u.within(at)
	reset := (newest + time.Minute - at).String()
	h.Set("X-Ratelimit-Limit-Requests", strconv.FormatInt(u.rpm, 10))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.FormatInt(max(u.rpm-requests, 0), 10))
	h.Set("X-Ratelimit-Reset-Requests", reset)
	if u.tpm > 0 {
		h.Set("X-Ratelimit-Limit-Tokens", strconv.FormatInt(u.tpm, 10))
		h.Set("X-Ratelimit-Remaining-Tokens", strconv.FormatInt(max(u.tpm-used, 0), 10))
		h.Set("X-Ratelimit-Reset-Tokens", reset)
	}
	status := http.StatusOK
	if a.refused {
		status = http.StatusTooManyRequests
		u.refused++
	}
	return quota.Head{Model: "m", Status: status, Header: h}
}

// drive lets two processes drain a backlog against the upstream for some simulated time.
// Answers arrive up to 100 ms after the requests.
func drive(t *testing.T, e, other *env, u *upstream, length time.Duration, tokens int64) {
	t.Helper()
	type open struct {
		at, took time.Duration
		reply    quota.Head
	}
	seed := randtest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	var flight []open
	queues := []*env{e, other}
	pacers := []*pacer{newPacer(e.Queue, e.settings.pools()["p"], 1), newPacer(other.Queue, other.settings.pools()["p"], 1)}
	next := []time.Duration{simStart, simStart}
	for now := simStart; now < simStart+length; now += 10 * time.Millisecond {
		e.at(now)
		other.at(now)
		flight = slices.DeleteFunc(flight, func(o open) bool {
			if o.at > now {
				return false
			}
			o.reply.Sent = time.Now().Add(-o.took)
			if _, err := queues[rng.IntN(2)].Observe(t.Context(), "p", o.reply); err != nil {
				t.Fatal(err)
			}
			return true
		})
		for i, pc := range pacers {
			if now < next[i] {
				continue
			}
			got, err := pc.acquire(t.Context(), 20)
			if err != nil {
				t.Fatal(err)
			}
			next[i] = now + min(max(got.wait, 0), maxSleep)
			for _, c := range got.claims {
				c.Job, _ = e.reader.load(t.Context(), c.p, c.id)
				latency := time.Duration(rng.IntN(100)) * time.Millisecond
				flight = append(flight, open{now + latency, latency, u.answer(now+latency/2, tokens)})
				if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		slices.SortFunc(u.log, func(a, b arrival) int { return int(a.at - b.at) })
	}
}

// TestStorms uses a provider that refuses in storms, with a wrong Retry-After or none, and
// reports its limits correctly. After the first refusal no sliding minute may exceed the
// provider's quota, although the pool is configured with a higher one or none, and within
// two minutes of a storm 95 % of the quota must be used again.
func TestStorms(t *testing.T) {
	t.Parallel()
	length := 165 * time.Second
	if soak {
		length = time.Hour
	}
	for name, tc := range map[string]struct {
		pool   Pool
		advice []string
	}{
		"no quota configured, no advice": {Pool{}, []string{""}},
		"too high, advice too short":     {Pool{RPM: 3000}, []string{"0", "0.001"}},
		"tokens, advice too long":        {Pool{TPM: 1_000_000}, []string{"3600", "", "86400"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.pool.ID, tc.pool.MaxJobs = "p", -1
			e := newEnv(t, Options{OrgShare: 100}, tc.pool)
			other := envOn(t, e.srv, Options{OrgShare: 100}, tc.pool)
			e.at(simStart)
			u := &upstream{rpm: 300}
			tokens, quota := int64(10), 300.0
			if tc.pool.TPM > 0 {
				u.rpm, u.tpm, tokens, quota = 10_000, 60_000, 200, 300
			}
			const every, lasts = 170 * time.Second, 20 * time.Second // the first from 20 to 40 s
			u.storms = func(at time.Duration) bool { return (at-simStart+every-lasts)%every < lasts }
			u.advice = func(i int) string { return tc.advice[i%len(tc.advice)] }
			var backlog []*Job
			for i := range int(quota * (length.Minutes() + 1)) {
				backlog = append(backlog, e.job("p", fmt.Sprintf("o%d", i%5), "u", Async, tokens))
			}
			e.putAll(backlog)
			drive(t, e, other, u, length, tokens)
			checkStorms(t, u, length)
			done := 0
			for _, a := range u.log { // the second minute after the first storm
				if since := a.at - simStart - 2*lasts; since >= time.Minute && since < 2*time.Minute && !a.refused {
					done++
				}
			}
			if float64(done) < 0.95*quota {
				t.Errorf("%d calls in the second minute after the storm, want 95 %% of %.0f", done, quota)
			}
			d, err := e.Depth(t.Context(), "p")
			if err != nil || (d.RPM != u.rpm && d.TPM != u.tpm) {
				t.Errorf("learned %d requests, %d tokens, %v; want %d and %d", d.RPM, d.TPM, err, u.rpm, u.tpm)
			}
			if d.Waiting[Async] == 0 {
				t.Error("the backlog is empty")
			}
		})
	}
}

// checkStorms checks that no minute that begins after the first refusal was answered
// exceeds the quota.
func checkStorms(t *testing.T, u *upstream, length time.Duration) {
	t.Helper()
	first := slices.IndexFunc(u.log, func(a arrival) bool { return a.refused })
	if first < 0 {
		t.Fatal("no storm")
	}
	known := u.log[first].at + 150*time.Millisecond
	var most int64
	for at := known + time.Minute; at < simStart+length; at += 100 * time.Millisecond {
		requests, tokens, _ := u.within(at)
		most = max(most, requests)
		if requests > u.rpm || (u.tpm > 0 && tokens > u.tpm) {
			t.Fatalf("%d requests, %d tokens in the minute before %s", requests, tokens, at-simStart)
		}
	}
	t.Logf("%d requests, %d refused, at most %d in a minute", len(u.log), u.refused, most)
}

// TestRefusalWithoutATimeBlocks checks that all processes pause for a second after a
// provider refuses with a Retry-After of zero.
func TestRefusalWithoutATimeBlocks(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	rest, err := e.Observe(t.Context(), "p", quota.Head{
		Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"0"}}, Sent: time.Now(),
	})
	if err != nil || rest != time.Second {
		t.Errorf("got a rest of %s, %v; want 1 s", rest, err)
	}
	d, err := e.Depth(t.Context(), "p")
	if err != nil || d.Blocked <= 0 {
		t.Errorf("got %+v, %v; want the pool blocked", d, err)
	}
}

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
	for i := range 3 * 32 {
		e.put(e.job("p", "acme", fmt.Sprint("u", i), Async, 1))
	}
	last := e.job("p", "zeta", "z", Async, 1)
	last.Model = "n"
	e.put(last)
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
