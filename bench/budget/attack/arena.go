package attack

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/bench/budget/gateway"
	"github.com/llmguard/llmguard/bench/budget/mock"
)

// Arena is where an attack happens: a fresh gateway in front of a fresh mock. Calls can be made
// concurrently.
type Arena struct {
	Ctx     context.Context
	Mock    *mock.Server
	Gateway *gateway.Deployment
	Setup   Setup
	Short   bool // the short form: less traffic, the same attack

	client *http.Client
	began  time.Time
	killed atomic.Bool // a process with calls in flight was killed
	outage atomic.Bool

	mu      sync.Mutex
	calls   int
	owner   map[string]int // user by marker
	counts  Counts
	events  []Event
	above   int
	falsely int
}

// Either returns the first number in the short form and the second otherwise.
func (a *Arena) Either(short, full int) int {
	if a.Short {
		return short
	}
	return full
}

// Wait pauses the attack.
func (a *Arena) Wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-a.Ctx.Done():
	}
}

// Each runs n copies of a function in parallel, and returns when all have returned.
func (a *Arena) Each(n int, run func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { run(i) })
	}
	group.Wait()
}

// Burst makes n calls in parallel. The mock answers none before each of them has either arrived there or
// ended, so that they really overlap, however slow the machine is.
func (a *Arena) Burst(n int, call func(i int) Call) {
	gate := make(chan struct{})
	var through atomic.Int64
	all := make(chan struct{}, 2*n)
	a.Note(fmt.Sprintf("%d calls in parallel", n))
	go func() {
		defer close(gate)
		limit := time.After(10 * time.Second)
		for through.Load() < int64(n) {
			select {
			case <-all:
			case <-limit:
				return
			}
		}
	}()
	one := func() { through.Add(1); all <- struct{}{} }
	a.Each(n, func(i int) {
		c := call(i)
		var once sync.Once
		inner := c.Mock
		c.Mock = func(attempt int) mock.Behaviour {
			once.Do(one)
			b := mock.Behaviour{}
			if inner != nil {
				b = inner(attempt)
			}
			b.Gate = gate
			return b
		}
		a.Call(c)
		once.Do(one)
	})
}

// Background makes calls until the returned function is called, which waits for the last of them. It
// keeps at most lanes in flight, with a pause after each.
func (a *Arena) Background(lanes int, rest time.Duration, call func(i int) Call) (stop func()) {
	ctx, cancel := context.WithCancel(a.Ctx)
	var group sync.WaitGroup
	var next atomic.Int64
	for range lanes {
		group.Go(func() {
			for ctx.Err() == nil {
				a.Call(call(int(next.Add(1))))
				select {
				case <-time.After(rest):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { cancel(); group.Wait() }
}

// Arrivals waits until n requests are in flight at the mock, at most 10 seconds.
func (a *Arena) Arrivals(n int) {
	for limit := time.Now().Add(10 * time.Second); a.Mock.Open() < n && time.Now().Before(limit); {
		a.Wait(10 * time.Millisecond)
	}
}

// Idle waits until nothing is in flight at the mock, at most 30 seconds.
func (a *Arena) Idle() {
	for limit := time.Now().Add(30 * time.Second); a.Mock.Open() > 0 && time.Now().Before(limit); {
		a.Wait(20 * time.Millisecond)
	}
}

// Outage marks what follows as an outage, until it is called with false: calls that fail in it count
// apart.
func (a *Arena) Outage(on bool, what string) {
	a.outage.Store(on)
	a.Note(what)
}

// Kill kills a replica.
func (a *Arena) Kill(i int) error {
	a.killed.Store(true)
	a.Outage(true, "the gateway is killed")
	return a.Gateway.Kill(a.Ctx, i)
}

// AboveParallel reports calls in flight above the limit.
func (a *Arena) AboveParallel(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.above = max(a.above, n)
}

// Note writes a line into the timeline.
func (a *Arena) Note(what string) { a.event(Event{What: what}) }

func (a *Arena) event(e Event) {
	e.At = time.Since(a.began).Seconds()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, e)
}

// marker registers a new call of a user.
func (a *Arena) marker(user int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	m := mock.Marker(a.calls)
	a.owner[m] = user
	return m
}

func (a *Arena) count(user int, verdict Verdict) {
	a.mu.Lock()
	switch verdict {
	case Served:
		a.counts.Served++
	case Refused:
		a.counts.Refused++
	case HungUp:
		a.counts.HungUp++
	case Outage:
		a.counts.Outage++
	case Failed:
		a.counts.Failed++
	}
	a.mu.Unlock()
	a.event(Event{User: user, What: string(verdict)})
}
