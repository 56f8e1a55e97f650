package app

import (
	"net/netip"
	"slices"

	"github.com/llmguard/llmguard/internal/listen"
)

// adminConnections bounds the operators' listener.
const adminConnections = 256

// connections are the bounds of a listener.
func (a *App) connections(listener string, total, perAddress int) listen.Limits {
	return listen.Limits{
		Total: total, PerAddress: perAddress,
		Exempt: func(ip netip.Addr) bool {
			return slices.ContainsFunc(a.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
		},
		Refused: func(why string) { a.refused.Refused(listener, why) },
	}
}
