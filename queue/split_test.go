package queue

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// books returns what is booked of each rate of pool p.
func (e *env) books() map[string]int64 {
	e.t.Helper()
	d, err := e.Depth(e.t.Context(), "p")
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, r := range d.Rates {
		out[r.Name] = r.Used
	}
	return out
}

// booked checks what is booked of each rate.
func (e *env) booked(when string, requests, input, output int64) {
	e.t.Helper()
	if got := e.books(); got["rpm"] != requests || got["itpm"] != input || got["otpm"] != output || len(got) != 3 {
		e.t.Errorf("%s: booked %v, want %d requests, %d input and %d output tokens", when, got, requests, input, output)
	}
}

// grant takes quota for a call that must fit.
func (e *env) grant(id string, input int64) *quota.Grant {
	e.t.Helper()
	g, err := e.Take(e.t.Context(), "p", id, Flow{"acme", "ann"}, input)
	if err != nil {
		e.t.Fatalf("%s: %v", id, err)
	}
	return g
}

// counts ends a grant with what the provider counted.
func (e *env) counts(g *quota.Grant, c quota.Counted) {
	e.t.Helper()
	g.Counted = c
	if err := e.Give(e.t.Context(), g, false); err != nil {
		e.t.Fatal(err)
	}
}

// TestInputAndOutputCountApart: a call takes its input and the mean output. When it ends, what it read from a
// cache returns, and what it produced replaces the mean.
func TestInputAndOutputCountApart(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", Split: true, RPM: 100, TPM: 10_000, OTPM: 10_000})
	e.at(simStart)
	first, second := e.grant("first", 3000), e.grant("second", 2000)
	e.booked("as two are open", 2, 5000, 2*4096)
	if _, why := e.takes("m"); why != "otpm" {
		t.Errorf("a third: %q, want otpm", why)
	}
	e.at(simStart + 5*time.Second)
	e.counts(first, quota.Counted{Used: 3100 + 100, Cached: 2500, Output: 100})
	e.booked("after one with a cache", 2, 2000+600, 4096+100)
	e.at(simStart + 6*time.Second)
	third := e.grant("third", 100)
	e.booked("with the mean of one answer", 3, 2700, 4096+100+100)
	e.counts(second, quota.Counted{Used: 2400 + 900, Output: 900})
	e.booked("after more input and output than expected", 3, 600+2400+100, 100+100+900)
	if err := e.Give(t.Context(), third, true); err != nil {
		t.Fatal(err)
	}
	e.booked("without the unused one", 2, 600+2400, 100+900)
	e.at(simStart + 7*time.Second)
	e.counts(e.grant("unknown", 50), quota.Counted{Used: -1})
	e.booked("after one without a usage", 3, 3050, 100+900+150) // 150 is (15*100+900)/16
	var busy *quota.BusyError
	if _, err := e.Take(t.Context(), "p", "large", Flow{"acme", "ann"}, 8000); !errors.As(err, &busy) || busy.Reason != "itpm" {
		t.Errorf("too much input for now: %v, want itpm", err)
	}
	e.at(simStart + 2*time.Minute)
	e.booked("as last booked", 3, 3050, 1150)
	g := e.grant("huge", 2_000_000)
	e.booked("of a call that may read all of it from a cache", 1, 10_000, 150)
	e.counts(g, quota.Counted{Used: 2_000_000, Cached: 1_999_000, Output: 10})
	e.booked("which it did", 1, 990, 10)
}

// TestJobsTakeInputAndOutput: jobs take both quotas, in order, and give back what they did not use. One with more
// input than the learned limit may run, because it may read it from a cache.
func TestJobsTakeInputAndOutput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", Split: true, TPM: 15_000, OTPM: 5000})
	e.at(simStart)
	j := e.job("p", "acme", "ann", Async, 20_000)
	const input = "Anthropic-Ratelimit-Input-Tokens-"
	e.observes(answerOf(j.Model, http.StatusOK, http.Header{input + "Limit": {"10000"}, input + "Remaining": {"10000"}}, ""))
	e.put(j)
	next := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if c.never != 0 {
		t.Errorf("it never fits %d", c.never)
	}
	e.booked("as a job that may read a cache runs", 1, 10_000, 4096)
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatalf("%d more jobs run, want them to wait", len(got))
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := Verdict{Kind: Done, Counted: quota.Counted{Used: 20_300, Cached: 19_500, Output: 300}}
	if err := c.finish(t.Context(), Succeeded, v, ""); err != nil {
		t.Fatal(err)
	}
	e.booked("after it", 1, 500, 300)
	e.at(simStart + time.Second)
	e.claimOne("p", next)
	e.booked("as the next one runs", 2, 510, 600)
}

