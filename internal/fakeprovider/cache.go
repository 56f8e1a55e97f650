package fakeprovider

import (
	"hash/maphash"
	"slices"
	"sync"
)

// prefixCache simulates a provider's prompt cache: it remembers prompts block by block, and a
// prompt with the beginning of an earlier one gets that part at a lower price. The zero value
// is ready to use.
type prefixCache struct {
	mu       sync.Mutex
	seed     maphash.Seed
	now, old map[uint64]struct{} // two generations limit its size
}

const (
	cacheBlock   = 256 // bytes
	cacheMost    = 500_000
	cacheMinimum = 1024 // tokens
	cacheStep    = 128  // tokens
)

// hit returns the cached tokens of a prompt with this many tokens, and remembers the prompt.
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

// match returns how many leading bytes were seen before, and remembers all of them.
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
	matched := 0 // the hash is cumulative, so a block matches only after its prefix
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

// prompt returns what the cache compares: tools first, then messages, in OpenAI's order.
func (q *Request) prompt() []byte {
	return slices.Concat(q.fields["tools"], q.fields["functions"], q.fields["messages"], q.fields["instructions"],
		q.fields["input"])
}
