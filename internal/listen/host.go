package listen

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// privateSuffixes are suffixes of names that public DNS never resolves: reserved for private
// use by RFC 2606, 6761, 6762, 8375 and ICANN, or by Kubernetes.
var privateSuffixes = []string{".localhost", ".local", ".internal", ".home.arpa", ".svc", ".test", ".invalid"}

// PrivateHost reports whether a host, with or without a port, is an IP address or a name that
// cannot be registered in public DNS: localhost, a name without a dot, or a name in a private
// zone. An attacker's web page cannot have such a name, so it cannot make a browser send
// requests to it as its own origin (DNS rebinding).
func PrivateHost(host string) bool {
	name := HostName(host)
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	return slices.ContainsFunc(privateSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// HostName returns a host without its port, in lower case.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
