package redistest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Counter is a proxy in front of one server that counts round trips: data sent on a connection
// and then answered, be it one command or a pipeline. Its methods are safe for concurrent use.
type Counter struct {
	Addr string // host:port

	trips atomic.Int64
	mu    sync.Mutex
	open  map[net.Conn]struct{} // nil after the end
	all   sync.WaitGroup
}

// NewCounter starts a Counter for a server's address, until the end of the test.
func NewCounter(tb testing.TB, addr string) *Counter {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Counter{Addr: listener.Addr().String(), open: make(map[net.Conn]struct{})}
	c.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			c.serve(client, addr)
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		c.mu.Lock()
		for conn := range c.open {
			_ = conn.Close()
		}
		c.open = nil
		c.mu.Unlock()
		Wait(tb, c.all.Wait)
	})
	return c
}

// Trips returns the number of round trips so far, over all connections.
func (c *Counter) Trips() int64 { return c.trips.Load() }

// serve forwards bytes both ways until either side closes.
func (c *Counter) serve(client net.Conn, addr string) {
	server, err := net.Dial("tcp", addr)
	if err != nil || !c.keep(client, server) {
		_ = client.Close()
		return
	}
	var answered atomic.Bool
	answered.Store(true)
	c.all.Go(func() {
		c.pass(server, client, func() {
			if answered.Swap(false) {
				c.trips.Add(1)
			}
		})
	})
	c.all.Go(func() { c.pass(client, server, func() { answered.Store(true) }) })
}

func (c *Counter) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	for _, conn := range conns {
		c.open[conn] = struct{}{}
	}
	return true
}

// pass copies until one side closes, and then closes both; it calls seen before it forwards
// data.
func (c *Counter) pass(to io.WriteCloser, from net.Conn, seen func()) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
		c.mu.Lock()
		delete(c.open, from)
		c.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			seen()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
