package budget

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

var networkFaults = []struct {
	name  string
	fault redistest.Fault
}{
	{"slow", redistest.Fault{Kind: "latency", Values: map[string]any{"latency": 120}}},
	{"jitter", redistest.Fault{Kind: "latency", Values: map[string]any{"latency": 200, "jitter": 200}}},
	{"slower than the deadline", redistest.Fault{Kind: "latency", Values: map[string]any{"latency": 600}}},
	{"black hole for answers", redistest.Fault{Kind: "timeout", Values: map[string]any{"timeout": 0}}},
	{"black hole for requests", redistest.Fault{Kind: "timeout", Up: true, Values: map[string]any{"timeout": 0}}},
	{"reset", redistest.Fault{Kind: "reset_peer", Values: map[string]any{"timeout": 0}}},
	{"answers cut after 2 bytes", redistest.Fault{Kind: "limit_data", Values: map[string]any{"bytes": 2}}},
	{"down", redistest.Fault{Kind: redistest.Down}},
}

// Whatever the network does to commands and answers, in the end the ledger, the
// limits and the callers agree, nobody was over a limit meanwhile, and no call
// waited for the store much longer than it would.
func TestNetworkFaults(t *testing.T) {
	for _, n := range networkFaults {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr)
			l := newCallers(t, time.Second, 1, redisconn.Open(redisconn.Single, redisconn.Options(link.Addr)))
			l.start(24)
			for end := time.Now().Add(forLong(time.Second, time.Minute)); time.Now().Before(end); {
				time.Sleep(300 * time.Millisecond)
				link.Set(n.fault)
				time.Sleep(500 * time.Millisecond)
				if n.name != "slow" && n.name != "jitter" {
					l.deadline()
				}
				link.Set(redistest.Fault{})
			}
			healed := time.Now()
			l.again(healed)
			recovered := time.Since(healed)
			l.stop()
			l.within()
			l.tell()
			t.Logf("holds were answered again within %s", recovered.Round(10*time.Millisecond))
			if l.unknown == 0 && n.name != "slow" && n.name != "jitter" {
				t.Error("no call noticed the fault")
			}
			if l.slowest > 2*time.Second && l.judged() { // 250 ms and a machine that is busy
				t.Errorf("a call waited %s for a decision", l.slowest)
			}
			l.check()
		})
	}
}

// deadline checks that a call into a dead network ends, and says why.
func (l *callers) deadline() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 250*time.Millisecond)
	defer cancel()
	c, _ := l.newCall(l.orgs[0])
	done := make(chan error, 1)
	go func() {
		_, err := l.stores[0].Hold(ctx, l.limits(), c, cost(1), cost(1))
		done <- err
	}()
	l.mu.Lock()
	l.unknown++
	l.mu.Unlock()
	select {
	case err := <-done:
		if !errors.Is(err, ErrUnavailable) {
			l.t.Errorf("hold on a dead network: %v", err)
		}
	case <-time.After(time.Minute):
		l.t.Error("hold on a dead network does not end")
	}
	l.work.Go(func() {
		l.insist("give back", func(ctx context.Context) error { return l.stores[0].VoidLost(ctx, c) })
	})
}
