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

// link is a faulty network in front of one server. Connections to Addr reach the server subject
// to the current fault. Its methods are not safe for concurrent use.
type link struct {
	Addr string // host:port

	tb    testing.TB
	proxy *toxiproxy.Proxy
	down  bool
}

// fault affects the bytes on a link.
type fault struct {
	Kind   string         // type of the toxic; empty: no fault
	Up     bool           // affects requests instead of replies
	Values map[string]any // attributes of the toxic; durations in ms
}

// down is the fault of a link that refuses and breaks all connections.
const down = "down"

// newLink opens a link without faults to a server's address, until the end of the test.
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
	if f.Kind == down { // before removing the toxics, which would release what they hold back
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
