package proxy

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/keys"
	"github.com/llmguard/llmguard/wire"
)

// Principal is the owner of an API key.
type Principal struct {
	Org       *guard.Org
	User, Key string
	Models    []string // empty means all the org's
	Expires   time.Time
	Disabled  bool
}

// Directory finds the owner of a key. It is immutable.
type Directory struct {
	Peppers []keys.Pepper        // tried in order, and no pepper last
	ByHash  map[string]Principal // by keys.Hash
}

// find returns the principal of a key's text. Looking up a keyed hash tells
// nothing by its timing: a guess cannot be steered towards a stored hash.
func (d *Directory) find(text string, now time.Time) (Principal, bool) {
	if class, err := keys.Check(text); err != nil || class == keys.Admin {
		return Principal{}, false
	}
	p, ok := d.lookUp(text)
	expired := !p.Expires.IsZero() && !now.Before(p.Expires)
	return p, ok && !p.Disabled && !expired
}

// lookUp tries the hashes a key may be stored under: keys made before the
// first pepper have none.
func (d *Directory) lookUp(text string) (Principal, bool) {
	for _, pepper := range d.Peppers {
		if p, ok := d.ByHash[keys.Hash(pepper, text)]; ok {
			return p, true
		}
	}
	p, ok := d.ByHash[keys.Hash(keys.Pepper{}, text)]
	return p, ok
}

// failures limits failed authentications per address, in memory, so that it
// works with Redis down. It forgets addresses that have been quiet. An IPv6
// host has a whole /64 to call from, so that counts as one address.
type failures struct {
	mu  sync.Mutex
	ips map[netip.Addr]*failure
}

type failure struct {
	limiter *rate.Limiter
	last    time.Time
}

const (
	failuresPerMinute = 60
	failureBurst      = 20
	maxFailureEntries = 100_000
	failureMemory     = 5 * time.Minute
)

// blocked reports whether an address has used up its failed attempts.
func (f *failures) blocked(ip netip.Addr, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.ips[network(ip)]
	return e != nil && e.limiter.TokensAt(now) < 1
}

func network(ip netip.Addr) netip.Addr {
	if !ip.Is6() {
		return ip
	}
	p, _ := ip.WithZone("").Prefix(64) // 64 fits every IPv6 address
	return p.Addr()
}

// failed counts a failed attempt.
func (f *failures) failed(ip netip.Addr, now time.Time) {
	ip = network(ip)
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.ips[ip]
	if e == nil {
		if len(f.ips) >= maxFailureEntries {
			f.forgetLocked(now)
		}
		e = &failure{limiter: rate.NewLimiter(rate.Every(time.Minute/failuresPerMinute), failureBurst)}
		f.ips[ip] = e
	}
	e.last = now
	e.limiter.AllowN(now, 1)
}

// forgetLocked drops quiet addresses, or all when none is quiet. f.mu is held.
func (f *failures) forgetLocked(now time.Time) {
	for ip, e := range f.ips {
		if now.Sub(e.last) > failureMemory {
			delete(f.ips, ip)
		}
	}
	if len(f.ips) >= maxFailureEntries {
		clear(f.ips)
	}
}

// authenticate finds who is calling. Every refusal reads the same. An address
// with too many wrong keys gets 429 for further ones; a right key behind the
// same address is never locked out.
func (s *Server) authenticate(r *http.Request, ip netip.Addr) (guard.Caller, error) {
	now := time.Now()
	text, sent := bearer(r.Header)
	if sent {
		if p, ok := s.directory.Load().find(text, now); ok {
			return guard.Caller{Org: p.Org, User: p.User, Key: p.Key, Models: p.Models, IP: ip.String()}, nil
		}
		s.metrics.authFailures.Inc()
	}
	if s.failures.blocked(ip, now) {
		return guard.Caller{}, wire.RateLimited("Too many requests with a wrong API key from this address", time.Minute/failuresPerMinute)
	}
	s.failures.failed(ip, now)
	if !sent {
		return guard.Caller{}, wire.InvalidKey("Send one API key, as `Authorization: Bearer lg_live_...`")
	}
	return guard.Caller{}, wire.InvalidKey("Incorrect API key provided. Keys are made with `llmguard keys new`")
}

// bearer returns the key of the one Authorization header, or of Azure's
// api-key header. Two credentials are refused: which one counts would be a
// guess.
func bearer(h http.Header) (string, bool) {
	auth, azure := h.Values("Authorization"), h.Values("Api-Key")
	if len(auth)+len(azure) != 1 {
		return "", false
	}
	if len(azure) == 1 {
		return azure[0], true
	}
	scheme, text, ok := strings.Cut(auth[0], " ")
	return strings.TrimSpace(text), ok && strings.EqualFold(scheme, "bearer")
}

// clientIP is the peer's address, or the nearest untrusted one of
// X-Forwarded-For when the peer is a trusted proxy.
func (s *Server) clientIP(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	ip := peer.Addr().Unmap()
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && s.trusts(ip); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		ip = hop.Unmap()
	}
	return ip
}

func (s *Server) trusts(ip netip.Addr) bool {
	for _, prefix := range s.opts.TrustedProxies {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}
