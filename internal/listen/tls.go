package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// MaxStreams limits the open requests of an HTTP/2 connection.
const MaxStreams = 100

// TLS returns a listener for TLS 1.2 or newer, with HTTP/2 and HTTP/1.1. HTTP/1.1 is read
// strictly, see Strict. If a handshake takes longer than within, its connection is closed and
// refused is called with "handshake".
func TLS(l net.Listener, cert *Certificate, within time.Duration, refused func(why string)) net.Listener {
	s := &secure{
		Listener: l, within: within, refused: refused, ready: make(chan accepted), done: make(chan struct{}),
		config: &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: cert.get,
		},
	}
	go s.accept()
	return s
}

// secure is a listener that does many handshakes concurrently. net/http could do them too, but
// only the result shows which connections must be read strictly.
type secure struct {
	net.Listener
	config  *tls.Config
	within  time.Duration
	refused func(why string)
	ready   chan accepted
	done    chan struct{}
	close   sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// Accept returns the next encrypted connection.
func (s *secure) Accept() (net.Conn, error) {
	select {
	case a := <-s.ready:
		return a.conn, a.err
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close stops listening.
func (s *secure) Close() error {
	s.close.Do(func() { close(s.done) })
	return s.Listener.Close()
}

func (s *secure) accept() {
	for {
		c, err := s.Listener.Accept()
		switch {
		case err == nil:
			go s.shake(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			s.give(accepted{err: err})
		}
	}
}

// give passes a connection to Accept.
func (s *secure) give(a accepted) {
	select {
	case s.ready <- a:
	case <-s.done:
		if a.conn != nil {
			_ = a.conn.Close()
		}
	}
}

// plain is the response to a client that speaks HTTP here.
const plain = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis listener " +
	"speaks HTTPS only.\n"

func (s *secure) shake(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), s.within) //nolint:forbidigo // it is nobody's call yet
	defer cancel()
	t := tls.Server(c, s.config)
	if err := t.HandshakeContext(ctx); err != nil {
		if other, ok := errors.AsType[tls.RecordHeaderError](err); ok && other.Conn != nil {
			_ = c.SetWriteDeadline(time.Now().Add(s.within))
			_, _ = io.WriteString(c, plain)
		}
		_ = c.Close()
		s.refused("handshake")
		return
	}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		s.give(accepted{conn: t})
		return
	}
	s.give(accepted{conn: &strictTLS{strict: strict{Conn: t}, secure: t}})
}
