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

// circuit tracks for which orgs the store is unavailable, so that not every call has to
// time out. Orgs may be on different servers. It is safe for concurrent use.
type circuit struct {
	log  *slog.Logger
	mu   sync.Mutex
	orgs map[string]*outage // those whose last request to the store failed
}

type outage struct {
	failures int
	probe    time.Time    // when to try again
	mode     StoreFailure // what happens to the org's calls meanwhile
	tags     []string     // of the last request that failed
}

// open reports whether the store is known to be unavailable for the org.
func (c *circuit) open(org string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org]
	return o != nil && o.failures >= trips
}

// ask reports whether to ask the store for the org. While the store is unavailable, it lets
// one call through at intervals to test it.
func (c *circuit) ask(org string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org]
	if o == nil || o.failures < trips {
		return true
	}
	if now.Before(o.probe) {
		return false
	}
	o.probe = now.Add(probeEvery)
	return true
}

// told records the outcome of asking servers with these tags. A store that did not answer a
// ping needs no further proof.
func (c *circuit) told(org *Org, tags []string, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org.ID]
	if !errors.Is(err, budget.ErrUnavailable) {
		delete(c.orgs, org.ID)
		if o != nil {
			c.closed(org.ID, o)
		}
		return
	}
	if o == nil {
		o = &outage{}
		c.orgs[org.ID] = o
	}
	o.mode, o.tags = cmp.Or(org.OnStoreFailure, Deny), tags
	if errors.Is(err, errSilent) {
		o.failures = max(o.failures, trips-1)
	}
	o.failures++
	if o.failures == trips {
		o.probe = now.Add(probeEvery)
		c.log.Error("store unavailable", "org", org.ID, "on_store_failure", string(org.OnStoreFailure), "err", err)
	}
}

func (c *circuit) closed(org string, o *outage) {
	if o.failures >= trips {
		c.log.Warn("store available again", "org", org)
	}
}

// answered records that the store answers for the org again, outside of a call. The next
// call tests it, and opens the circuit again if it fails.
func (c *circuit) answered(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.orgs[org]; o != nil {
		c.closed(org, o)
		o.failures = min(o.failures, trips-1)
	}
}

// away returns for how many orgs the store is known to be unavailable, by what happens to
// their calls.
func (c *circuit) away() map[StoreFailure]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[StoreFailure]int{}
	for _, o := range c.orgs {
		if o.failures >= trips {
			out[o.mode]++
		}
	}
	return out
}

// awayTags returns the orgs for which the store is known to be unavailable, with the tags of
// the requests that failed.
func (c *circuit) awayTags() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string][]string{}
	for org, o := range c.orgs {
		if o.failures >= trips {
			out[org] = o.tags
		}
	}
	return out
}
