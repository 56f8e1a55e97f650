package providers

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// net/http does not report whether a failed request reached the wire, and money depends on it. So
// connections count what is written to them. They also ask for the permit before the first byte,
// because net/http flushes the header of a request before it has read the body.

// gate lets a request pass if it is permitted. Its first decision is final. It is safe for concurrent
// use.
type gate struct {
	mu     sync.Mutex
	permit func() error // nil: it has been called, or everything is permitted
	err    error        // why the request may not pass
}

// pass returns nil if the request may pass.
func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if permit := g.permit; permit != nil {
		g.permit = nil
		g.err = permit()
	}
	return g.err
}

// refusal returns why the request was refused, nil if it was not.
func (g *gate) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

type countingConn struct {
	net.Conn
	written atomic.Int64
	gate    atomic.Pointer[gate] // of the request that currently uses the connection
}

// Write counts first: a call that is canceled meanwhile must not be reported as unsent while its
// bytes are being written.
func (c *countingConn) Write(p []byte) (int, error) {
	if g := c.gate.Load(); g != nil {
		if err := g.pass(); err != nil {
			return 0, err
		}
	}
	c.written.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// ReadFrom writes a body that is in memory in one piece; net/http would copy it in small ones.
func (c *countingConn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if body, ok := l.R.(io.WriterTo); ok {
			n, err := body.WriteTo(&boundedWriter{c, l.N})
			l.N -= n
			return n, err
		}
	}
	return io.Copy(&boundedWriter{c, math.MaxInt64}, r)
}

// boundedWriter writes at most left bytes to a connection.
type boundedWriter struct {
	conn *countingConn
	left int64
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.left {
		return 0, io.ErrShortWrite
	}
	w.left -= int64(len(p))
	return w.conn.Write(p)
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

// usedConn records the connection of a request and how much had been written to it before.
type usedConn struct {
	gate   *gate
	stop   func() // ends the request unsent
	conn   *countingConn
	before int64
	got    bool
	reused bool
	shared bool        // HTTP/2: other requests write to the connection too
	head   atomic.Bool // a header field of the request was encoded
	drop   func()      // releases the body once it is written; nil: it is small
}

func (u *usedConn) trace() *httptrace.ClientTrace {
	t := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			u.got, u.reused = true, info.Reused
			conn := info.Conn
			if t, ok := conn.(*tls.Conn); ok {
				u.shared = t.ConnectionState().NegotiatedProtocol == "h2"
				conn = t.NetConn()
			}
			if c, ok := conn.(*countingConn); ok {
				u.conn, u.before = c, c.written.Load()
			}
			switch {
			case u.conn != nil && !u.shared:
				u.conn.gate.Store(u.gate)
			case u.gate.pass() != nil: // other requests write there too; HTTP/2 checks the context before it writes
				u.stop()
			}
		},
		WroteHeaderField: func(string, []string) { u.head.Store(true) },
	}
	if u.drop != nil {
		t.WroteRequest = func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				u.drop()
			}
		}
	}
	return t
}

// wrote reports whether a byte of the request may have been sent. It may be wrongly true, such as
// for the close message of a TLS connection, but never wrongly false. A canceled HTTP/2 request may
// still be being written when its error is returned.
func (u *usedConn) wrote(cancelled bool) bool {
	switch {
	case u.shared:
		return cancelled || u.head.Load()
	case u.conn == nil:
		return u.got
	default:
		return u.conn.written.Load() > u.before
	}
}

// joined is the size up to which a body is copied into one piece, so that it is sent with its
// header in one write.
const joined = 64 << 10

// keptBody is the size in bytes of bodies that a request may retain until the end of its answer,
// because net/http retains the request.
const keptBody = 4 << 10

// bodyOf returns the body without any means to rewind it, so that net/http cannot replay a POST,
// and a function that releases its bytes; nil if they are few, or not in memory.
func bodyOf(r Request) (body io.ReadCloser, drop func()) {
	if r.Body == nil {
		return http.NoBody, nil
	}
	from := r.Body()
	if whole, ok := from.(*bytes.Reader); ok { // net/http recognizes it as in memory, so nothing is copied
		if r.Length > keptBody {
			drop = func() { whole.Reset(nil) }
		}
		return io.NopCloser(whole), drop
	}
	if r.Length > joined {
		return io.NopCloser(struct{ io.Reader }{from}), nil
	}
	whole := bytes.NewBuffer(make([]byte, 0, r.Length+bytes.MinRead))
	if r.Length > keptBody {
		drop = func() { *whole = bytes.Buffer{} }
	}
	if _, err := whole.ReadFrom(from); err != nil {
		return io.NopCloser(io.MultiReader(whole, broken{err})), nil
	}
	return io.NopCloser(whole), drop
}

// broken is a reader that fails.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
