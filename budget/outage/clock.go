package outage

import (
	"sync"
	"time"
)

// mostStep is how much the store's clock may drift from ours between two readings before it counts
// as a jump.
const mostStep = 500 * time.Millisecond

// StoreClock watches the clocks of the servers, which limits use. It is safe for concurrent use.
type StoreClock struct {
	start time.Time

	mu   sync.Mutex
	seen map[string]clockSeen // by server
}

// NewStoreClock returns a StoreClock that has not read any server yet.
func NewStoreClock() *StoreClock { return &StoreClock{start: time.Now(), seen: map[string]clockSeen{}} }

// clockSeen is a server's clock when it was last read.
type clockSeen struct {
	ahead time.Duration // of our monotonic clock
	skew  time.Duration // minimum lead over our wall clock
	rtt   time.Duration
	at    time.Time
}

// Read records a server's clock that was read between two instants of ours. It returns how far that
// clock jumped since the last reading.
func (c *StoreClock) Read(server string, asked, answered, there time.Time) (jump time.Duration) {
	rtt := answered.Sub(asked)
	now := clockSeen{
		ahead: there.Sub(c.start.Round(0)) - asked.Sub(c.start) - rtt/2, skew: ClockSkew(asked, answered, there),
		rtt: rtt, at: answered,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.seen[server]
	c.seen[server] = now
	if d := now.ahead - before.ahead; known && d.Abs() > mostStep+(rtt+before.rtt)/2 {
		return d
	}
	return 0
}

// Skew returns the largest skew of all servers that answered within the last minute.
func (c *StoreClock) Skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var most time.Duration
	for _, s := range c.seen {
		if s.skew.Abs() > most.Abs() && time.Since(s.at) < time.Minute {
			most = s.skew
		}
	}
	return most
}

// ClockSkew returns the minimum lead of a clock that was read as there between two instants of this
// machine's wall clock; negative if it is behind.
func ClockSkew(asked, answered, there time.Time) time.Duration {
	switch {
	case there.Before(asked):
		return there.Sub(asked)
	case there.After(answered):
		return there.Sub(answered)
	default:
		return 0
	}
}
