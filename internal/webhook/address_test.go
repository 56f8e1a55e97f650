package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
)

// nameServer is a DNS server that returns a name's answers one after the other, and repeats the
// last one.
type nameServer struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][][]netip.Addr
	asked   map[string]int // number of queries for IPv4 addresses
}

func newNameServer(t testing.TB) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, answers: map[string][][]netip.Addr{}, asked: map[string]int{}}
	go s.serve()
	t.Cleanup(func() { conn.Close() })
	return s
}

// set sets the answers for a name, each a list of addresses.
func (s *nameServer) set(name string, answers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = nil
	for _, text := range answers {
		var list []netip.Addr
		for _, one := range strings.Fields(text) {
			list = append(list, netip.MustParseAddr(one))
		}
		s.answers[name] = append(s.answers[name], list)
	}
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := s.reply(buf[:n]); reply != nil {
			_, _ = s.conn.WriteTo(reply, from)
		}
	}
}

const typeA, typeAAAA = 1, 28

func (s *nameServer) reply(q []byte) []byte {
	if len(q) < 17 {
		return nil
	}
	var labels []string
	end := 12
	for q[end] != 0 {
		labels = append(labels, string(q[end+1:end+1+int(q[end])]))
		end += 1 + int(q[end])
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	question := q[12 : end+5]
	var records [][]byte
	for _, ip := range s.next(strings.Join(labels, "."), kind) {
		if raw := ip.AsSlice(); (kind == typeA) == (len(raw) == 4) {
			records = append(records, raw)
		}
	}
	out := slices.Clone(q[:2])
	out = append(out, 0x85, 0x80, 0, 1, 0, byte(len(records)), 0, 0, 0, 0)
	out = append(out, question...)
	for _, raw := range records {
		out = append(out, 0xc0, 12)
		out = binary.BigEndian.AppendUint16(out, kind)
		out = append(out, 0, 1, 0, 0, 0, 0, 0, byte(len(raw)))
		out = append(out, raw...)
	}
	return out
}

// next returns the answer to a query. IPv6 queries do not advance the sequence.
func (s *nameServer) next(name string, kind uint16) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.answers[name]
	if len(list) == 0 || (kind != typeA && kind != typeAAAA) {
		return nil
	}
	turn := min(s.asked[name], len(list)-1)
	if kind == typeA {
		s.asked[name]++
	}
	return list[turn]
}

func (s *nameServer) questions(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// watchDials makes d connect to `to` whatever the address, and returns the addresses that it
// would have connected to.
func watchDials(d *dialer, to string) func() []string {
	var mu sync.Mutex
	var dialled []string
	d.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		dialled = append(dialled, address)
		mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(dialled)
	}
}

// private are addresses that must never be dialed, at least one of each kind.
var private = []string{
	"127.0.0.1", "127.255.255.254", "::1", // loopback
	"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1", "fec0::1", // private
	"169.254.0.1", "fe80::1", // link-local
	"169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "169.254.170.2", // metadata
	"0.0.0.0", "0.1.2.3", "::", // this host
	"100.64.0.1", "100.127.255.255", // carrier-grade NAT
	"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1", // multicast
	"255.255.255.255", "240.0.0.1", // broadcast, reserved
	"192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "2001:db8::1", "3fff::1", // docs, benchmarks
	"::ffff:10.0.0.1", "::ffff:8.8.8.8", "::10.0.0.1", // mapped and compatible
	"64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", // NAT64
	"2002:a00:1::1", "2001:0:a00:1::1", "2001:20::1", "100::1", "5f00::1", // 6to4, Teredo, ORCHID, discard, segment routing
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	for _, text := range private {
		if public(netip.MustParseAddr(text)) {
			t.Errorf("%s passes for public", text)
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"} {
		if !public(netip.MustParseAddr(text)) {
			t.Errorf("%s does not pass for public", text)
		}
	}
	if public(netip.MustParseAddr("2606:4700::1111%eth0")) || public(netip.Addr{}) {
		t.Error("an address with a zone, or none, passes")
	}
}

// TestPrivateTargetsAreNeverDialled: whatever a name resolves to, no connection to a private
// address is attempted.
func TestPrivateTargetsAreNeverDialled(t *testing.T) {
	names := newNameServer(t)
	d := newDialer(nil, names.resolver())
	dialled := watchDials(d, "127.0.0.1:1")
	for _, text := range private {
		names.set("hook.example", text)
		var refused *RefusedError
		if _, err := d.dial(t.Context(), "tcp", net.JoinHostPort(text, "443")); !errors.As(err, &refused) {
			t.Errorf("%s itself: %v", text, err)
		}
		if public(netip.MustParseAddr(text).Unmap()) {
			continue // the resolver hides the mapped form of an IPv4 address
		}
		if _, err := d.dial(t.Context(), "tcp", "hook.example:443"); !errors.As(err, &refused) {
			t.Errorf("a name at %s: %v", text, err)
		}
	}
	if got := dialled(); len(got) > 0 {
		t.Errorf("dialled %v", got)
	}
	names.set("hook.example", "10.0.0.1 93.184.216.34 127.0.0.1")
	_, _ = d.dial(t.Context(), "tcp", "hook.example:443")
	if got := dialled(); !slices.Equal(got, []string{"93.184.216.34:443"}) {
		t.Errorf("of a name with private and public addresses dialled %v", got)
	}
}

// Even if a private address gets past the checks, the kernel is not asked to connect.
func TestControlRefusesPrivateAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var refused *RefusedError
	d := newDialer(nil, net.DefaultResolver)
	if _, err := d.connect(t.Context(), "tcp", l.Addr().String()); !errors.As(err, &refused) {
		t.Errorf("connect: %v", err)
	}
	d = newDialer([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, net.DefaultResolver)
	conn, err := d.dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("an allowed network: %v", err)
	}
	conn.Close()
	if _, err := d.dial(t.Context(), "tcp", "10.0.0.1:80"); !errors.As(err, &refused) {
		t.Errorf("another network than the allowed one: %v", err)
	}
}

// TestRebindingIsNoUse: a name is resolved once per connection, and the checked address is
// dialed. If the next resolution is private, nothing is dialed.
func TestRebindingIsNoUse(t *testing.T) {
	names := newNameServer(t)
	d := newDialer(nil, names.resolver())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled := watchDials(d, l.Addr().String())
	names.set("rebind.example", "93.184.216.34", "127.0.0.1")
	conn, err := d.dial(t.Context(), "tcp", "rebind.example:443")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	var refused *RefusedError
	if _, err := d.dial(t.Context(), "tcp", "rebind.example:443"); !errors.As(err, &refused) {
		t.Errorf("the second connection: %v", err)
	}
	if got := dialled(); !slices.Equal(got, []string{"93.184.216.34:443"}) || names.questions("rebind.example") != 2 {
		t.Errorf("dialled %v after %d look-ups", got, names.questions("rebind.example"))
	}
}
