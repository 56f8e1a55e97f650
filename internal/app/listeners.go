package app

import (
	"net/netip"
	"slices"

	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/spool"
)

// adminConnections bounds the operators' listener.
const adminConnections = 256

// connectionMemory is about what a connection with a slow stream takes of the process's
// memory, in bytes, besides garbage. Connections get half of the memory.
const connectionMemory = 48 << 10

// connections are the bounds of a listener.
func (a *App) connections(listener string, total, perAddress int) listen.Limits {
	if total == 0 {
		total = min(listen.DefaultTotal(), int(max(spool.Limit()/2/connectionMemory, 1)))
	}
	return listen.Limits{
		Total: total, PerAddress: perAddress,
		Exempt: func(ip netip.Addr) bool {
			return slices.ContainsFunc(a.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
		},
		Refused: func(why string) { a.refused.Refused(listener, why) },
	}
}
