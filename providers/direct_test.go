package providers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// script is a server that answers the requests of each connection with these texts, in
// turn; "" closes it. It counts connections and requests.
type script struct {
	addr            string
	conns, requests atomic.Int64
	gone            chan struct{} // a connection was closed by the client
}

func play(t *testing.T, answers ...string) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{addr: l.Addr().String(), gone: make(chan struct{}, 100)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			wg.Go(func() { s.serve(conn, answers) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return s
}

func (s *script) serve(conn net.Conn, answers []string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := 0; ; i++ {
		req, err := http.ReadRequest(in)
		if err == nil {
			_, err = io.Copy(io.Discard, req.Body)
		}
		if err != nil {
			s.gone <- struct{}{}
			return
		}
		s.requests.Add(1)
		answer := answers[i%len(answers)]
		if answer == "" {
			return
		}
		_, _ = io.WriteString(conn, answer)
	}
}

// left waits until the client has closed a connection.
func (s *script) left(t *testing.T) {
	t.Helper()
	select {
	case <-s.gone:
	case <-time.After(time.Minute):
		t.Fatal("no connection was closed")
	}
}

// player is a provider reached directly at a script's server; closing comes first at
// the end, so that the server sees its connections go.
func player(t *testing.T, s *script) *Provider {
	t.Helper()
	p := upstream(t, "http://"+s.addr)
	if p.transport.direct == nil {
		t.Fatal("the provider is not reached directly")
	}
	return p
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func (d *direct) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.idle)
}

// TestDirectKeeps: a connection is used again after an answer that was read to its end,
// whatever tells the end, and not after others.
func TestDirectKeeps(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	for name, c := range map[string]struct {
		answer, body string
		keeps        bool
	}{
		"length":        {ok, "ok", true},
		"chunks":        {chunked, "ok", true},
		"trailer":       {strings.Replace(chunked, "0\r\n\r\n", "0\r\nX-Cost: 1\r\n\r\n", 1), "ok", true},
		"no body":       {"HTTP/1.1 204 No Content\r\n\r\n", "", true},
		"news":          {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, "ok", true},
		"close":         {strings.Replace(ok, "\r\n", "\r\nConnection: close\r\n", 1), "ok", false},
		"HTTP/1.0":      {strings.Replace(ok, "1.1", "1.0", 1), "ok", false},
		"unasked":       {ok + ok, "ok", false},
		"other manners": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.answer)
			p := player(t, s)
			for i := range 3 {
				resp, err := p.Send(t.Context(), request("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, resp); got != c.body {
					t.Errorf("got %q", got)
				}
				want := int64(1)
				if !c.keeps {
					want = int64(i + 1)
				}
				if n := s.conns.Load(); n != want {
					t.Errorf("after %d answers there were %d connections, want %d", i+1, n, want)
				}
			}
			if n := s.requests.Load(); n != 3 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}

// TestDirectCloses: an answer that is not wanted to its end takes its connection along.
func TestDirectCloses(t *testing.T) {
	s := play(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun")
	p := player(t, s)
	resp, err := p.Send(t.Context(), request("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := p.transport.direct.waiting(); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
	s.left(t)
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes after closing: %v", n, err)
	}
}

// TestDirectUnread: an empty answer that is closed unread leaves its connection, unless
// more came than was asked for.
func TestDirectUnread(t *testing.T) {
	const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for answer, want := range map[string]int{empty: 1, empty + ok: 0} {
		p := player(t, play(t, answer))
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if n := p.transport.direct.waiting(); n != want {
			t.Errorf("%d connections are kept after %q, want %d", n, answer, want)
		}
	}
}

// TestDirectClosedMeanwhile: a connection that its server closed while it was idle is
// not written to: the request goes out once, over another.
func TestDirectClosedMeanwhile(t *testing.T) {
	closed := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err = http.ReadRequest(bufio.NewReader(conn)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(conn, ok)
			conn.Close()
			if first {
				close(closed)
			}
		}
	}()
	p := upstream(t, "http://"+l.Addr().String())
	for range 2 {
		resp, err := p.Send(t.Context(), Request{Method: http.MethodGet, Path: "/models", Header: http.Header{}})
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		<-closed
		waitUntil(t, func() bool { // the news of it has to arrive
			d := p.transport.direct
			c := d.pop()
			if c == nil {
				return true
			}
			defer d.keep(c)
			return !quiet(c.raw)
		})
	}
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for range 30_000 {
		if done() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("not true within 30 s")
}

// TestDirectBroken: an answer that ends early is an error, and so is none.
func TestDirectBroken(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n"} {
		p := player(t, play(t, answer))
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		conn := raw(resp).(*directBody).conn
		_ = conn.Conn.(*net.TCPConn).CloseRead()
		for range 2 { // it does not look whole afterwards, either
			if text, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%q was read to its end", text)
			}
		}
		resp.Body.Close()
	}
	for _, answer := range []string{"", "SSH-2.0-x\r\n\r\n"} {
		_, err := player(t, play(t, answer)).Send(t.Context(), request("{}"))
		failure(t, err, true)
	}
}

// TestDirectHead: a head without end and one that does not come are given up.
func TestDirectHead(t *testing.T) {
	p := player(t, play(t, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", headMost)))
	p.transport.direct.head = 30 * time.Second
	_, err := p.Send(t.Context(), request("{}"))
	if failure(t, err, true); !errors.Is(err, errHeadSize) {
		t.Errorf("got %v", err)
	}
	p = player(t, play(t, "HTTP/1.1 200 OK\r\n"))
	p.transport.direct.head = 200 * time.Millisecond
	_, err = p.Send(t.Context(), request("{}"))
	var late net.Error
	if failure(t, err, true); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("got %v", err)
	}
}

// TestDirectNews: news before the answer do not put off the time by which it has to begin.
func TestDirectNews(t *testing.T) {
	news := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		defer close(news)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 102 Processing\r\n\r\n")
			time.Sleep(time.Millisecond)
		}
	}()
	p := upstream(t, "http://"+l.Addr().String())
	p.transport.direct.head = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = p.Send(ctx, request("{}"))
	if failure(t, err, true); !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
	<-news
}

// TestDirectCancelled: the end of a context ends the reading of an answer, with its cause.
func TestDirectCancelled(t *testing.T) {
	s := play(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun")
	p := player(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	resp, err := p.Send(ctx, request("{}"))
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("why")
	if _, err = io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	go cancel(why)
	if _, err = io.ReadAll(resp.Body); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	resp.Body.Close()
	s.left(t)
	if n := p.transport.direct.waiting(); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// TestDirectCancelledAfterwards: a call's context may end at once after its answer,
// others have the connection then.
func TestDirectCancelledAfterwards(t *testing.T) {
	s := play(t, ok)
	p := player(t, s)
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := p.Send(ctx, request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		go cancel()
		read(t, resp)
		cancel()
	}
	if s.requests.Load() != 200 {
		t.Errorf("%d requests arrived", s.requests.Load())
	}
}

// TestDirectReaps: connections that are idle too long are closed, the others stay.
func TestDirectReaps(t *testing.T) {
	s := play(t, ok)
	p := player(t, s)
	var answers []*http.Response
	for range 3 {
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, resp)
	}
	for _, resp := range answers {
		read(t, resp)
	}
	d := p.transport.direct
	d.mu.Lock()
	for _, c := range d.idle[:2] {
		c.since = c.since.Add(-idleLife)
	}
	d.mu.Unlock()
	d.reap()
	s.left(t)
	s.left(t)
	if n := d.waiting(); n != 1 {
		t.Errorf("%d connections are kept, want 1", n)
	}
	p.transport.closeIdle()
	s.left(t)
	if n := d.waiting(); n != 0 {
		t.Errorf("%d connections are kept after all were closed", n)
	}
}

// TestDirectDropped: connections of calls under way are not kept when idle ones have
// been dropped, but those of later calls are.
func TestDirectDropped(t *testing.T) {
	s := play(t, ok)
	p := player(t, s)
	resp, err := p.Send(t.Context(), request("{}"))
	if err != nil {
		t.Fatal(err)
	}
	p.transport.closeIdle()
	read(t, resp)
	s.left(t)
	for range 2 {
		if resp, err = p.Send(t.Context(), request("{}")); err != nil {
			t.Fatal(err)
		}
		read(t, resp)
	}
	if n := s.conns.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// TestDirectOnlyWhere: large requests, TLS and proxies are the Transport's.
func TestDirectOnlyWhere(t *testing.T) {
	for _, url := range []string{"https://127.0.0.1:1", "http://m\u00fcller.example"} {
		if p := upstream(t, url); p.transport.direct != nil {
			t.Errorf("%s is reached directly", url)
		}
	}
	s := play(t, ok)
	p := player(t, s)
	resp, err := p.Send(t.Context(), request(strings.Repeat("x", joined+1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, direct := raw(resp).(*directBody); direct {
		t.Error("a large request was sent directly")
	}
	read(t, resp)
	resp, err = p.Send(t.Context(), request(strings.Repeat("x", joined)))
	if err != nil {
		t.Fatal(err)
	}
	if _, direct := raw(resp).(*directBody); !direct {
		t.Error("a small request was not sent directly")
	}
	read(t, resp)
}

// BenchmarkSend compares both ways.
func BenchmarkSend(b *testing.B) {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"usage":{}}`)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	for _, way := range []string{"direct", "transport"} {
		b.Run(fmt.Sprintf("way=%s", way), func(b *testing.B) {
			p := &Provider{ID: "p", Pools: []Pool{{ID: "p"}}}
			if p.BaseURL, err = url.Parse("http://" + l.Addr().String()); err != nil {
				b.Fatal(err)
			}
			set, err := NewSet([]*Provider{p})
			if err != nil {
				b.Fatal(err)
			}
			defer set.Close()
			if way == "transport" {
				p.transport.direct = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := p.Send(b.Context(), request("{}"))
				if err != nil {
					b.Fatal(err)
				}
				if _, err = io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}

// raw is an answer's body as the connection has it.
func raw(resp *http.Response) io.ReadCloser { return resp.Body.(*namelessBody).ReadCloser }
