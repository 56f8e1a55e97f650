package budget

import (
	"sync"
	"time"
)

// mostStep is how far the store's clock may run apart from ours between two looks
// before it is said to have jumped.
const mostStep = 500 * time.Millisecond

// storeClock watches the clock that limits go by.
type storeClock struct {
	start time.Time

	mu   sync.Mutex
	seen map[string]clockSeen // by server
}

func newStoreClock() *storeClock { return &storeClock{start: time.Now(), seen: map[string]clockSeen{}} }

// clockSeen is a server's clock when it was last read.
type clockSeen struct {
	ahead time.Duration // of our monotonic clock
	skew  time.Duration // ahead of our wall clock, at least
	rtt   time.Duration
	at    time.Time
}

// read takes a server's clock that was read between two moments of ours. It
// returns how far that clock jumped since the last time.
func (c *storeClock) read(server string, asked, answered, there time.Time) (jump time.Duration) {
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

// skew is the largest of all servers that answered within the last minute.
func (c *storeClock) skew() time.Duration {
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

// ClockSkew is how far a clock is ahead that was read as `there` between two moments of
// this machine's wall clock, at least; negative when it is behind.
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
