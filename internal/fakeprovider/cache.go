package fakeprovider

import (
	"hash/maphash"
	"slices"
	"sync"
)

// prefixCache remembers prompts block by block, like a provider's prompt
// cache: a prompt that begins as an earlier one did gets that part for less.
// The zero value is ready.
type prefixCache struct {
	mu       sync.Mutex
	seed     maphash.Seed
	now, old map[uint64]struct{} // two generations bound it
}

const (
	cacheBlock   = 256 // bytes
	cacheMost    = 500_000
	cacheMinimum = 1024 // tokens
	cacheStep    = 128  // tokens
)

// hit returns the cached tokens of a prompt of so many tokens in so many
// bytes, and remembers the prompt.
func (c *prefixCache) hit(model string, prompt []byte, tokens int64) int64 {
	if tokens < cacheMinimum || len(prompt) < cacheBlock {
		return 0
	}
	matched := c.match(model, prompt)
	cached := (tokens - 1) * int64(matched) / int64(len(prompt)) / cacheStep * cacheStep
	if cached < cacheMinimum {
		return 0
	}
	return cached
}

// match returns how many leading bytes were seen before, and stores them all.
func (c *prefixCache) match(model string, prompt []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		c.seed, c.now = maphash.MakeSeed(), make(map[uint64]struct{})
	}
	if len(c.now) > cacheMost {
		c.old, c.now = c.now, make(map[uint64]struct{})
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteString(model)
	matched := 0 // the hash runs on, so a block is known only after its prefix
	for block := range slices.Chunk(prompt, cacheBlock) {
		h.Write(block)
		sum := h.Sum64()
		_, young := c.now[sum]
		_, aged := c.old[sum]
		if young || aged {
			matched += len(block)
		}
		c.now[sum] = struct{}{}
	}
	return matched
}

// prompt is what the cache compares: tools first, then messages, as OpenAI
// orders them.
func (q *Request) prompt() []byte {
	return slices.Concat(q.fields["tools"], q.fields["functions"], q.fields["messages"], q.fields["instructions"],
		q.fields["input"])
}
