package faults

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/llmguard/llmguard/internal/redistest"
)

// link is a faulty network in front of one server: what connects to Addr
// reaches it, as the fault set last allows. Its methods are for one goroutine.
type link struct {
	Addr string // host:port

	tb    testing.TB
	proxy *toxiproxy.Proxy
	down  bool
}

// fault is something that happens to bytes on a link.
type fault struct {
	Kind   string         // a toxic's type; empty: no fault
	Up     bool           // to what goes to the server; else to its answers
	Values map[string]any // the toxic's attributes; durations in ms
}

// down is the fault of a link that refuses and breaks all connections.
const down = "down"

// newLink opens a faultless link to a server's address; it ends with the test.
func newLink(tb testing.TB, addr string) *link {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{tb: tb}
	err := errors.New("no port")
	for tries := 0; err != nil && tries < 20; tries++ {
		l.Addr = net.JoinHostPort("127.0.0.1", redistest.FreePort(tb))
		l.proxy = toxiproxy.NewProxy(server, "redis", l.Addr, addr)
		err = l.proxy.Start()
	}
	if err != nil {
		tb.Fatalf("link: %v", err)
	}
	tb.Cleanup(l.proxy.Stop)
	return l
}

// Set replaces the link's fault, for open and new connections.
func (l *link) Set(f fault) {
	l.tb.Helper()
	if l.down {
		l.down = false
		if err := l.proxy.Start(); err != nil {
			l.tb.Fatalf("link up again: %v", err)
		}
	}
	if f.Kind == down { // before the toxics end, which lets go of what they keep back
		l.down = true
		l.proxy.Stop()
		return
	}
	l.proxy.Toxics.ResetToxics(context.WithoutCancel(l.tb.Context()))
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
