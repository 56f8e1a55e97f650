package guard

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
)

const (
	trips      = 3                      // holds in a row that failed at the store
	probeEvery = 500 * time.Millisecond // how often a store that is known to be away is asked
)

// circuit knows for which orgs the store is away, so that not every call has to
// find out by waiting. Orgs may be on different servers. It is safe for
// concurrent use.
type circuit struct {
	log  *slog.Logger
	mu   sync.Mutex
	orgs map[string]*outage // those that the store did not answer the last time
}

type outage struct {
	failures int
	probe    time.Time // when to ask again
}

// open reports whether the store is known to be away for the org.
func (c *circuit) open(org string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org]
	return o != nil && o.failures >= trips
}

// ask reports whether the store is to be asked for the org. While it is away
// one call now and then finds out whether it still is.
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

// told takes what came of asking. A store that did not answer a ping needs no other proof.
func (c *circuit) told(org *Org, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.orgs[org.ID]
	if !errors.Is(err, budget.ErrUnavailable) {
		delete(c.orgs, org.ID)
		if o != nil && o.failures >= trips {
			c.log.Warn("the store answers again", "org", org.ID)
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
		c.log.Error("the store does not answer", "org", org.ID, "on_store_failure", string(org.OnStoreFailure), "err", err)
	}
}

// away is for how many orgs the store is known to be away.
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
