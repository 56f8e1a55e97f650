package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// forbidden are the IPv4 ranges that are private or otherwise not publicly routable, from
// IANA's special-purpose registry, and Azure's metadata address, which is public. Other clouds'
// metadata addresses are within 169.254.0.0/16, 100.64.0.0/10 and 192.0.0.0/24.
var forbidden = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
)

// global is the routed part of IPv6, and forbidden6 the special ranges within it: Teredo and
// other tunnels, which embed IPv4 addresses, and documentation ranges. Loopback, mapped, NAT64,
// private (fc00::/7), link-local and multicast addresses are outside of global.
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
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// public reports whether an address is on the public internet.
func public(ip netip.Addr) bool {
	switch {
	case !ip.IsValid() || ip.Zone() != "":
		return false
	case ip.Is4():
		return !within(ip, forbidden)
	}
	return global.Contains(ip) && !within(ip, forbidden6)
}

// RefusedError is the error for a target without an allowed address.
type RefusedError struct {
	Host    string
	Address netip.Addr // one of the refused addresses
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("webhook: %s resolves to %s, which is not a public address; add it to webhooks.allow_networks "+
		"to allow it", e.Host, e.Address)
}

// dialer connects only to checked addresses. It resolves a name once and dials the address it
// has checked, so a second DNS answer cannot redirect it.
type dialer struct {
	allow    []netip.Prefix
	resolver *net.Resolver
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	dialTime = 5 * time.Second // per address
	dialMost = 4               // addresses tried per name
)

func newDialer(allow []netip.Prefix, resolver *net.Resolver) *dialer {
	d := &dialer{allow: allow, resolver: resolver}
	d.connect = (&net.Dialer{Timeout: dialTime, Control: d.control}).DialContext
	return d
}

// allowed reports whether an address may be dialed: it is public, or within one of the
// networks.
func allowed(ip netip.Addr, networks []netip.Prefix) bool {
	return public(ip) || (ip.Zone() == "" && within(ip, networks))
}

// control checks again the address that is passed to the kernel.
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

// lookup resolves a host.
func (d *dialer) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ips, err := d.resolver.LookupNetIP(ctx, "ip", host)
	for i := range ips {
		ips[i] = ips[i].Unmap() // resolvers may return IPv4 addresses in mapped form
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
	switch {
	case len(failed) > 0:
		return nil, errors.Join(failed...)
	case refused != nil:
		return nil, refused
	}
	return nil, fmt.Errorf("webhook: %s has no address", host)
}
