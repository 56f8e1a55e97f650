package tokenizer

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 16
	cacheWays  = 4   // slots a text may be in; with one, some of a few thousand texts would collide
	cacheMin   = 200 // shorter texts are counted as fast as they are looked up
)

// Cache caches the counts of texts, so that the messages of a long chat are counted once, not in
// every turn. It holds 65,536 counts in 2 MB and no text: a text is identified by 128 bits of keyed
// hash, with random keys per Cache, so that clients cannot construct collisions.
//
// It is safe for concurrent use and takes no locks. A nil Cache only counts.
type Cache struct {
	seeds [2]maphash.Seed
	slots []cacheSlot
}

// cacheSlot holds one count. The keys are stored mixed with the values, so that a slot read during
// a write does not match any key.
type cacheSlot struct {
	keys   [2]atomic.Uint64
	tokens atomic.Uint64 // tokens<<32 | non-ASCII bytes
	digits atomic.Uint64 // digits<<32 | digit groups
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		slots: make([]cacheSlot, cacheSlots),
	}
}

// CountClasses returns CountClasses(enc, text), cached.
func (c *Cache) CountClasses(enc Encoding, text []byte) Classes {
	if c == nil || len(text) < cacheMin {
		return CountClasses(enc, text)
	}
	return c.remember(uint64(enc), text, func() Classes { return CountClasses(enc, text) })
}

// ToolsTokens returns ToolsTokens(enc, toolsJSON), cached, because the tools of an application
// rarely change between its calls.
func (c *Cache) ToolsTokens(enc Encoding, toolsJSON []byte) int {
	if c == nil || len(toolsJSON) < cacheMin {
		return ToolsTokens(enc, toolsJSON)
	}
	return c.remember(uint64(enc)|1<<8, toolsJSON, func() Classes {
		return Classes{Tokens: ToolsTokens(enc, toolsJSON)}
	}).Tokens
}

// remember returns the value cached for text in a key space (encoding and purpose), or else the
// result of count, which it stores.
func (c *Cache) remember(space uint64, text []byte, count func() Classes) Classes {
	a := maphash.Bytes(c.seeds[0], text) ^ space*mixer
	b := maphash.Bytes(c.seeds[1], text)
	set := c.slots[a%(cacheSlots/cacheWays)*cacheWays:][:cacheWays]
	for i := range set {
		if k, ok := set[i].load(a, b); ok {
			k.Bytes = len(text)
			return k
		}
	}
	k := count()
	if len(text) < 1<<30 { // the values fit
		victim(set).store(a, b, k)
	}
	return k
}

// victim returns the slot of a set to overwrite: an empty one, or a random one. Random choice keeps
// two texts from evicting each other forever.
func victim(set []cacheSlot) *cacheSlot {
	for i := range set {
		if set[i].keys[0].Load() == 0 && set[i].keys[1].Load() == 0 {
			return &set[i]
		}
	}
	return &set[rand.IntN(len(set))]
}

// load returns the count for the keys a and b, if the slot holds it.
func (s *cacheSlot) load(a, b uint64) (Classes, bool) {
	tokens, digits := s.tokens.Load(), s.digits.Load()
	if s.keys[0].Load()^tokens != a || s.keys[1].Load()^digits*mixer^tokens != b {
		return Classes{}, false
	}
	return Classes{
		Tokens:      int(tokens >> 32),
		NonASCII:    int(uint32(tokens)),
		Digits:      int(digits >> 32),
		DigitGroups: int(uint32(digits)),
	}, true
}

func (s *cacheSlot) store(a, b uint64, k Classes) {
	tokens := uint64(k.Tokens)<<32 | uint64(k.NonASCII)
	digits := uint64(k.Digits)<<32 | uint64(k.DigitGroups)
	s.tokens.Store(tokens)
	s.digits.Store(digits)
	s.keys[0].Store(a ^ tokens)
	s.keys[1].Store(b ^ digits*mixer ^ tokens)
}
