package auth

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is a number of failures per minute, after an initial Burst.
type Rate struct{ PerMinute, Burst int }

func (r Rate) limiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(r.PerMinute)), r.Burst)
}

// FailureRetryAfter is when a blocked address may try again: NewFailureLimiter's rates allow
// another attempt at least that often.
const FailureRetryAfter = time.Second

const (
	maxEntries = 100_000
	memory     = 5 * time.Minute
)

// FailureLimiter counts the failures of each address and of all addresses together, so that
// guessing from many addresses gains no more than from ten. It drops quiet addresses. An IPv6
// host can use a whole /64, so that counts as one address. It is safe for concurrent use.
type FailureLimiter struct {
	each Rate

	mu  sync.Mutex
	all *rate.Limiter
	ips map[netip.Addr]*entry
}

type entry struct {
	limiter *rate.Limiter
	last    time.Time
}

// NewFailureLimiter returns the limiter of a process, shared by everything that accepts keys or
// tokens.
func NewFailureLimiter() *FailureLimiter {
	return NewFailureLimiterWith(Rate{PerMinute: 60, Burst: 20}, Rate{PerMinute: 600, Burst: 200})
}

// NewFailureLimiterWith returns a limiter with these rates, per address and in total.
func NewFailureLimiterWith(each, all Rate) *FailureLimiter {
	return &FailureLimiter{each: each, all: all.limiter(), ips: map[netip.Addr]*entry{}}
}

// Burst is how many failed attempts of one address are accepted before it is blocked.
func (l *FailureLimiter) Burst() int { return l.each.Burst }

// Blocked reports whether an address, or all addresses together, have used up the failed
// attempts.
func (l *FailureLimiter) Blocked(ip netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blockedLocked(network(ip), now)
}

// blockedLocked is Blocked for a network. l.mu must be held.
func (l *FailureLimiter) blockedLocked(ip netip.Addr, now time.Time) bool {
	e := l.ips[ip]
	return l.all.TokensAt(now) < 1 || e != nil && e.limiter.TokensAt(now) < 1
}

// Failed counts a failed attempt. An attempt from a blocked address does not count: it was
// refused without a check, and must not use up the attempts of others.
func (l *FailureLimiter) Failed(ip netip.Addr, now time.Time) {
	ip = network(ip)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blockedLocked(ip, now) {
		return
	}
	e := l.ips[ip]
	if e == nil {
		if len(l.ips) >= maxEntries {
			l.forgetLocked(now)
		}
		e = &entry{limiter: l.each.limiter()}
		l.ips[ip] = e
	}
	e.last = now
	e.limiter.AllowN(now, 1)
	l.all.AllowN(now, 1)
}

func network(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	p, _ := ip.WithZone("").Prefix(64) // 64 is valid for every IPv6 address
	return p.Addr()
}

// forgetLocked drops quiet addresses, or all if none is quiet. l.mu must be held.
func (l *FailureLimiter) forgetLocked(now time.Time) {
	for ip, e := range l.ips {
		if now.Sub(e.last) > memory {
			delete(l.ips, ip)
		}
	}
	if len(l.ips) >= maxEntries {
		clear(l.ips)
	}
}
