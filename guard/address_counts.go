package guard

import (
	"hash/fnv"
	"strconv"
	"sync"
	"time"
)

const (
	// mostAddresses is how many addresses have a count of their own at a time, in one process.
	mostAddresses = 100_000
	// sharedPlaces is the number of counts that all other addresses share.
	sharedPlaces = 4096
)

// addressCounts bounds how many addresses are counted, so that a botnet or the owner of a large IPv6
// network cannot fill Redis. The first addresses have a count of their own, all others share a fixed
// number of counts. It remembers the addresses of the current and the previous generation. The zero
// value is usable.
type addressCounts struct {
	mu       sync.Mutex
	began    time.Time
	now, old map[string]struct{}
	most     int // 0: mostAddresses
}

// place returns what an address is counted as. keep is how long a count lasts.
func (c *addressCounts) place(address string, keep time.Duration, at time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.Sub(c.began) >= keep {
		c.old, c.now, c.began = c.now, map[string]struct{}{}, at
	}
	most := c.most
	if most == 0 {
		most = mostAddresses
	}
	_, known := c.now[address]
	_, earlier := c.old[address]
	if !known && len(c.now) >= most || !known && !earlier && len(c.now)+len(c.old) >= most {
		h := fnv.New32a()
		_, _ = h.Write([]byte(address))
		return "shared-" + strconv.Itoa(int(h.Sum32()%sharedPlaces))
	}
	c.now[address] = struct{}{}
	return address
}
