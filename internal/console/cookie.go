package console

import (
	"net/http"
	"net/netip"
	"strings"
)

const cookieName = "llmguard_console"

// hostPrefix makes browsers accept the cookie only from this host over an encrypted connection.
// Neither a sibling host nor an attacker on an unencrypted connection can set one.
const hostPrefix = "__Host-"

// cookie returns the session's cookie, without value or age.
func (c *Console) cookie(r *http.Request) *http.Cookie {
	one := &http.Cookie{Name: cookieName, Path: Path, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if c.encrypted(r) {
		one.Name = hostPrefix + cookieName
		one.Path = "/"
		one.Secure = true // the prefix requires both
	}
	return one
}

// sent returns the session cookie's value, or "".
func (c *Console) sent(r *http.Request) string {
	cookie, err := r.Cookie(c.cookie(r).Name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// encrypted reports whether the browser's connection is encrypted: either directly, or to a
// trusted proxy that says so.
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
