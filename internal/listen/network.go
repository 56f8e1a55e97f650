package listen

import "net/netip"

// IPv6Prefix is the number of bits of an IPv6 address that identify a caller by default: a network
// of /64 belongs to one customer.
const IPv6Prefix = 64

// Network returns the address that counts for limits per address: an IPv4 address itself, of an
// IPv6 address the first bits, without a zone. bits out of 1..128 mean IPv6Prefix.
func Network(ip netip.Addr, bits int) netip.Addr {
	ip = ip.Unmap()
	if !ip.Is6() {
		return ip
	}
	if bits < 1 || bits > 128 {
		bits = IPv6Prefix
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return ip
	}
	return p.Addr()
}
