package webhook

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/providers"
)

// Org holds the webhook targets of an org.
type Org struct {
	// Endpoints receive the org's events.
	Endpoints []Endpoint
	// Hosts may be named as targets by single requests of the org: a host name, or *. and a
	// domain for all names below it, with :port for a port other than the scheme's. Secrets
	// sign these deliveries.
	Hosts   []string
	Secrets []Secret
}

// Endpoint is one target of an org.
type Endpoint struct {
	URL     string
	Secrets []Secret // at least one
	// Events are patterns of Types, with * for any characters; none means all.
	Events []string
	// Slack posts {"text": ...} in the format of chat services, for events that have a text. It
	// needs no secret, because the URL is one.
	Slack bool
	// PerHour, if set, is the most events of one org that are delivered in an hour, at most maxCounted; one
	// more event, of type Omitted, counts the others when the hour ends.
	PerHour int
}

// wants reports whether the endpoint receives events of a type.
func (e *Endpoint) wants(typ string) bool {
	matches := func(pattern string) bool { return providers.Match(pattern, typ) }
	return len(e.Events) == 0 || slices.ContainsFunc(e.Events, matches)
}

// target is the destination of one delivery.
type target struct {
	url     *url.URL
	secrets []Secret
	key     string // identifies the URL in queued deliveries
	print   string // of all settings; changes with the configuration
	slack   bool
	perHour int // see Endpoint
}

func newTarget(u *url.URL, secrets []Secret, rest ...string) *target {
	parts := append([]string{u.String()}, rest...)
	for _, s := range secrets {
		parts = append(parts, string(s.key))
	}
	return &target{url: u, secrets: secrets, key: digest(u.String()), print: digest(parts...)}
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// URLError is the error for an invalid target in a request.
type URLError struct{ why string }

func (e *URLError) Error() string { return e.why }

func refuse(format string, args ...any) error { return &URLError{fmt.Sprintf(format, args...)} }

const urlMost = 2048 // bytes

// parseURL parses a target's URL and checks what can be checked without resolving its host.
func (o *Options) parseURL(text string) (*url.URL, error) {
	if len(text) > urlMost {
		return nil, refuse("the URL has %d bytes, more than %d", len(text), urlMost)
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" {
		return nil, refuse("it is not a URL such as https://host/path")
	}
	host := strings.ToLower(u.Hostname())
	plain := slices.Contains(o.AllowHTTP, host)
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !plain):
		return nil, refuse("its scheme must be https")
	case u.User != nil:
		return nil, refuse("it must not contain a user name or password")
	case u.Fragment != "":
		return nil, refuse("it must not have a fragment (#)")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, refuse("its host must be plain ASCII; write international names as xn--")
	}
	if ip, err := netip.ParseAddr(host); err == nil && !allowed(ip, o.AllowNetworks) {
		return nil, refuse("its host %s is not a public address", ip)
	}
	return u, nil
}

// CheckURL returns a *URLError unless requests of the org may name this target. The address of
// its host is checked at each attempt.
func (s *Sender) CheckURL(org, text string) error {
	_, err := s.requested(org, text)
	return err
}

// requested returns the target that a request named.
func (s *Sender) requested(org, text string) (*target, error) {
	o := s.org(org)
	if o == nil || len(o.Hosts) == 0 {
		return nil, refuse("your organization does not allow webhook targets in requests")
	}
	u, err := s.opts.parseURL(text)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(o.Hosts, func(entry string) bool { return covers(entry, u) }) {
		return nil, refuse("your organization does not allow %s as a webhook target", u.Host)
	}
	return newTarget(u, o.Secrets, o.Hosts...), nil
}

// covers reports whether an entry of Org.Hosts allows a URL.
func covers(entry string, u *url.URL) bool {
	entry = strings.ToLower(entry)
	usual := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = strings.Trim(entry, "[]"), usual
	}
	has := cmp.Or(u.Port(), usual)
	name := strings.ToLower(u.Hostname())
	if domain, ok := strings.CutPrefix(host, "*"); ok {
		return has == port && strings.HasPrefix(domain, ".") && strings.HasSuffix(name, domain) && len(name) > len(domain)
	}
	return has == port && name == host
}
