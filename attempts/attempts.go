// Package attempts limits failed authentications by address, in memory, so that
// it works while the store is away.
package attempts

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	maxEntries = 100_000
	memory     = 5 * time.Minute
)

// Limiter counts the failures of each address and forgets those that have been
// quiet. An IPv6 host has a whole /64 to call from, so that counts as one address.
// It is safe for concurrent use.
type Limiter struct {
	every rate.Limit
	burst int

	mu  sync.Mutex
	ips map[netip.Addr]*entry
}

type entry struct {
	limiter *rate.Limiter
	last    time.Time
}

// NewLimiter allows an address so many failures a minute after so many at once.
func NewLimiter(perMinute, burst int) *Limiter {
	return &Limiter{every: rate.Every(time.Minute / time.Duration(perMinute)), burst: burst, ips: map[netip.Addr]*entry{}}
}

// Blocked reports whether an address has used up its failed attempts.
func (l *Limiter) Blocked(ip netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ips[network(ip)]
	return e != nil && e.limiter.TokensAt(now) < 1
}

// Failed counts a failed attempt.
func (l *Limiter) Failed(ip netip.Addr, now time.Time) {
	ip = network(ip)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.ips[ip]
	if e == nil {
		if len(l.ips) >= maxEntries {
			l.forgetLocked(now)
		}
		e = &entry{limiter: rate.NewLimiter(l.every, l.burst)}
		l.ips[ip] = e
	}
	e.last = now
	e.limiter.AllowN(now, 1)
}

func network(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	p, _ := ip.WithZone("").Prefix(64) // 64 fits every IPv6 address
	return p.Addr()
}

// forgetLocked drops quiet addresses, or all when none is quiet. l.mu is held.
func (l *Limiter) forgetLocked(now time.Time) {
	for ip, e := range l.ips {
		if now.Sub(e.last) > memory {
			delete(l.ips, ip)
		}
	}
	if len(l.ips) >= maxEntries {
		clear(l.ips)
	}
}
