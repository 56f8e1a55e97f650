package redistest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is a faulty network in front of one server: what connects to Addr
// reaches it, as the fault set last allows. Its methods are for one goroutine.
type Link struct {
	Addr string // host:port

	tb    testing.TB
	proxy *toxiproxy.Proxy
	down  bool
}

// Fault is something that happens to bytes on a Link.
type Fault struct {
	Kind   string         // a toxic's type; empty: no fault
	Up     bool           // to what goes to the server; else to its answers
	Values map[string]any // the toxic's attributes; durations in ms
}

// Down is the fault of a Link that refuses and breaks all connections.
const Down = "down"

// NewLink opens a faultless Link to a server's address; it ends with the test.
func NewLink(tb testing.TB, addr string) *Link {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{tb: tb, proxy: toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", addr)}
	if err := l.proxy.Start(); err != nil {
		tb.Fatalf("network link: %v", err)
	}
	l.Addr = l.proxy.Listen
	tb.Cleanup(l.proxy.Stop)
	return l
}

// Set replaces the link's fault, for open and new connections.
func (l *Link) Set(f Fault) {
	l.tb.Helper()
	if l.down {
		l.down = false
		if err := l.proxy.Start(); err != nil {
			l.tb.Fatalf("network link up again: %v", err)
		}
	}
	if f.Kind == Down { // before the toxics end, which lets go of what they keep back
		l.down = true
		l.proxy.Stop()
		return
	}
	l.proxy.Toxics.ResetToxics(context.Background())
	if f.Kind == "" {
		return
	}
	stream := "downstream"
	if f.Up {
		stream = "upstream"
	}
	text, err := json.Marshal(map[string]any{
		"name": "fault", "type": f.Kind, "stream": stream, "toxicity": 1, "attributes": f.Values,
	})
	if err != nil {
		l.tb.Fatal(err)
	}
	if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		l.tb.Fatalf("fault %s: %v", f.Kind, err)
	}
}
