package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/wire"
)

// authenticate finds who is calling. Every refusal reads the same. After too many
// wrong keys, of an address or in all, further ones get 429; a right key is never
// locked out.
func (s *Server) authenticate(r *http.Request, ip netip.Addr) (auth.Principal, error) {
	now := time.Now()
	text, sent := bearer(r.Header)
	if sent {
		p, ok := s.find(r.Context(), text, ip, now)
		if ok && p.Admits(ip) {
			if s.opts.Used != nil {
				s.opts.Used(p.Org.ID, p.Key, now)
			}
			return p, nil
		}
		s.metrics.authFailures.Inc()
	}
	if s.failures.Blocked(ip, now) {
		return auth.Principal{}, wire.RateLimited("Too many requests with a wrong API key", auth.FailureRetryAfter)
	}
	s.failures.Failed(ip, now)
	if !sent {
		return auth.Principal{}, wire.InvalidKey("Send one API key, as `Authorization: Bearer lg_live_...`")
	}
	return auth.Principal{}, wire.InvalidKey("Incorrect API key provided. Keys are made with `llmguard keys new`")
}

// find returns the owner of a key. The checksum turns typos away first. One that
// is well formed and not known may be newer than the directory: then it is looked
// for, unless there were too many wrong ones.
func (s *Server) find(ctx context.Context, text string, ip netip.Addr, now time.Time) (auth.Principal, bool) {
	if class, err := keys.Check(text); err != nil || class == keys.Admin {
		return auth.Principal{}, false
	}
	p, good, known := s.directory.Load().Find(text, now)
	if known || s.opts.Missed == nil || s.failures.Blocked(ip, now) || !s.opts.Missed(ctx) {
		return p, good
	}
	p, good, _ = s.directory.Load().Find(text, now)
	return p, good
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
	if !s.trusts(ip) {
		return ip
	}
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
