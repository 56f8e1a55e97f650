package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots = 1 << 16
	cacheMin   = 200 // shorter texts are counted as fast as looked up
)

// Cache remembers the counts of texts, so that the messages of a long chat are
// counted once and not in every turn. It holds 65,536 counts in 2 MB and no
// text: a text is known by 128 bits of keyed hash, with keys drawn per Cache, so
// that nobody outside can make two texts collide.
//
// It is safe for concurrent use and takes no locks. A nil Cache only counts.
type Cache struct {
	seeds [2]maphash.Seed
	slots []cacheSlot
}

// cacheSlot holds one count. The keys are stored mixed with the values: a slot
// read while it is being written does not match any key.
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

// Count returns Count(enc, text), from memory if it is there. Texts shorter
// than 200 bytes are always counted.
func (c *Cache) Count(enc Encoding, text []byte) int {
	return c.CountClasses(enc, text).Tokens
}

// CountClasses returns CountClasses(enc, text), from memory if it is there.
func (c *Cache) CountClasses(enc Encoding, text []byte) Classes {
	if c == nil || len(text) < cacheMin {
		return CountClasses(enc, text)
	}
	return c.remember(uint64(enc), text, func() Classes { return CountClasses(enc, text) })
}

// ToolsTokens returns ToolsTokens(enc, toolsJSON), from memory if it is there:
// the tools of an application rarely change between its calls.
func (c *Cache) ToolsTokens(enc Encoding, toolsJSON []byte) int {
	if c == nil || len(toolsJSON) < cacheMin {
		return ToolsTokens(enc, toolsJSON)
	}
	return c.remember(uint64(enc)|1<<8, toolsJSON, func() Classes {
		return Classes{Tokens: ToolsTokens(enc, toolsJSON)}
	}).Tokens
}

// remember returns the value stored for text in a space of keys (encoding and
// purpose), or that of count, which it stores.
func (c *Cache) remember(space uint64, text []byte, count func() Classes) Classes {
	a := maphash.Bytes(c.seeds[0], text) ^ space*mixer
	b := maphash.Bytes(c.seeds[1], text)
	slot := &c.slots[a%cacheSlots]
	tokens, digits := slot.tokens.Load(), slot.digits.Load()
	if slot.keys[0].Load()^tokens == a && slot.keys[1].Load()^digits*mixer^tokens == b {
		return Classes{
			Tokens:      int(tokens >> 32),
			NonASCII:    int(uint32(tokens)),
			Digits:      int(digits >> 32),
			DigitGroups: int(uint32(digits)),
			Bytes:       len(text),
		}
	}
	k := count()
	if len(text) < 1<<30 { // the values fit
		tokens = uint64(k.Tokens)<<32 | uint64(k.NonASCII)
		digits = uint64(k.Digits)<<32 | uint64(k.DigitGroups)
		slot.tokens.Store(tokens)
		slot.digits.Store(digits)
		slot.keys[0].Store(a ^ tokens)
		slot.keys[1].Store(b ^ digits*mixer ^ tokens)
	}
	return k
}
