package guard

import (
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
	probe    time.Time // when to try again
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

// told records the outcome of asking. A store that did not answer a ping needs no further
// proof.
func (c *circuit) told(org *Org, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org.ID]
	if !errors.Is(err, budget.ErrUnavailable) {
		delete(c.orgs, org.ID)
		if o != nil && o.failures >= trips {
			c.log.Warn("store available again", "org", org.ID)
		}
		return
	}
	if o == nil {
		o = &outage{}
		c.orgs[org.ID] = o
	}
	if errors.Is(err, errSilent) {
		o.failures = max(o.failures, trips-1)
	}
	o.failures++
	if o.failures == trips {
		o.probe = now.Add(probeEvery)
		c.log.Error("store unavailable", "org", org.ID, "on_store_failure", string(org.OnStoreFailure), "err", err)
	}
}

// away returns for how many orgs the store is known to be unavailable.
func (c *circuit) away() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, o := range c.orgs {
		if o.failures >= trips {
			n++
		}
	}
	return n
}
