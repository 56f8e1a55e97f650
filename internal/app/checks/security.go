package checks

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/listen"
)

// clearCredentials looks for keys and passwords that cross the internet unencrypted.
func clearCredentials(_ context.Context, e *examination, r *diagnose.Report) {
	const fix = "Use https, or a host inside your own network."
	for i, p := range e.cfg.Providers {
		if (p.APIKey != "" || len(p.Headers) > 0) && clearAndPublic(p.BaseURL, "http") {
			r.At(fmt.Sprintf("providers[%d].base_url", i), diagnose.Warning,
				"the key of "+p.ID+" is sent unencrypted to a public host", fix)
		}
	}
	if len(e.cfg.Tracing.Headers) > 0 && clearAndPublic(e.cfg.Tracing.Endpoint, "http") {
		r.At("tracing.endpoint", diagnose.Warning, "tracing.headers are sent unencrypted to a public host", fix)
	}
	if u := e.cfg.Redis.URL.Reveal(); strings.Contains(u, "@") && clearAndPublic(u, "redis") {
		r.At("redis.url", diagnose.Warning, "the password is sent unencrypted to a public host",
			"Use rediss://, or a host inside your own network.")
	}
	if c := e.cfg.Redis; c.Password != "" && !c.TLS.Enabled {
		for i, address := range c.Addresses {
			if !strings.HasPrefix(address, "/") && public(address) {
				r.At(fmt.Sprintf("redis.addresses[%d]", i), diagnose.Warning,
					"redis.password is sent unencrypted to a public host",
					"Set redis.tls.enabled, or use a host inside your own network.")
			}
		}
	}
}

// clearAndPublic reports whether a URL has an unencrypted scheme and a public host.
func clearAndPublic(text, scheme string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == scheme && u.Host != "" && public(u.Host)
}

// public reports whether a host, with or without a port, may be outside the operator's own
// network.
func public(host string) bool {
	ip, err := netip.ParseAddr(listen.HostName(host))
	if err != nil {
		return !listen.PrivateHost(host)
	}
	ip = ip.Unmap()
	return !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
}

// literals looks for secrets in a file that every user of the machine can read.
func literals(_ context.Context, e *examination, r *diagnose.Report) {
	const others = 0o004
	info, err := os.Stat(e.cfg.Name)
	if err != nil || info.Mode().Perm()&others == 0 || len(e.cfg.Literals) == 0 {
		return
	}
	r.At(e.cfg.Literals[0], diagnose.Warning,
		fmt.Sprintf("the file has mode %04o, so every user of this machine can read %s in it", info.Mode().Perm(),
			figures.Plural(int64(len(e.cfg.Literals)), "secret")),
		"Write ${NAME} or file:/run/secrets/NAME instead, or chmod 0640 the file.")
}

// adminListener checks whether the operators' listener is open to every network.
func adminListener(_ context.Context, e *examination, r *diagnose.Report) {
	a := e.cfg.Admin
	ip, err := netip.ParseAddr(listen.HostName(a.Listen))
	everywhere := strings.HasPrefix(a.Listen, ":") || err == nil && ip.IsUnspecified()
	if everywhere && (!a.TLS.Enabled() || a.MetricsToken == "") {
		r.At("admin.listen", diagnose.Warning, a.Listen+
			" listens on every network interface: anyone who reaches it can read the metrics and try keys",
			"Listen on 127.0.0.1 or an internal address, or block the port (NetworkPolicy, firewall) and set admin.tls and "+
				"admin.metrics_token.")
	}
}

// Trusted prefixes shorter than these cover more than one organization, unless they are
// private.
const fewBits4, fewBits6 = 8, 16

// trustedProxies looks for trusted proxies that any client can be.
func trustedProxies(_ context.Context, e *examination, r *diagnose.Report) {
	for i, p := range e.cfg.TrustedProxies {
		if bits := p.Bits(); p.Addr().Is4() && bits < fewBits4 || p.Addr().Is6() && bits < fewBits6 && !p.Addr().IsPrivate() {
			r.At(fmt.Sprintf("trusted_proxies[%d]", i), diagnose.Warning,
				p.String()+" lets callers forge the address that key networks and the limit on wrong keys rely on",
				"List only the addresses of your load balancers.")
		}
	}
}

// guessableSecrets looks for secrets that can be guessed.
func guessableSecrets(_ context.Context, e *examination, r *diagnose.Report) {
	const fix = "Generate a new one with `openssl rand -hex 32` and put it first in the list; the old one still verifies."
	for i, p := range e.cfg.Auth.Peppers {
		if guessable(p.Secret.Reveal()) {
			r.At(fmt.Sprintf("auth.peppers[%d].secret", i), diagnose.Warning, "can be guessed", fix)
		}
	}
	for i, k := range e.cfg.Queue.SealKeys {
		if guessable(k.Secret.Reveal()) {
			r.At(fmt.Sprintf("queue.seal_keys[%d].secret", i), diagnose.Warning, "can be guessed", fix)
		}
	}
	if token := e.cfg.Admin.MetricsToken.Reveal(); token != "" && guessable(token) {
		r.At("admin.metrics_token", diagnose.Warning, "can be guessed", "Generate one with `openssl rand -hex 32`.")
	}
}

// placeholders occur in secrets that were never changed or were chosen badly.
var placeholders = []string{
	"secret", "pepper", "password", "change", "replace", "example", "llmguard", "qwerty",
	"12345678",
}

// guessable reports whether a secret is short, has few distinct characters, or contains a
// word that is commonly guessed.
func guessable(secret string) bool {
	const shortest, variety = 20, 10
	kinds := map[rune]bool{}
	for _, r := range secret {
		kinds[r] = true
	}
	if len(secret) < shortest || len(kinds) < variety {
		return true
	}
	lower := strings.ToLower(secret)
	for _, word := range placeholders {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}