// TestLargeJobReservesInput: a job that is larger than the bucket gets input reserved, as it gets tokens of a
// pool that does not split them.
func TestLargeJobReservesInput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Split: true, TPM: 10_000, OTPM: 100_000})
	e.at(simStart)
	e.grant("live", 5000)
	j := e.put(e.job("p", "acme", "ann", Async, 8000))
	if got := e.claim("p", 1); len(got) != 0 {
		t.Fatalf("%d jobs run, want none", len(got))
	}
	if res := e.rdb.HGet(t.Context(), "lg:{p}:quota", "res").Val(); !strings.HasPrefix(res, j.ID+" 8000 ") {
		t.Errorf("reserved %q, want the job's 8000 tokens", res)
	}
}

// TestOutputIsPaced: over many minutes, calls that end as they come never book more output than the quota in
// one, though each produces what was not known before.
func TestOutputIsPaced(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", Split: true, OTPM: 6000})
	e.at(simStart)
	done := 0
	for now := simStart; now < simStart+5*time.Minute; now += time.Second {
		e.at(now)
		g, err := e.Take(t.Context(), "p", "c"+now.String(), Flow{"acme", "ann"}, 10)
		if err != nil {
			continue
		}
		done++
		e.counts(g, quota.Counted{Used: 210, Output: 200})
		if got := e.books(); got["otpm"] > 6000 {
			t.Fatalf("after %s: %v booked of 6000", now-simStart, got)
		}
	}
	if done < 4*30 || done > 5*30+5 {
		t.Errorf("%d calls of 200 tokens in five minutes, want nearly 30 a minute", done)
	}
}

// TestSplitLimitsAreLearned: limits of input and output are learned from Anthropic's headers, with what others
// use of them, but not what only their rounding adds.
func TestSplitLimitsAreLearned(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", Split: true, TPM: 50_000})
	e.at(simStart)
	e.counts(e.grant("c", 1400), quota.Counted{Used: 1500, Output: 100})
	h := http.Header{}
	for name, left := range map[string][2]string{"Requests": {"50", "49"}, "Input-Tokens": {"30000", "28000"}, "Output-Tokens": {"8000", "5000"}} {
		name = "Anthropic-Ratelimit-" + name
		h[name+"-Limit"], h[name+"-Remaining"] = []string{left[0]}, []string{left[1]}
		h[name+"-Reset"] = []string{time.Now().Add(40 * time.Second).UTC().Format(time.RFC3339)}
	}
	e.observes(answerOf("m", http.StatusOK, h, ""))
	e.booked("with others' output", 1, 1500, 2500) // 28,000 may be 28,500, and 5,000 may be 5,500
	d, err := e.Depth(t.Context(), "p")
	if want := (Rates{{"rpm", 1, 50}, {"itpm", 1500, 30_000}, {"otpm", 2500, 8000}}); err != nil || len(d.Rates) != 3 || [3]Rate(d.Rates) != [3]Rate(want) {
		t.Errorf("got %v, %v; want %v", d.Rates, err, want)
	}
	if full := d.Rates.Fullest(); full.Name != "otpm" {
		t.Errorf("the fullest is %v", full)
	}
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	e.observes(answerOf("m", 529, http.Header{}, overloaded))
	after, err := e.Depth(t.Context(), "p")
	if err != nil || [3]Rate(after.Rates) != [3]Rate(d.Rates) || after.Blocked <= 0 || after.Blocked > time.Second {
		t.Errorf("after a 529: %v, blocked for %s, %v; want the same, and a second", after.Rates, after.Blocked, err)
	}
}

// TestUsedUpMonth: an account that has used up its month is left alone until the first of the next one, unless
// the provider names a time.
func TestUsedUpMonth(t *testing.T) {
	t.Parallel()
	const body = `{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}`
	for after, want := range map[string]time.Duration{"": 0, "60": time.Hour} {
		e := newEnv(t, Options{}, Pool{ID: "p", Split: true})
		e.at(simStart)
		h := http.Header{}
		if after != "" {
			h.Set("Retry-After", after)
		}
		now := time.Now().UTC()
		if want == 0 {
			want = time.Until(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC))
		}
		e.observes(answerOf("m", http.StatusTooManyRequests, h, body))
		e.at(simStart + want - time.Minute)
		if _, why := e.takes("m"); why != "blocked" {
			t.Errorf("after %q, a minute before: %q, want blocked", after, why)
		}
		e.at(simStart + want + time.Second)
		if _, why := e.takes("m"); why != "" {
			t.Errorf("after %q, a second after: %q, want the trial", after, why)
		}
		if _, why := e.takes("m"); why != "blocked" {
			t.Errorf("after %q, during the trial: %q, want blocked", after, why)
		}
	}
}
