package auth

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/listen"
)

// Rate is a number of failures per minute, after an initial Burst.
type Rate struct{ PerMinute, Burst int }

func (r Rate) limiter() *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(r.PerMinute)), r.Burst)
}

// limit returns the rate as a limit for all processes.
func (r Rate) limit(id string, by budget.Subject) budget.Limit {
	return budget.Limit{
		ID: id, Subject: by, Metric: budget.Requests,
		Shape: budget.Shape{Kind: budget.Bucket, Amount: int64(r.Burst), Refill: int64(r.PerMinute), Per: time.Minute},
	}
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
// host can use a whole network, so that counts as one address. It is safe for concurrent use.
//
// It may also count in Redis, together with other processes and across restarts. The local count
// then protects Redis, and is what remains while Redis is unreachable.
type FailureLimiter struct {
	each   Rate
	prefix int // bits of an IPv6 address that count
	shared *budget.RequestCounter
	limits []budget.Limit // in shared

	mu    sync.Mutex
	all   *rate.Limiter
	until time.Time // when other processes' failures no longer block all addresses
	ips   map[netip.Addr]*entry
}

type entry struct {
	limiter *rate.Limiter
	last    time.Time
	until   time.Time // when other processes' failures no longer block the address
}

// mostBlocked is how long an answer from Redis blocks before it is asked again.
const mostBlocked = time.Second

// defaultRates returns the rates of wrong keys and tokens, for an address and in total.
func defaultRates() (each, all Rate) {
	return Rate{PerMinute: 60, Burst: 20}, Rate{PerMinute: 600, Burst: 200}
}

// NewFailureLimiter returns the limiter of a process, shared by everything that accepts keys or
// tokens.
func NewFailureLimiter() *FailureLimiter { return NewFailureLimiterWith(defaultRates()) }

// NewSharedFailureLimiter returns a limiter with the same rates for all processes together.
// ipv6Prefix is how many bits of an IPv6 address count.
func NewSharedFailureLimiter(shared *budget.RequestCounter, ipv6Prefix int) *FailureLimiter {
	each, all := defaultRates()
	l := NewFailureLimiterWith(each, all)
	l.shared, l.prefix = shared, ipv6Prefix
	l.limits = []budget.Limit{each.limit("wrong-keys", budget.IP), all.limit("wrong-keys-total", budget.Org)}
	return l
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
	return l.blockedLocked(l.network(ip), now)
}

// blockedLocked is Blocked for a network. l.mu must be held.
func (l *FailureLimiter) blockedLocked(ip netip.Addr, now time.Time) bool {
	e := l.ips[ip]
	if now.Before(l.until) || l.all.TokensAt(now) < 1 {
		return true
	}
	return e != nil && (now.Before(e.until) || e.limiter.TokensAt(now) < 1)
}

// Attempt counts a failed attempt here and, if it is not blocked here, in Redis. It reports whether
// the attempt was allowed. A refused one counts nowhere, except in Redis if it is refused only here.
func (l *FailureLimiter) Attempt(ctx context.Context, ip netip.Addr, now time.Time) bool {
	if l.Blocked(ip, now) {
		return false
	}
	if l.shared != nil {
		call := ledger.Call{Org: "auth:", IP: l.network(ip).String()}
		out, err := l.shared.Count(ctx, l.limits, call)
		if err == nil && !out.Local {
			return l.judged(ip, out.Exceeded(), now)
		}
	}
	return l.failed(ip, now) // concurrent attempts may have blocked it meanwhile
}

// judged obeys Redis: what it counted is allowed, even if concurrent attempts were refused meanwhile.
func (l *FailureLimiter) judged(ip netip.Addr, refused *budget.ExceededError, now time.Time) bool {
	if refused != nil {
		l.block(ip, refused.Binding, now)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked(l.network(ip), now)
	return true
}

// block remembers a refusal by Redis for a moment.
func (l *FailureLimiter) block(ip netip.Addr, by budget.Status, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := now.Add(min(by.Wait, mostBlocked))
	if by.Subject != budget.IP {
		l.until = until
		return
	}
	e := l.entryLocked(l.network(ip), now)
	e.until = until
}

// Failed counts a failed attempt. An attempt from a blocked address does not count: it was
// refused without a check, and must not use up the attempts of others.
func (l *FailureLimiter) Failed(ip netip.Addr, now time.Time) { l.failed(ip, now) }

// failed is Failed, and reports whether the attempt counts.
func (l *FailureLimiter) failed(ip netip.Addr, now time.Time) bool {
	ip = l.network(ip)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blockedLocked(ip, now) {
		return false
	}
	l.countLocked(ip, now)
	return true
}

// countLocked counts a failed attempt of a network. l.mu must be held.
func (l *FailureLimiter) countLocked(ip netip.Addr, now time.Time) {
	l.entryLocked(ip, now).limiter.AllowN(now, 1)
	l.all.AllowN(now, 1)
}

// entryLocked returns the entry of a network. l.mu must be held.
func (l *FailureLimiter) entryLocked(ip netip.Addr, now time.Time) *entry {
	e := l.ips[ip]
	if e == nil {
		if len(l.ips) >= maxEntries {
			l.forgetLocked(now)
		}
		e = &entry{limiter: l.each.limiter()}
		l.ips[ip] = e
	}
	e.last = now
	return e
}

func (l *FailureLimiter) network(ip netip.Addr) netip.Addr { return listen.Network(ip, l.prefix) }

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
