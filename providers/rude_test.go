package providers

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// rude is a server that keeps connections alive and closes or resets some of them after an answer,
// or after a request without answering.
type rude struct {
	addr  string
	mu    sync.Mutex
	count map[string]int
	turn  int
}

func newRude(t *testing.T) *rude {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rude{addr: l.Addr().String(), count: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(conn.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close() }) // its connections end with the client's
	return s
}

func (s *rude) seen(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[id]
}

func (s *rude) serve(conn *net.TCPConn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.count[strings.TrimSuffix(string(body), ".")]++
		s.turn++
		turn := s.turn
		s.mu.Unlock()
		if turn%7 == 0 {
			if turn%2 == 0 {
				_ = conn.SetLinger(0)
			}
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		switch turn % 5 {
		case 0:
			return
		case 1:
			_ = conn.SetLinger(0)
			return
		}
	}
}

// secure starts a TLS server and a provider that trusts it.
func secure(t *testing.T, h2 bool, h http.HandlerFunc) *Provider {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = h2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	p := upstream(t, srv.URL)
	p.transport.TLSClientConfig = &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	return p
}

func TestSendTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var seen atomic.Int64
		var proto string
		p := secure(t, h2, func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			proto = r.Proto
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		})
		for range 2 { // on a new connection and on a reused one
			stale := request("{}")
			refusal := errors.New("stale")
			stale.Permit = func() error { return refusal }
			_, err := p.Send(t.Context(), stale)
			if failure(t, err, false); !errors.Is(err, refusal) {
				t.Errorf("HTTP/2 %v: got %v", h2, err)
			}
			before := seen.Load()
			resp, err := p.Send(t.Context(), request("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, resp); got != "hello" || (proto == "HTTP/2.0") != h2 {
				t.Errorf("got %q over %s", got, proto)
			}
			if n := seen.Load() - before; n != 1 {
				t.Errorf("HTTP/2 %v: %d requests reached the provider", h2, n)
			}
		}
		if seen.Load() != 2 {
			t.Errorf("HTTP/2 %v: %d requests reached the provider, want 2: a stale one did", h2, seen.Load())
		}
	}
}

func TestSendWrongCertificate(t *testing.T) {
	p := secure(t, false, func(http.ResponseWriter, *http.Request) { t.Error("a request reached the server") })
	p.transport.TLSClientConfig = nil
	_, err := p.Send(t.Context(), request("{}"))
	failure(t, err, false)
}

// TestSendGoAway: an HTTP/2 server that sends GOAWAY instead of an answer gets the request only
// once, although it may be sent again.
func TestSendGoAway(t *testing.T) {
	pair := httptest.NewUnstartedServer(nil)
	pair.EnableHTTP2 = true
	pair.StartTLS()
	defer pair.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: pair.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var heads atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go goAway(conn, &heads)
		}
	}()
	p := upstream(t, "https://"+l.Addr().String())
	p.transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server is ours
	_, err = p.Send(t.Context(), request("{}"))
	if failure(t, err, true); heads.Load() != 1 {
		t.Errorf("the request was sent %d times", heads.Load())
	}
}

// goAway implements just enough HTTP/2: it waits for a request's header and the end of its body and
// replies GOAWAY with no stream processed.
func goAway(conn net.Conn, heads *atomic.Int64) {
	defer conn.Close()
	const data, headers, settings, goaway, endStream = 0, 1, 4, 7, 1
	in := bufio.NewReader(conn)
	if _, err := in.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		return
	}
	frame := func(kind byte, payload []byte) {
		_, _ = conn.Write(append(append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), 0, 0, 0, 0, 0), payload...))
	}
	frame(settings, nil)
	for {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		if _, err := in.Discard(int(binary.BigEndian.Uint32(head[:4]) >> 8)); err != nil {
			return
		}
		switch {
		case head[3] == headers:
			heads.Add(1)
		case head[3] == data && head[4]&endStream != 0:
			frame(goaway, make([]byte, 8))
			return
		}
	}
}
