package admin

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// authenticator identifies the calling administrator.
type authenticator struct {
	opts     *Options
	audit    *recorder
	failures *auth.FailureLimiter
	denials  refusals
}

func newAuthenticator(o *Options, audit *recorder) *authenticator {
	h := &authenticator{opts: o, audit: audit, failures: o.Failures}
	h.denials.rate = auth.NewFailureLimiterWith(recorded, recorded)
	return h
}

// refusals records wrong keys in the audit. It limits the rate, so that an attacker cannot push
// administrators' changes out of the audit. It is safe for concurrent use.
type refusals struct {
	rate    *auth.FailureLimiter
	skipped atomic.Int64 // since the last recorded one
}

// recorded is the rate of wrong keys that the audit records.
var recorded = auth.Rate{PerMinute: 1, Burst: 30}

// refusalTime limits the time to record one.
const refusalTime = time.Second

// refusal is the audit entry of a wrong key.
type refusal struct {
	Path       string `json:"path"`
	Unrecorded int64  `json:"unrecorded,omitempty"` // others since the last entry
}

// refused records a wrong key. known is the disabled or expired administrator that the key
// belongs to, or "".
func (h *authenticator) refused(c *call, known string) {
	everybody := netip.Addr{}
	if h.denials.rate.Blocked(everybody, c.start) {
		h.denials.skipped.Add(1)
		return
	}
	h.denials.rate.Failed(everybody, c.start)
	e := c.newEntry("admin.refused", "", known)
	said := refusal{Path: cut(c.r.URL.Path), Unrecorded: h.denials.skipped.Swap(0)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), refusalTime)
	defer cancel()
	if err := h.audit.note(ctx, e, said); err != nil {
		c.log.Warn("audit entry not written", "action", e.Action, "ip", e.IP, "err", err)
	}
}

type actor struct {
	id       string
	readOnly bool
	local    bool // not over the network
}

type actorKey struct{}

// authenticate identifies the administrator. Every refusal reads the same. After too many wrong
// keys, from one address or in total, further wrong keys get 429 without a lookup in the store.
// A right key is never locked out.
func (h *authenticator) authenticate(c *call) (actor, error) {
	if a, ok := c.r.Context().Value(actorKey{}).(actor); ok {
		return a, nil
	}
	blocked, known := h.failures.Blocked(c.ip, c.start), ""
	text, sent := bearer(c.r.Header)
	if sent {
		if class, err := keys.Check(text); err == nil && class == keys.Admin {
			a, ok := h.lookUp(c, text)
			if ok {
				return a, nil
			}
			known = a.id
			if !blocked && h.opts.Tenants.Missed(c.r.Context()) { // the key may be new
				if a, ok := h.lookUp(c, text); ok {
					return a, nil
				}
			}
		}
	}
	if blocked || !h.failures.Attempt(c.r.Context(), c.ip, c.start) {
		return actor{}, wire.RateLimited("Too many requests with an incorrect key", auth.FailureRetryAfter)
	}
	if sent {
		h.refused(c, known)
	}
	e := wire.InvalidKey("Send an administrator's key, as `Authorization: Bearer lg_admin_...`. Create one with `llmguard admins create`")
	e.Header = http.Header{"Www-Authenticate": {"Bearer"}}
	return actor{}, e
}

// Knows reports whether a key is a usable administrator's. It does not write to the audit.
func (s *Server) Knows(key string) bool {
	_, ok := s.login.lookUp(&call{start: time.Now()}, key)
	return ok
}

// lookUp compares the key with every administrator's hash, so that its timing reveals nothing.
// An administrator whose key is disabled or expired is returned with false.
func (h *authenticator) lookUp(c *call, text string) (actor, bool) {
	file := h.opts.File()
	hashes := []string{keys.Hash(keys.Pepper{}, text)}
	for _, p := range file.Peppers {
		hashes = append(hashes, keys.Hash(p, text))
	}
	var found actor
	ok := false
	for id, a := range h.administrators(file) {
		if keys.EqualAny(hashes, a.Hash) {
			usable := !a.Disabled && (a.Expires.IsZero() || c.start.Before(a.Expires))
			if !ok {
				found, ok = actor{id: id, readOnly: a.ReadOnly}, usable
			}
		}
	}
	return found, ok
}

// administrators returns those of the file with runtime records on top.
func (h *authenticator) administrators(file FileSettings) map[string]tenants.Admin {
	all := map[string]tenants.Admin{}
	maps.Copy(all, file.Admins)
	for id, a := range h.opts.Tenants.Snapshot().Admins {
		all[id] = *a
	}
	return all
}

// bearer returns the key, if there is exactly one Authorization header.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(text), ok && strings.EqualFold(scheme, "bearer")
}
