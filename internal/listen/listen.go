// Package listen limits what a connection can take before its caller is known: the number of
// connections, and the time that a body may take.
package listen

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Limits limit a listener's open connections.
type Limits struct {
	// Total is the maximum number of connections; 0 means half of the file descriptors that the
	// process may open, so that as many are left for providers and Redis.
	Total int
	// PerAddress is the maximum number of connections per address; 0 means a quarter of Total.
	PerAddress int
	// IPv6Prefix is how many bits of an IPv6 address count as one address; 0 means 64.
	IPv6Prefix int
	// Exempt reports addresses that stand for many callers, such as a load balancer's. They are
	// subject to Total only. nil means none.
	Exempt func(netip.Addr) bool
	// Refused is called before a connection is refused, with "total" or "address". It must not
	// block, and may be nil.
	Refused func(why string)
}

// fewDescriptors is assumed if the system does not report the limit.
const fewDescriptors = 1024

// mostByDefault limits the default to what a process can serve.
const mostByDefault = 50_000

// DefaultTotal returns the default of Limits.Total.
func DefaultTotal() int { return min(descriptors()/2, mostByDefault) }

func (l Limits) withDefaults() Limits {
	if l.Total <= 0 {
		l.Total = DefaultTotal()
	}
	if l.PerAddress <= 0 {
		l.PerAddress = max(l.Total/4, 1)
	}
	if l.Exempt == nil {
		l.Exempt = func(netip.Addr) bool { return false }
	}
	if l.Refused == nil {
		l.Refused = func(string) {}
	}
	return l
}

func descriptors() int {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	if err != nil || r.Cur == 0 {
		return fewDescriptors
	}
	return int(min(r.Cur, 1<<30))
}

// limited is a listener that closes connections that exceed its limits.
type limited struct {
	net.Listener
	limits Limits

	mu    sync.Mutex
	total int
	from  map[netip.Addr]int
}

// Limit returns a listener that immediately closes connections beyond the limits. Letting them
// wait would delay others.
func Limit(l net.Listener, limits Limits) net.Listener {
	return &limited{Listener: l, limits: limits.withDefaults(), from: make(map[netip.Addr]int)}
}

// Accept returns the next connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, exempt := l.address(c)
		why := l.take(from, exempt)
		if why == "" {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.give(from, exempt) })}, nil
		}
		l.limits.Refused(why)
		_ = c.Close()
	}
}

// take counts a connection, or returns the limit that refuses it.
func (l *limited) take(from netip.Addr, exempt bool) (refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total >= l.limits.Total:
		return "total"
	case !exempt && l.from[from] >= l.limits.PerAddress:
		return "address"
	}
	l.total++
	if !exempt {
		l.from[from]++
	}
	return ""
}

func (l *limited) give(from netip.Addr, exempt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if exempt {
		return
	}
	l.from[from]--
	if l.from[from] == 0 {
		delete(l.from, from)
	}
}

// address returns the peer's address as it counts, and whether it is exempt. An exempt address does
// not use up the connections of others in its network.
func (l *limited) address(c net.Conn) (from netip.Addr, exempt bool) {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}, false
	}
	ip := peer.Addr().Unmap()
	return Network(ip, l.limits.IPv6Prefix), l.limits.Exempt(ip)
}

type conn struct {
	net.Conn
	leave func()
}

// CloseWrite closes the writing side.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close closes the connection, which no longer counts.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}
