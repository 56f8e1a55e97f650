package console

import (
	"net/http"
	"net/netip"
	"strings"
)

const cookieName = "llmguard_console"

// hostPrefix has browsers take a cookie only from this host itself, encrypted: neither a
// sibling host nor somebody on an unencrypted connection can plant one.
const hostPrefix = "__Host-"

// cookie returns the session's cookie, without value or age.
func (c *Console) cookie(r *http.Request) *http.Cookie {
	one := &http.Cookie{Name: cookieName, Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if c.encrypted(r) {
		one.Name = hostPrefix + cookieName
		one.Path = "/"
		one.Secure = true // the prefix demands both
	}
	return one
}

// sent returns what the browser sent for the session, "" for nothing.
func (c *Console) sent(r *http.Request) string {
	cookie, err := r.Cookie(c.cookie(r).Name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// encrypted reports whether the browser's connection is: ours, or that to a trusted proxy
// in front, which says so.
func (c *Console) encrypted(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return false
	}
	for _, p := range c.o.TrustedProxies {
		if p.Contains(peer.Addr().Unmap()) {
			return true
		}
	}
	return false
}
