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

// authenticator finds out which administrator calls.
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

// refusals records wrong keys in the audit: so few a minute that whoever tries keys
// cannot push what administrators did out of it. It is safe for concurrent use.
type refusals struct {
	rate    *auth.FailureLimiter
	skipped atomic.Int64 // since the last that was recorded
}

// recorded is how many wrong keys the audit takes.
var recorded = auth.Rate{PerMinute: 1, Burst: 30}

// refusalTime is for the record of one.
const refusalTime = time.Second

// refusal is what the audit says of a wrong key.
type refusal struct {
	Path       string `json:"path"`
	Unrecorded int64  `json:"unrecorded,omitempty"` // others since the last entry
}

// refused records that a key was wrong. Known is the administrator whose key it is, who is
// disabled or has expired; "" for no administrator's.
func (h *authenticator) refused(c *call, known string) {
	everybody := netip.Addr{}
	if h.denials.rate.Blocked(everybody, c.start) {
		h.denials.skipped.Add(1)
		return
	}
	h.denials.rate.Failed(everybody, c.start)
	e := c.entry("admin.refused", "", known)
	said := refusal{Path: cut(c.r.URL.Path), Unrecorded: h.denials.skipped.Swap(0)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), refusalTime)
	defer cancel()
	if err := h.audit.note(ctx, e, said); err != nil {
		c.log.Warn("audit entry not written", "action", e.Action, "ip", e.IP, "err", err)
	}
}

// actor is who does something.
type actor struct {
	id       string
	readOnly bool
	local    bool // not over the network
}

type actorKey struct{}

// authenticate finds the administrator. Every refusal reads the same. After too many
// wrong keys, of an address or in all, further ones get 429 and the store is not asked
// about them; a right key is never locked out.
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
			if !blocked && h.opts.Tenants.Missed(c.r.Context()) { // it may be new
				if a, ok := h.lookUp(c, text); ok {
					return a, nil
				}
			}
		}
	}
	if blocked {
		return actor{}, wire.RateLimited("Too many requests with a wrong key", auth.FailureRetryAfter)
	}
	h.failures.Failed(c.ip, c.start)
	if sent {
		h.refused(c, known)
	}
	e := wire.InvalidKey("Send an administrator's key, as `Authorization: Bearer lg_admin_...`. `llmguard admins " +
		"create` makes one")
	e.Header = http.Header{"Www-Authenticate": {"Bearer"}}
	return actor{}, e
}

// lookUp compares with every administrator's hash, so that its time tells nothing. An
// administrator whose key may not be used is returned as well, with false.
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

// administrators are those of the file with those in Redis over them.
func (h *authenticator) administrators(file FileSettings) map[string]tenants.Admin {
	all := map[string]tenants.Admin{}
	maps.Copy(all, file.Admins)
	for id, a := range h.opts.Tenants.Snapshot().Admins {
		all[id] = *a
	}
	return all
}

// bearer returns the key of the one Authorization header.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(text), ok && strings.EqualFold(scheme, "bearer")
}
