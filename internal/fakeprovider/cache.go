package fakeprovider

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

const (
	cacheBlock   = 256 // bytes
	cacheMost    = 500_000
	cacheMinimum = 1024 // tokens
	cacheStep    = 128  // tokens
)

// segment is a part of a prompt after which a breakpoint may be.
type segment struct {
	text   string // what the cache compares
	tokens int64
	life   time.Duration // of the prefix that ends here; 0 without a breakpoint
}

// cacheControl makes a breakpoint.
type cacheControl struct{ Type, TTL string }

// life returns how long a prefix is kept, or 0 without a breakpoint.
func (c *cacheControl) life(at string) (time.Duration, error) {
	switch {
	case c == nil:
		return 0, nil
	case c.Type == "ephemeral" && (c.TTL == "" || c.TTL == "5m"):
		return 5 * time.Minute, nil
	case c.Type == "ephemeral" && c.TTL == "1h":
		return time.Hour, nil
	}
	return 0, invalid("", "", "%s: Input should be of type 'ephemeral', with a ttl of '5m' or '1h'", at)
}

// breakpoints adds the automatic breakpoint, which the top level requests, and checks all.
func (q *Request) breakpoints() error {
	prompt := q.claude.prompt
	automatic, err := q.claude.Cache.life("cache_control")
	last := &prompt[len(prompt)-1]
	last.life = cmp.Or(last.life, automatic)
	count, shortest := 0, time.Hour
	for _, s := range prompt {
		if s.life > shortest {
			return invalid("", "", "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.")
		}
		if s.life > 0 {
			count, shortest = count+1, s.life
		}
	}
	if count > 4 {
		return invalid("", "", "A maximum of 4 blocks with cache_control may be provided. Found %d.", count)
	}
	return err
}

// prefixCache simulates a provider's prompt cache: prefixes that ended at a breakpoint, with the end
// of their life, which each use renews. The zero value is ready to use.
type prefixCache struct {
	mu       sync.Mutex
	prefixes map[[32]byte]cachedPrefix
}

type cachedPrefix struct {
	until time.Time
	life  time.Duration
}

// lookBack is how many segments before a breakpoint are compared with the cache.
const lookBack = 20

// use returns the tokens of a prompt by class: read from the cache, written to it for an hour or for
// another time, and all. If store is true, the prompt is remembered. Prompts are compared with those
// for the same model.
func (c *prefixCache) use(model string, prompt []segment, now time.Time, store bool) Usage {
	var u Usage
	sums, upTo := make([][32]byte, len(prompt)), make([]int64, len(prompt))
	hash := sha256.New()
	hash.Write([]byte(model))
	for i, s := range prompt {
		hash.Write([]byte(s.text))
		u.Prompt += s.tokens
		sums[i], upTo[i] = [32]byte(hash.Sum(nil)), u.Prompt
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	hit := c.longest(prompt, sums, now)
	if hit >= 0 {
		u.Cached = upTo[hit]
	}
	if hit >= 0 && store {
		c.put(sums[hit], now, 0)
	}
	for i, s := range prompt {
		if s.life == 0 || upTo[i] < cacheMinimum {
			continue
		}
		written := max(upTo[i]-u.Cached-u.CacheWrite-u.CacheWrite1h, 0)
		if s.life == time.Hour {
			u.CacheWrite1h += written
		} else {
			u.CacheWrite += written
		}
		if store {
			c.put(sums[i], now, s.life)
		}
	}
	return u
}

// longest returns the last segment of the longest prefix that the cache has, or -1. It requires
// c.mu.
func (c *prefixCache) longest(prompt []segment, sums [][32]byte, now time.Time) int {
	for i, s := range slices.Backward(prompt) {
		for j := i; s.life > 0 && j >= max(i-lookBack, 0); j-- {
			if c.prefixes[sums[j]].until.After(now) {
				return j
			}
		}
	}
	return -1
}

// put remembers a prefix, or renews it. It requires c.mu.
func (c *prefixCache) put(sum [32]byte, now time.Time, life time.Duration) {
	if c.prefixes == nil || len(c.prefixes) > cacheMost {
		c.prefixes = map[[32]byte]cachedPrefix{}
	}
	life = max(life, c.prefixes[sum].life)
	c.prefixes[sum] = cachedPrefix{now.Add(life), life}
}

// hit returns the cached tokens of a prompt with this many tokens, and remembers the prompt. OpenAI
// caches without breakpoints.
func (s *Server) hit(q *Request, tokens int64) int64 {
	prompt, blocks := q.prompt(), []segment{}
	for block := range slices.Chunk(prompt, cacheBlock) {
		blocks = append(blocks, segment{string(block), int64(len(block)), 24 * time.Hour})
	}
	if tokens < cacheMinimum || len(prompt) < cacheBlock {
		return 0
	}
	matched := s.cache.use(q.Model, blocks, s.now(), true).Cached
	cached := (tokens - 1) * matched / int64(len(prompt)) / cacheStep * cacheStep
	if cached < cacheMinimum {
		return 0
	}
	return cached
}

// prompt returns what the cache compares: tools first, then messages, in OpenAI's order.
func (q *Request) prompt() []byte {
	return slices.Concat(q.fields["tools"], q.fields["messages"], q.fields["instructions"],
		q.fields["input"])
}
