package listen

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// open listens with limits and serves connections until the other side closes them. The
// functions are safe for concurrent use.
func open(t *testing.T, limits Limits) (dial func() net.Conn, refused func() []string) {
	t.Helper()
	var mu sync.Mutex
	var why []string
	limits.Refused = func(w string) {
		mu.Lock()
		defer mu.Unlock()
		why = append(why, w)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(plain, limits)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, "hello\n")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
				_ = c.Close() // counted only once
			}()
		}
	}()
	dial = func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(why)
	}
	return dial, refused
}

// served reports whether a connection is accepted, and not closed immediately.
func served(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

// TestLimit: connections beyond a limit are closed immediately, and a freed slot is reused.
func TestLimit(t *testing.T) {
	local := func(ip netip.Addr) bool { return ip.IsLoopback() }
	for _, test := range []struct {
		name   string
		limits Limits
		why    string
	}{
		{"in all", Limits{Total: 3, PerAddress: 9}, "total"},
		{"of an address", Limits{Total: 9, PerAddress: 3}, "address"},
		{"of a load balancer", Limits{Total: 3, PerAddress: 1, Exempt: local}, "total"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, refused := open(t, test.limits)
			var held []net.Conn
			for i := range 3 {
				c := dial()
				if !served(c) {
					t.Fatalf("connection %d is closed, want it served", i)
				}
				held = append(held, c)
			}
			if served(dial()) {
				t.Error("a fourth connection is served, want it closed")
			}
			if got := refused(); !slices.Equal(got, []string{test.why}) {
				t.Errorf("told %q, want %q", got, test.why)
			}
			_ = held[0].Close()
			for end := time.Now().Add(time.Minute); !served(dial()); {
				if time.Now().After(end) {
					t.Fatal("a place that became free is not given again")
				}
			}
		})
	}
}

// TestAddress: IPv6 addresses of one /64 count together.
func TestAddress(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7:1":                  "192.0.2.7",
		"[::ffff:192.0.2.7]:1":         "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:1":     "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::9%eth]:1": "2001:db8:1:2::",
	} {
		l := &limited{limits: Limits{}.withDefaults()}
		if got, _ := l.address(from{addr: given}); got.String() != want {
			t.Errorf("%s: got %s, want %s", given, got, want)
		}
	}
}

// TestNetwork: the number of bits of an IPv6 address that count can be set.
func TestNetwork(t *testing.T) {
	for _, tc := range []struct {
		ip   string
		bits int
		want string
	}{
		{"192.0.2.7", 8, "192.0.2.7"},
		{"2001:db8:1:2:3:4:5:6", 0, "2001:db8:1:2::"},
		{"2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::"},
		{"2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"},
		{"fe80::1%eth0", 128, "fe80::1"},
	} {
		if got := Network(netip.MustParseAddr(tc.ip), tc.bits); got.String() != tc.want {
			t.Errorf("%s with %d bits: got %s, want %s", tc.ip, tc.bits, got, tc.want)
		}
	}
}

// TestExemptAddressIsAlone: an exempt IPv6 address is recognized by its whole address, and its
// connections are not those of its neighbors in the same network.
func TestExemptAddressIsAlone(t *testing.T) {
	proxy := netip.MustParseAddr("2001:db8::5")
	l := &limited{
		limits: Limits{Total: 9, PerAddress: 1, Exempt: func(ip netip.Addr) bool { return ip == proxy }}.withDefaults(),
		from:   map[netip.Addr]int{},
	}
	for i, tc := range []struct{ peer, why string }{
		{"[2001:db8::5]:1", ""}, {"[2001:db8::5]:2", ""}, {"[2001:db8::6]:1", ""}, {"[2001:db8::7]:1", "address"},
	} {
		if why := l.take(l.address(from{addr: tc.peer})); why != tc.why {
			t.Errorf("connection %d from %s: got %q, want %q", i, tc.peer, why, tc.why)
		}
	}
}

// from is a connection with a given peer address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr { return named(f.addr) }

type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

// TestBodies: an announced body that never arrives ends the connection, whether the handler
// reads it or responds before.
func TestBodies(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"refused unread": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"read": func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusRequestTimeout)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(Bodies(handler, 50*time.Millisecond))
			defer s.Close()
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nfew")
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 40") {
				t.Errorf("got %q, %v; want a refusal and the connection closed", answer, err)
			}
		})
	}
}

// TestBodiesLeaveTheRest: after a complete body, a handler may take any time.
func TestBodiesLeaveTheRest(t *testing.T) {
	const wait = 50 * time.Millisecond
	s := httptest.NewServer(Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusInternalServerError)
		case <-time.After(4 * wait):
		}
	}), wait))
	defer s.Close()
	resp, err := (&http.Client{Timeout: redistest.Bound}).Post(s.URL, "text/plain", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got status %d, want 200", resp.StatusCode)
	}
}
