package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// forbidden are the addresses of version 4 that lead into networks of our own,
// to nobody, or to everybody: the special-purpose registry of IANA, and the
// metadata address of Azure, which is a public one. Other clouds' metadata is
// within 169.254.0.0/16, 100.64.0.0/10 and 192.0.0.0/24.
var forbidden = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
)

// global is what of version 6 is routed, forbidden6 what of that is special:
// Teredo and other tunnels, which carry addresses of version 4, and examples.
// Outside of it are loopback, mapped addresses, NAT64, private (fc00::/7),
// link-local and multicast ones.
var (
	global     = netip.MustParsePrefix("2000::/3")
	forbidden6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

func within(ip netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// public reports whether an address leads to the internet and nowhere else.
func public(ip netip.Addr) bool {
	switch {
	case !ip.IsValid() || ip.Zone() != "":
		return false
	case ip.Is4():
		return !within(ip, forbidden)
	}
	return global.Contains(ip) && !within(ip, forbidden6)
}

// RefusedError says that a target is at no address that may be dialled.
type RefusedError struct {
	Host    string
	Address netip.Addr // one of those refused
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("webhook: %s is at %s, which is no public address; webhooks.allow_networks can allow it", e.Host,
		e.Address)
}

// dialer opens connections to checked addresses only. A name is looked up once
// and the checked address itself is dialled, so another answer to a second
// question changes nothing.
type dialer struct {
	allow    []netip.Prefix
	resolver *net.Resolver
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	dialTime = 5 * time.Second // per address
	dialMost = 4               // addresses of a name that are tried
)

func newDialer(allow []netip.Prefix, resolver *net.Resolver) *dialer {
	d := &dialer{allow: allow, resolver: resolver}
	d.connect = (&net.Dialer{Timeout: dialTime, Control: d.control}).DialContext
	return d
}

// allowed reports whether an address may be dialled: it is public, or in one of
// the networks.
func allowed(ip netip.Addr, networks []netip.Prefix) bool {
	return public(ip) || (ip.Zone() == "" && within(ip, networks))
}

// control looks once more at what the kernel is about to be asked for.
func (d *dialer) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("webhook: dial %q: %w", address, err)
	}
	if !allowed(ap.Addr(), d.allow) {
		return &RefusedError{Host: address, Address: ap.Addr()}
	}
	return nil
}

// lookup returns the addresses of a host.
func (d *dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ips, err := d.resolver.LookupNetIP(ctx, "ip", host)
	for i := range ips {
		ips[i] = ips[i].Unmap() // resolvers may write version 4 so
	}
	return ips, err
}

// dial implements http.Transport.DialContext.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := d.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	var refused error
	var failed []error
	for _, ip := range ips {
		if !allowed(ip, d.allow) {
			refused = &RefusedError{Host: host, Address: ip}
			continue
		}
		if len(failed) == dialMost {
			break
		}
		conn, err := d.connect(ctx, network, net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	if len(failed) == 0 && refused == nil {
		return nil, fmt.Errorf("webhook: %s has no address", host)
	}
	if len(failed) == 0 {
		return nil, refused
	}
	return nil, errors.Join(failed...)
}
