package guard

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
)

const (
	trips      = 3                      // consecutive holds that failed at the store
	probeEvery = 500 * time.Millisecond // how often an unavailable store is tried
)

// circuit tracks for which orgs, and parts of orgs, the store is unavailable, so that not every
// call has to time out. They may be on different servers, so each is known by the first hash tag of
// its requests. It is safe for concurrent use.
type circuit struct {
	log  *slog.Logger
	mu   sync.Mutex
	tags map[string]*outage // those whose last request to the store failed
}

type outage struct {
	failures int
	probe    time.Time    // when to try again
	mode     StoreFailure // what happens to the org's calls meanwhile
	tags     []string     // of the last request that failed
	org      string
}

// open reports whether the store is known to be unavailable for the tag.
func (c *circuit) open(tag string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.tags[tag]
	return o != nil && o.failures >= trips
}

// ask reports whether to ask the store for the tag. While the store is unavailable, it lets
// one call through at intervals to test it.
func (c *circuit) ask(tag string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.tags[tag]
	if o == nil || o.failures < trips {
		return true
	}
	if now.Before(o.probe) {
		return false
	}
	o.probe = now.Add(probeEvery)
	return true
}

// told records for the first of the tags the outcome of asking servers with all of them. A store that
// did not answer a ping needs no further proof.
func (c *circuit) told(org *Org, tags []string, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.tags[tags[0]]
	if !errors.Is(err, budget.ErrUnavailable) {
		delete(c.tags, tags[0])
		if o != nil {
			c.closed(tags[0], o)
		}
		return
	}
	if o == nil {
		o = &outage{org: org.ID}
		c.tags[tags[0]] = o
	}
	o.mode, o.tags = cmp.Or(org.OnStoreFailure, Deny), tags
	if errors.Is(err, errSilent) {
		o.failures = max(o.failures, trips-1)
	}
	o.failures++
	if o.failures == trips {
		o.probe = now.Add(probeEvery)
		c.log.Error("store unavailable", "org", tags[0], "on_store_failure", org.OnStoreFailure, "err", err)
	}
}

func (c *circuit) closed(tag string, o *outage) {
	if o.failures >= trips {
		c.log.Warn("store available again", "org", tag)
	}
}

// answered records that the store answers for the tag again, outside of a call. The next
// call tests it, and opens the circuit again if it fails.
func (c *circuit) answered(tag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.tags[tag]; o != nil {
		c.closed(tag, o)
		o.failures = min(o.failures, trips-1)
	}
}

// away returns for how many orgs the store is known to be unavailable, by what happens to
// their calls.
func (c *circuit) away() map[StoreFailure]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, counted := map[StoreFailure]int{}, map[string]bool{}
	for _, o := range c.tags {
		if o.failures >= trips && !counted[o.org] {
			counted[o.org] = true
			out[o.mode]++
		}
	}
	return out
}

// awayTags returns the tags for which the store is known to be unavailable, with all tags of the
// requests that failed.
func (c *circuit) awayTags() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]string{}
	for tag, o := range c.tags {
		if o.failures >= trips {
			out[tag] = o.tags
		}
	}
	return out
}
