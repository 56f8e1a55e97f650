package listen

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Strict returns a listener whose connections reject HTTP/1 requests that a proxy in front may
// interpret differently. Such a request gets a 400 after the responses to earlier ones, and the
// connection is closed.
func Strict(l net.Listener) net.Listener { return strictListener{l} }

type strictListener struct{ net.Listener }

// Accept returns the next connection.
func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &strict{Conn: c}, nil
}

// strict is a connection that net/http reads from. Reads are sequential.
type strict struct {
	net.Conn
	framing  framing
	refused  atomic.Bool
	instead  []byte // replaces the rest of a rejected request
	upgraded bool   // what follows is no HTTP
}

// Upgraded passes on all further bytes as they are, because the connection changed to another protocol. It must not
// be called during a Read.
func (c *strict) Upgraded() { c.upgraded = true }

// malformed makes net/http reject a request, wherever it occurs in the head or the chunks, and
// close the connection.
const malformed = "\x00:\r\n\r\n"

// Read reads requests. It replaces an ambiguous request by one that net/http rejects, so that
// the rejection is sent in order on a connection with several requests.
func (c *strict) Read(p []byte) (int, error) {
	if c.refused.Load() {
		return c.rest(p)
	}
	n, err := c.Conn.Read(p)
	if c.upgraded {
		return n, err
	}
	good, ok := c.framing.scan(p[:n])
	if ok {
		return n, err
	}
	c.instead = []byte(malformed)
	c.refused.Store(true)
	if good == 0 {
		return c.rest(p)
	}
	return good, nil
}

func (c *strict) rest(p []byte) (int, error) {
	if len(c.instead) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.instead)
	c.instead = c.instead[n:]
	return n, nil
}

// Close closes the connection. After a rejection it first reads what the client is still
// sending, up to a limit, because a reset could cost an honest client the response.
func (c *strict) Close() error {
	if c.refused.Load() {
		if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		_ = c.Conn.SetReadDeadline(time.Now().Add(drainTime))
		_, _ = io.CopyN(io.Discard, c.Conn, drainBytes)
	}
	return c.Conn.Close()
}

// drainBytes is how much of a rejected request is read before its connection is closed.
const drainBytes = 256 << 10

// strictTLS is an encrypted connection. net/http copies its state to the request.
type strictTLS struct {
	strict
	secure *tls.Conn
}

// ConnectionState returns the state of the TLS connection.
func (c *strictTLS) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }
