package auth

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestLimiter: an address that guesses is stopped for a while; others are not.
func TestLimiter(t *testing.T) {
	const perMinute, burst = 60, 20
	l := NewFailureLimiterWith(Rate{perMinute, burst}, Rate{1e9, 1e9})
	now := time.Unix(1e9, 0)
	addr := netip.MustParseAddr
	for range burst {
		if l.Blocked(addr("10.0.0.1"), now) {
			t.Fatal("blocked too early")
		}
		l.Failed(addr("10.0.0.1"), now)
	}
	if !l.Blocked(addr("10.0.0.1"), now) || l.Blocked(addr("10.0.0.2"), now) {
		t.Error("the wrong address is blocked")
	}
	if l.Blocked(addr("10.0.0.1"), now.Add(time.Minute/perMinute)) {
		t.Error("blocked for longer than its rate says")
	}
	for i := range burst {
		l.Failed(addr(fmt.Sprintf("2001:db8:1:2::%x", i+1)), now)
	}
	if !l.Blocked(addr("2001:db8:1:2:ffff::"), now) || l.Blocked(addr("2001:db8:1:3::1"), now) {
		t.Error("an IPv6 host escapes within its network")
	}
	for i := range maxEntries {
		l.Failed(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if n := len(l.ips); n > maxEntries {
		t.Errorf("%d addresses are remembered", n)
	}
	l.Failed(addr("12.0.0.1"), now.Add(memory+time.Second))
	l.forgetLocked(now.Add(memory + time.Second))
	if len(l.ips) != 1 {
		t.Errorf("%d addresses are remembered after all but one were quiet", len(l.ips))
	}
}
