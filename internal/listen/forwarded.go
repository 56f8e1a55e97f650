package listen

import (
	"net/http"
	"net/netip"
	"strings"
)

// Forwarded returns the address of a caller behind trusted proxies: the last address that is not one of
// theirs, in X-Forwarded-For or, without it, in RFC 7239's Forwarded. It stops at the proxy that
// reported what is not an address, and returns that text.
func Forwarded(h http.Header, peer netip.Addr, trusted func(netip.Addr) bool) (ip netip.Addr, unreadable string) {
	name := "X-Forwarded-For"
	if len(h.Values(name)) == 0 {
		name = "Forwarded"
	}
	// From the right, because a caller can send anything to the left of what proxies append.
	list := strings.Join(h.Values(name), ",")
	for ip = peer; list != "" && trusted(ip); {
		var hop string
		list, hop = cutLast(list, ',')
		text := hop
		if name == "Forwarded" {
			text = forParameter(hop)
		}
		at, ok := nodeAddress(text)
		if !ok {
			return ip, hop
		}
		ip = at
	}
	return ip, ""
}

// cutLast cuts around the last separator outside of quotes.
func cutLast(s string, separator byte) (before, after string) {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return "", s
}

// forParameter returns the value of the parameter "for" of an element of Forwarded, "" without a single one.
func forParameter(element string) (found string) {
	for pair := ""; element != ""; {
		element, pair = cutLast(element, ';')
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(strings.TrimSpace(name), "for") {
			if found != "" {
				return ""
			}
			found = value
		}
	}
	return found
}

// nodeAddress parses an address with or without quotes, brackets, a port and a zone.
func nodeAddress(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	host, port := text, ""
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, port, ok = strings.Cut(inner, "]")
		if !ok || port != "" && port[0] != ':' {
			return netip.Addr{}, false
		}
	} else if strings.Count(text, ":") == 1 {
		host, port, _ = strings.Cut(text, ":")
	}
	if strings.ContainsAny(port, " \t\"[]") {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap().WithZone(""), err == nil
}
