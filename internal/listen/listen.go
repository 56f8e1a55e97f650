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
		from := address(c)
		why := l.take(from)
		if why == "" {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.give(from) })}, nil
		}
		l.limits.Refused(why)
		_ = c.Close()
	}
}

// take counts a connection, or returns the limit that refuses it.
func (l *limited) take(from netip.Addr) (refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.total >= l.limits.Total:
		return "total"
	case l.from[from] >= l.limits.PerAddress && !l.limits.Exempt(from):
		return "address"
	}
	l.total++
	l.from[from]++
	return ""
}

func (l *limited) give(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.from[from]--
	if l.from[from] == 0 {
		delete(l.from, from)
	}
}

// address returns the peer's address; an IPv6 address is reduced to its /64, which belongs to
// one customer.
func address(c net.Conn) netip.Addr {
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	ip := peer.Addr().Unmap()
	if ip.Is4() {
		return ip
	}
	net64, err := ip.Prefix(64)
	if err != nil {
		return ip
	}
	return net64.Addr()
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
