package auth_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/redistest"
)

var now = time.Unix(1_800_000_000, 0)

// plenty is a total rate that these tests do not reach.
var plenty = auth.Rate{PerMinute: 1e6, Burst: 1e6}

// fail makes an address fail several times.
func fail(l *auth.FailureLimiter, ip string, times int, at time.Time) {
	for range times {
		l.Failed(netip.MustParseAddr(ip), at)
	}
}

// Attempts return at the rate, up to the burst.
func TestAttemptsComeBack(t *testing.T) {
	l, ip := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 60, Burst: 5}, plenty), netip.MustParseAddr("10.0.0.1")
	fail(l, "10.0.0.1", 5, now)
	for _, tc := range []struct {
		after time.Duration
		fails int // allowed after that
	}{{0, 0}, {999 * time.Millisecond, 0}, {time.Second, 1}, {3 * time.Second, 2}, {time.Hour, 5}} {
		at := now.Add(tc.after)
		allowed := 0
		for !l.Blocked(ip, at) && allowed < 100 {
			l.Failed(ip, at)
			allowed++
		}
		if allowed != tc.fails {
			t.Errorf("after %s: got %d attempts, want %d", tc.after, allowed, tc.fails)
		}
	}
}

// Failures while an address is blocked do not extend the block.
func TestFailuresWhileBlocked(t *testing.T) {
	l := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 60, Burst: 5}, plenty)
	fail(l, "10.0.0.1", 500, now)
	if !l.Blocked(netip.MustParseAddr("10.0.0.1"), now) ||
		l.Blocked(netip.MustParseAddr("10.0.0.1"), now.Add(time.Second)) {
		t.Error("got it blocked for another time than one second")
	}
}

// An IPv6 /64 counts as one address, whatever its zone; IPv4 addresses count individually.
func TestAddressesThatCountAsOne(t *testing.T) {
	for _, tc := range []struct {
		failed, asked string
		want          bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"::1", "10.0.0.1", false},
	} {
		l := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 1, Burst: 3}, plenty)
		fail(l, tc.failed, 3, now)
		got := l.Blocked(netip.MustParseAddr(tc.asked), now)
		if got != tc.want {
			t.Errorf("%s failed: got %s blocked %v, want %v", tc.failed, tc.asked, got, tc.want)
		}
	}
}

// Requests with an unknown address share one count.
func TestUnknownAddress(t *testing.T) {
	l := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 1, Burst: 2}, plenty)
	if l.Blocked(netip.Addr{}, now) {
		t.Error("before a failure: got it blocked")
	}
	for range 2 {
		l.Failed(netip.Addr{}, now)
	}
	if !l.Blocked(netip.Addr{}, now) {
		t.Error("after two failures: got it free")
	}
}

// Blocked itself uses up nothing.
func TestLookingCostsNothing(t *testing.T) {
	l := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 1, Burst: 1}, plenty)
	for range 100 {
		if l.Blocked(netip.MustParseAddr("10.0.0.1"), now) {
			t.Fatal("got it blocked without a failure")
		}
	}
}

// Of concurrent failures, each counts.
func TestFailuresAtOnce(t *testing.T) {
	l, ip := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 1, Burst: 100}, plenty), netip.MustParseAddr("10.0.0.1")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { fail(l, "10.0.0.1", 10, now) })
	}
	redistest.Wait(t, all.Wait)
	if !l.Blocked(ip, now) {
		t.Error("after 100 failures of 100: got it free")
	}
}

// TestGuessesFromEverywhere: all addresses share a total rate, and blocked ones do not use it
// up.
func TestGuessesFromEverywhere(t *testing.T) {
	l := auth.NewFailureLimiterWith(auth.Rate{PerMinute: 60, Burst: 5}, auth.Rate{PerMinute: 60, Burst: 12})
	fail(l, "10.0.0.1", 1000, now) // only five count
	fail(l, "10.0.0.2", 5, now)
	other := netip.MustParseAddr("10.0.0.3")
	if l.Blocked(other, now) {
		t.Error("after 10 failures of 12: got another address blocked")
	}
	fail(l, "2001:db8::1", 1, now)
	fail(l, "2001:db8:1::1", 1, now)
	if !l.Blocked(other, now) {
		t.Error("after 12 failures of 12 in all: got another address free")
	}
	if l.Blocked(other, now.Add(time.Second)) {
		t.Error("a second later: got another address blocked")
	}
}
