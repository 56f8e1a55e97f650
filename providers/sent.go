package providers

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// net/http does not tell whether a failed request reached the wire, and money
// hangs on it. So connections count what is written to them.

type countingConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

func countWrites(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: conn}, nil
	}
}

// usedConn remembers the connection a request got and how much had been
// written to it before.
type usedConn struct {
	conn   *countingConn
	before int64
	got    bool
	reused bool
}

func (u *usedConn) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		u.got, u.reused = true, info.Reused
		conn := info.Conn
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn()
		}
		if c, ok := conn.(*countingConn); ok {
			u.conn, u.before = c, c.written.Load()
		}
	}}
}

// wrote reports whether a byte of the request may have left. On HTTP/2 other
// requests share the connection, so the answer there is yes too often, never
// no too often.
func (u *usedConn) wrote() bool {
	if u.conn == nil {
		return u.got
	}
	return u.conn.written.Load() > u.before
}

// onceBody hides every method but Read, so that net/http sees no way to
// rewind the body and replay a POST. It refuses to be read when the grant is
// stale: headers are still in the write buffer then.
type onceBody struct {
	r     io.Reader
	fresh func() bool
	begun bool
	stale atomic.Bool
}

func (b *onceBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		if b.fresh != nil && !b.fresh() {
			b.stale.Store(true)
			return 0, ErrStale
		}
	}
	return b.r.Read(p)
}
