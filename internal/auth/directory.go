// Package auth finds the owner of a caller's API key, and limits failed authentications. It
// works in memory, so it is available while the store is not.
package auth

import (
	"net/netip"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

// Principal is the owner of an API key.
type Principal struct {
	Org       *guard.Org
	User, Key string
	Models    []string // empty: all of the org's
	// Scopes are what the key may be used for, see `scopes` in docs/config.md; empty means
	// everything.
	Scopes []string
	// Networks are where it may be used from; empty means anywhere.
	Networks []netip.Prefix
	// Labels are the values of labels that it, its user or its org has.
	Labels   map[string]string
	Expires  time.Time
	Disabled bool
}

// Admits reports whether the key may be used from an address.
func (p *Principal) Admits(ip netip.Addr) bool {
	for _, n := range p.Networks {
		if n.Contains(ip) {
			return true
		}
	}
	return len(p.Networks) == 0
}

// Directory finds the owner of a key. It is immutable.
type Directory struct {
	Peppers []keys.Pepper        // tried in order, and then no pepper
	ByHash  map[string]Principal // by keys.Hash
}

// Find returns the principal of a key. Looking up a keyed hash reveals nothing through its
// timing, because guesses cannot be steered towards a stored hash. If good is false, known
// distinguishes a key that is no longer valid from one that may be newer than the directory.
func (d *Directory) Find(text string, now time.Time) (p Principal, good, known bool) {
	p, known = d.lookUp(text)
	expired := !p.Expires.IsZero() && !now.Before(p.Expires)
	return p, known && !p.Disabled && !expired, known
}

// lookUp tries the hashes that a key may be stored under. Keys created before the first pepper
// have an unkeyed hash.
func (d *Directory) lookUp(text string) (Principal, bool) {
	var buf [128]byte
	for _, pepper := range d.Peppers {
		if p, ok := d.ByHash[string(keys.AppendHash(buf[:0], pepper, text))]; ok {
			return p, true
		}
	}
	p, ok := d.ByHash[string(keys.AppendHash(buf[:0], keys.Pepper{}, text))]
	return p, ok
}
