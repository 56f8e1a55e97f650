package listen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// echo serves a listener with a handler that responds with what it has read, and returns its
// address.
func echo(t *testing.T, l net.Listener) string {
	t.Helper()
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, "%s %s %q", r.Method, r.URL.Path, body)
			if r.TLS != nil {
				fmt.Fprint(w, " encrypted")
			}
		}),
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

func local(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask sends a text in pieces of a given size, and returns the response until the connection is
// closed.
func ask(t *testing.T, c net.Conn, text string, piece int) string {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		for len(text) > 0 {
			n := min(piece, len(text))
			if _, err := io.WriteString(c, text[:n]); err != nil {
				return
			}
			text = text[n:]
		}
	}()
	var out strings.Builder
	_, _ = io.Copy(&out, c) // a rejected connection may be reset
	return out.String()
}

const (
	head = "POST /first HTTP/1.1\r\nHost: x\r\n"
	// hidden is a request that must not be smuggled inside a body.
	hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)

// ambiguous are requests that servers interpret differently.
var ambiguous = map[string]string{
	"length and chunks":        head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"chunks and length":        head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden,
	"two equal lengths":        head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab" + hidden,
	"two lengths":              head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nab" + hidden,
	"a list of lengths":        head + "Content-Length: 2, 2\r\n\r\nab" + hidden,
	"a signed length":          head + "Content-Length: +2\r\n\r\nab" + hidden,
	"a long field of a length": head + "Content-Length: " + strings.Repeat(" ", 80) + "2\r\n\r\nab" + hidden,
	"a folded line":            head + "X-A: b\r\n Content-Length: 2\r\n\r\n" + hidden,
	"a folded line, by a tab":  head + "X-A: b\r\n\tc\r\n\r\n" + hidden,
	"a folded length":          head + "Content-Length:\r\n 2\r\n\r\nab" + hidden,
	"a folded encoding":        head + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden,
	"a folded trailer":         head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: b\r\n c\r\n\r\n" + hidden,
	"chunks in HTTP/1.0":       "POST /first HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"an unknown encoding":      head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
	"two encodings":            head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
	"a space before the colon": head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
	"bare line feeds":          "POST /first HTTP/1.1\nHost: x\n\n" + hidden,
	"a bare line feed":         head + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
	"a bare carriage return":   head + "X-A: b\rTransfer-Encoding: chunked\r\n\r\n" + hidden,
	"a chunk with a sign":      head + "Transfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n0\r\n\r\n" + hidden,
	"a chunk in another base":  head + "Transfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n" + hidden,
	"a chunk, by a line feed":  head + "Transfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n" + hidden,
	"an extension, likewise":   head + "Transfer-Encoding: chunked\r\n\r\n2;a\nab\r\n0\r\n\r\n" + hidden,
	"a chunk that is longer":   head + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n" + hidden,
	"a trailer, by line feeds": head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: b\n\r\n\r\n" + hidden,
}

// TestAmbiguousRequestsAreRefused: a request that a proxy in front may interpret differently
// gets a 400 and ends the connection, in whatever pieces it arrives.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	addr := echo(t, Strict(local(t)))
	for name, text := range ambiguous {
		for _, piece := range []int{len(text), 1} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if got := ask(t, c, text, piece); !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1") != 1 {
				t.Errorf("%s, in pieces of %d: got %q, want one 400", name, piece, got)
			}
		}
	}
}

// TestRefusalKeepsItsTurn: requests before an ambiguous one on the same connection are served.
func TestRefusalKeepsItsTurn(t *testing.T) {
	addr := echo(t, Strict(local(t)))
	good := head + "Content-Length: 2\r\n\r\nab"
	for name, text := range ambiguous {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		got := ask(t, c, good+text, len(good+text))
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, `POST /first "ab"`) || strings.Contains(got, "hidden") {
			t.Errorf("%s: got %q, want 200 for the first and nothing of the hidden one", name, got)
		}
	}
}

// TestPlainRequestsPass: unambiguous requests are served one after another, in whatever pieces
// they arrive.
func TestPlainRequestsPass(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	requests := []struct{ text, want string }{
		{"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", `GET /a ""`},
		{"GET /b HTTP/1.1\r\nHost:x\r\nContent-Length: 0\r\nX-Empty:\r\n\r\n", `GET /b ""`},
		{"POST /c HTTP/1.1\r\nHost: x\r\ncontent-length:5\r\n\r\nab\r\n\n", `POST /c "ab\r\n\n"`},
		{"\r\nPOST /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;name=\"v\"\r\n0123456789\r\n0\r\n\r\n", `POST /d "abc0123456789"`},
		{"POST /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\n\r\n\r\n0\r\nX-Sum: 1\r\n\r\n", `POST /e "\r\n"`},
		{"GET /f?" + long + " HTTP/1.1\r\nHost: x\r\nX-Long: " + long + "\r\n\r\n", `GET /f ""`},
		{"POST /g HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + long, `POST /g "` + long + `"`},
		{"GET /h HTTP/1.0\r\n\r\n", `GET /h ""`},
	}
	var all, want string
	for _, r := range requests {
		all, want = all+r.text, want+r.want
	}
	addr := echo(t, Strict(local(t)))
	for _, piece := range []int{1, 2, 3, 7, 4096, len(all)} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(strings.NewReader(ask(t, c, all, piece)))
		var got string
		for range requests {
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("in pieces of %d: %v after %.100q", piece, err, got)
			}
			body, _ := io.ReadAll(resp.Body)
			got += string(body)
		}
		if got != want {
			t.Errorf("in pieces of %d: got %.300q, want %.300q", piece, got, want)
		}
	}
}

// FuzzFraming: net/http never sees a second request where the framing sees one, and it reads as
// many requests as the framing let through.
func FuzzFraming(f *testing.F) {
	for _, text := range ambiguous {
		f.Add([]byte(text), 5)
	}
	f.Add([]byte(head+"Content-Length: 2\r\n\r\nab"+hidden), 3)
	f.Add([]byte(head+"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"+hidden), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		c := &strict{Conn: pieces{text: &text, size: max(1, cut)}}
		var passed []byte
		r := bufio.NewReader(io.TeeReader(c, tee{&passed}))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err = io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			at := len(passed) - r.Buffered() // where net/http sees the end of a request
			var twin framing
			if n, ok := twin.scan(passed[:at]); !ok || n != at || twin.part != beforeMessage {
				t.Fatalf("net/http ends a request after %q, where the framing is at part %d", passed[:at], twin.part)
			}
		}
	})
}

type tee struct{ out *[]byte }

func (t tee) Write(p []byte) (int, error) { *t.out = append(*t.out, p...); return len(p), nil }

// pieces is a connection that returns a text a few bytes at a time.
type pieces struct {
	net.Conn
	text *[]byte
	size int
}

func (p pieces) Read(b []byte) (int, error) {
	if len(*p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p.text)[:min(p.size, len(*p.text))])
	*p.text = (*p.text)[n:]
	return n, nil
}

// TestUpgraded: after a change of protocol, bytes that are no HTTP arrive as they are.
func TestUpgraded(t *testing.T) {
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.(interface{ Upgraded() }).Upgraded()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_, _ = io.Copy(c, c)
		}),
	}
	l := Strict(local(t))
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v; want 101", resp, err)
	}
	resp.Body.Close()
	const sent = "a\nContent-Length: x\n\n\n\x00\n"
	_, _ = io.WriteString(c, sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(in, got); err != nil || string(got) != sent {
		t.Errorf("got %q, %v; want %q", got, err, sent)
	}
}
