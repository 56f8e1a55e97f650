// Package auth finds the owner of a caller's API key, and limits failed authentications. It
// works in memory, so it is available while the store is not.
package auth

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth/keys"
)

// Principal is the owner of an API key.
type Principal struct {
	Org       *guard.Org
	User, Key string
	Models    []string // empty: all of the org's
	// Scopes are what the key may be used for, see `scopes` in docs/config/orgs.md; empty means
	// everything.
	Scopes []string
	// Networks are where it may be used from; empty means anywhere.
	Networks []netip.Prefix
	// Labels are the values of labels that it, its user or its org has.
	Labels map[string]string
	// Run is the run that a key of class Run belongs to.
	Run      ledger.RunPath
	Expires  time.Time
	Disabled bool
	// Born and UserBorn distinguish the key and its user from earlier ones with their ids; empty: none is known.
	Born, UserBorn string
	// Lineage is shared by the secrets of a key whose child keys live on: see LineageOf.
	Lineage string
	// Replaced means that the key has a newer secret.
	Replaced bool
}

// LineageOf returns the lineage of a secret by its hash. A rotation keeps it only if child keys are to be kept.
func LineageOf(hash string) string { return hash[max(len(hash)-lineageLen, 0):] }

const lineageLen = 16

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

	index   sync.Once
	parents map[parentName]string // hashes
}

type parentName struct{ org, key, lineage string }

// Parent returns the principal of the key that created a child key, if a secret of that lineage is valid. It
// is the newest one. An empty lineage stands for all of them.
func (d *Directory) Parent(org, key, lineage string, now time.Time) (Principal, bool) {
	d.index.Do(func() {
		d.parents = make(map[parentName]string, 2*len(d.ByHash))
		for hash, p := range d.ByHash {
			for _, lineage := range []string{p.Lineage, ""} {
				name := parentName{p.Org.ID, p.Key, lineage}
				if _, known := d.parents[name]; !known || !p.Replaced {
					d.parents[name] = hash
				}
			}
		}
	})
	p, known := d.ByHash[d.parents[parentName{org, key, lineage}]]
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

// Vouches reports whether a key of a run was created under one of the peppers.
func (d *Directory) Vouches(text string) bool {
	return slices.ContainsFunc(append(d.Peppers[:len(d.Peppers):len(d.Peppers)], keys.Pepper{}), func(p keys.Pepper) bool {
		return keys.Vouched(p, text)
	})
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
