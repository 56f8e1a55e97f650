package listen

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Strict returns a listener whose connections refuse HTTP/1 requests that a proxy in
// front may read differently: such a request is answered with 400 after those before it,
// and the connection is closed.
func Strict(l net.Listener) net.Listener { return strictListener{l} }

type strictListener struct{ net.Listener }

// Accept waits for the next connection.
func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &strict{Conn: c}, nil
}

// strict is a connection that is read by net/http. Reads come one at a time.
type strict struct {
	net.Conn
	framing framing
	refused atomic.Bool
	instead []byte // of the rest of a refused request
}

// malformed makes net/http refuse a request, wherever in its head or chunks it stands,
// and close the connection.
const malformed = "\x00:\r\n\r\n"

// Read reads requests. Instead of an ambiguous one it delivers what net/http refuses, so
// that the refusal comes in its turn on a connection with several requests.
func (c *strict) Read(p []byte) (int, error) {
	if c.refused.Load() {
		return c.rest(p)
	}
	n, err := c.Conn.Read(p)
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

// Close closes the connection. After a refusal it first takes what the client still sends,
// up to a bound: a reset would cost an honest one the answer.
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

// drainBytes is how much of a refused request is taken before its connection is closed.
const drainBytes = 256 << 10

// strictTLS is an encrypted one. net/http takes its state for that of the request.
type strictTLS struct {
	strict
	secure *tls.Conn
}

// ConnectionState is that of the encryption.
func (c *strictTLS) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }
