// Package auth finds the owner of a caller's API key, and limits failed authentications. It
// works in memory, so it is available while the store is not.
package auth

import (
	"net/netip"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
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
	Labels map[string]string
	// Run is the run that a key of class Run belongs to.
	Run      budget.RunPath
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

	index sync.Once
	byID  map[keyName]string // hashes
}

type keyName struct{ org, key string }

// Key returns the principal of a key by its id, if the key is valid.
func (d *Directory) Key(org, key string, now time.Time) (Principal, bool) {
	d.index.Do(func() {
		d.byID = make(map[keyName]string, len(d.ByHash))
		for hash, p := range d.ByHash {
			d.byID[keyName{p.Org.ID, p.Key}] = hash
		}
	})
	p, known := d.ByHash[d.byID[keyName{org, key}]]
	return p, known && p.valid(now)
}

// Pepper returns the pepper of new keys.
func (d *Directory) Pepper() keys.Pepper {
	if len(d.Peppers) == 0 {
		return keys.Pepper{}
	}
	return d.Peppers[0]
}

// Hashes returns the hashes that a key may be stored under, that of new keys first.
func (d *Directory) Hashes(text string) []string {
	out := make([]string, 0, len(d.Peppers)+1)
	for _, pepper := range d.Peppers {
		out = append(out, keys.Hash(pepper, text))
	}
	return append(out, keys.Hash(keys.Pepper{}, text))
}

func (p *Principal) valid(now time.Time) bool {
	return !p.Disabled && (p.Expires.IsZero() || now.Before(p.Expires))
}

// Find returns the principal of a key. Looking up a keyed hash reveals nothing through its
// timing, because guesses cannot be steered towards a stored hash. If good is false, known
// distinguishes a key that is no longer valid from one that may be newer than the directory.
func (d *Directory) Find(text string, now time.Time) (p Principal, good, known bool) {
	p, known = d.lookUp(text)
	return p, known && p.valid(now), known
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
