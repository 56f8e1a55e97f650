package outage

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	trips      = 3                      // consecutive holds that failed at the store
	probeEvery = 500 * time.Millisecond // how often an unavailable store is tried
)

// Circuit tracks for which orgs, and parts of orgs, the store is unavailable, so that not every
// call has to time out. They may be on different servers, so each is known by the first hash tag of
// its requests. It is safe for concurrent use.
type Circuit struct {
	log  *slog.Logger
	mu   sync.Mutex
	tags map[string]*broken // those whose last request to the store failed
}

// NewCircuit returns a Circuit for a store that is available.
func NewCircuit(log *slog.Logger) *Circuit { return &Circuit{log: log, tags: map[string]*broken{}} }

// broken is what is known of a tag whose last request failed.
type broken struct {
	failures int
	probe    time.Time // when to try again
	mode     string    // what happens to the org's calls meanwhile
	tags     []string  // of the last request that failed
	org      string
}

// Open reports whether the store is known to be unavailable for the tag.
func (c *Circuit) Open(tag string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.tags[tag]
	return o != nil && o.failures >= trips
}

// Ask reports whether to ask the store for the tag. While the store is unavailable, it lets
// one call through at intervals to test it.
func (c *Circuit) Ask(tag string, now time.Time) bool {
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

// Told records for the first of the tags the outcome of asking servers with all of them. A store that
// did not answer a ping needs no further proof.
func (c *Circuit) Told(org, mode string, tags []string, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.tags[tags[0]]
	if !errors.Is(err, ErrUnavailable) {
		delete(c.tags, tags[0])
		if o != nil {
			c.closed(tags[0], o)
		}
		return
	}
	if o == nil {
		o = &broken{org: org}
		c.tags[tags[0]] = o
	}
	o.mode, o.tags = mode, tags
	if errors.Is(err, ErrSilent) {
		o.failures = max(o.failures, trips-1)
	}
	o.failures++
	if o.failures == trips {
		o.probe = now.Add(probeEvery)
		c.log.Error("store unavailable", "org", tags[0], "on_store_failure", mode, "err", err)
	}
}

func (c *Circuit) closed(tag string, o *broken) {
	if o.failures >= trips {
		c.log.Warn("store available again", "org", tag)
	}
}

// Answered records that the store answers for the tag again, outside of a call. The next
// call tests it, and opens the circuit again if it fails.
func (c *Circuit) Answered(tag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.tags[tag]; o != nil {
		c.closed(tag, o)
		o.failures = min(o.failures, trips-1)
	}
}

// Away returns for how many orgs the store is known to be unavailable, by what happens to
// their calls.
func (c *Circuit) Away() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, counted := map[string]int{}, map[string]bool{}
	for _, o := range c.tags {
		if o.failures >= trips && !counted[o.org] {
			counted[o.org] = true
			out[o.mode]++
		}
	}
	return out
}

// AwayTags returns the tags for which the store is known to be unavailable, with all tags of the
// requests that failed.
func (c *Circuit) AwayTags() map[string][]string {
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
