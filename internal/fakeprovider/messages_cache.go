package fakeprovider

import (
	"cmp"
	"time"
)

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
