// Package listen bounds what a connection may take before anybody knows whose it is:
// how many there are, and how long a body may stay away.
package listen

import (
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Limits are the bounds of a listener's open connections.
type Limits struct {
	// Total is the most connections; 0 is half of the descriptors that the process may
	// open, so that as many are left for providers and Redis.
	Total int
	// PerAddress is the most connections of one address; 0 is a quarter of Total.
	PerAddress int
	// Exempt reports addresses that stand for many callers, such as a load balancer's.
	// They are bounded by Total alone. nil: there are none.
	Exempt func(netip.Addr) bool
	// Refused is told of each connection that is closed at once, before it is, with "total" or
	// "address". It must not block; nil: nobody is told.
	Refused func(why string)
}

// fewDescriptors is what is assumed where the system does not tell.
const fewDescriptors = 1024

// mostByDefault keeps the default within what a process can serve.
const mostByDefault = 50_000

// DefaultTotal is the default of Limits.Total.
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

// limited is a listener that closes connections beyond its limits.
type limited struct {
	net.Listener
	limits Limits

	mu    sync.Mutex
	total int
	from  map[netip.Addr]int
}

// Limit returns a listener that closes at once what comes beyond the limits, instead
// of letting it wait where it would keep others waiting.
func Limit(l net.Listener, limits Limits) net.Listener {
	return &limited{Listener: l, limits: limits.withDefaults(), from: make(map[netip.Addr]int)}
}

// Accept waits for the next connection within the limits.
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

// take counts a connection, or says which limit refuses it.
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

// address is the peer's; an IPv6 address stands for its /64, which one customer has.
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

// CloseWrite tells the other end that no more comes.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close closes the connection, which then counts no more.
func (c *conn) Close() error {
	c.leave()
	return c.Conn.Close()
}
