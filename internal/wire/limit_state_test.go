package wire

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

// TestSetLimits: the limit with the least remaining share is reported in plain headers, all of them
// in the fields of the IETF, with numbers that are never negative.
func TestSetLimits(t *testing.T) {
	now := time.Unix(1000, 500)
	day := LimitState{
		Name: "day", Unit: UnitMicroUSD, Amount: 10_000_000, Remaining: 4_000_000, Window: 24 * time.Hour,
		Reset: now.Add(90*time.Second + 1),
	}
	calls := LimitState{Name: "calls", Unit: UnitRequests, Amount: 100, Remaining: 50, Window: time.Minute, Reset: now}
	stock := LimitState{Name: "stock", Unit: UnitTokens, Amount: 100, Remaining: -7}
	spent := LimitState{Name: "spent", Unit: UnitParallel, Amount: 5, Reset: now.Add(-time.Hour)}
	f := func(standard Standard, want string, limits ...LimitState) {
		t.Helper()
		h := http.Header{"X-Ratelimit-Limit": {"9"}, "X-Ratelimit-Reset": {"9"}, "Ratelimit": {"9"}}
		SetLimits(h, ChatCompletions, standard, limits, now)
		got := ""
		for _, name := range headerNames {
			if v := h.Get(name); v != "" {
				got += v + "|"
			}
		}
		if got != want {
			t.Errorf("%s: got %s\nwant %s", standard, got, want)
		}
	}
	f(X, "10000000|4000000|1091|day|", day, calls)
	f("", "10000000|4000000|1091|day|", calls, day)
	f(X, "100|0|stock|", day, stock)
	f(X, "100|0|stock|", spent, stock) // of two that are used up, the one that frees last
	f(X, "5|0|1000|spent|", spent)
	f(None, "", day)
	const policy = `"day";q=10000000;w=86400;qu="micro-usd", "calls";q=100;w=60, "stock";q=100;qu="tokens"`
	const state = `"day";r=4000000;t=91, "calls";r=50;t=0, "stock";r=0`
	f(IETF, policy+"|"+state+"|", day, calls, stock)
	f(Both, "100|50|1000|calls|\"calls\";q=100;w=60|\"calls\";r=50;t=0|", calls)
	f(X, "9|9|9|") // none known: as it was
}

// TestRetryJitter: callers refused together are asked to return in different seconds, never before
// the wait is over, and never so late that SDKs disregard the advice.
func TestRetryJitter(t *testing.T) {
	for _, c := range []struct{ percent, wait, least, most int }{
		{10, 1, 1, 3},
		{10, 30, 30, 33},
		{100, 20, 20, 40},
		{10, 58, 58, 60},
		{10, 60, 60, 60},
		{10, 61, 61, 67},
		{10, 7200, 7200, 7260},
		{0, 30, 30, 30},
	} {
		seen := map[int]bool{}
		for range 300 {
			h := http.Header{}
			HeaderRules{RetryJitter: c.percent}.Advise(h, RateLimited("x", time.Duration(c.wait)*time.Second))
			got, err := strconv.Atoi(h.Get("Retry-After"))
			if err != nil || got < c.least || got > c.most || (h.Get("X-Should-Retry") == "false") != (c.wait > 60) {
				t.Fatalf("%d%% of %d s: headers %v, want %d to %d", c.percent, c.wait, h, c.least, c.most)
			}
			seen[got] = true
		}
		if want := min(c.most-c.least+1, 3); len(seen) < want {
			t.Errorf("%d%% of %d s: only %v, want at least %d values", c.percent, c.wait, seen, want)
		}
	}
	h := http.Header{}
	HeaderRules{RetryJitter: 100}.Advise(h, NotFinished("x", 2*time.Second))
	if h.Get("Retry-After") != "2" {
		t.Errorf("a 409 got %v, want no jitter", h)
	}
}
