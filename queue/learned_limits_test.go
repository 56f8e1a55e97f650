package queue

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/randtest"
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
			if err != nil || (d.Rates[0].Limit != u.rpm && d.Rates[1].Limit != u.tpm) {
				t.Errorf("learned %d requests, %d tokens, %v; want %d and %d", d.Rates[0].Limit, d.Rates[1].Limit, err, u.rpm, u.tpm)
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
