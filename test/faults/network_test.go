package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

var networkFaults = []struct {
	name   string
	answer bool // holds get replies, but late
	fault  fault
}{
	{"slow", true, fault{Kind: "latency", Values: map[string]any{"latency": 120}}},
	{"jitter", true, fault{Kind: "latency", Values: map[string]any{"latency": 200, "jitter": 200}}},
	{"slower than the deadline", false, fault{Kind: "latency", Values: map[string]any{"latency": 600}}},
	{"black hole for answers", false, fault{Kind: "timeout", Values: map[string]any{"timeout": 0}}},
	{"black hole for requests", false, fault{Kind: "timeout", Up: true, Values: map[string]any{"timeout": 0}}},
	{"reset", false, fault{Kind: "reset_peer", Values: map[string]any{"timeout": 0}}},
	{"answers cut after 2 bytes", false, fault{Kind: "limit_data", Values: map[string]any{"bytes": 2}}},
	{"down", false, fault{Kind: down}},
}

// Whatever the network does to commands and replies, in the end the ledger, the limits and the
// callers agree, no user has exceeded a limit, and every call into a dead network ended at its
// deadline with ErrUnavailable.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	for _, n := range networkFaults {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			network := newLink(t, server.Addr)
			l := newCallers(t, time.Second, 1, driver.Open(driver.Single, driver.Options(network.Addr)))
			l.start(24)
			for range randtest.Rounds(1, 60) {
				l.more(50)
				network.Set(n.fault)
				if n.answer {
					l.more(10)
				} else {
					l.deadCalls(3)
				}
				network.Set(fault{})
				l.again()
			}
			l.refusals()
			l.stop()
			l.within()
			l.log()
			l.check()
		})
	}
}

// deadCalls checks that holds on an unreachable store end with the right error.
func (l *callers) deadCalls(n int) {
	l.t.Helper()
	for range n {
		l.deadCall()
	}
}

func (l *callers) deadCall() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), deadline)
	defer cancel()
	c, _ := l.newCall(l.orgs[0])
	done := make(chan error, 1)
	go func() {
		_, err := l.stores[0].Hold(ctx, budget.Terms{Limits: l.limits(), Call: c, Max: cost(1), Expected: cost(1)})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, budget.ErrUnavailable) {
			l.t.Errorf("hold in a dead store: got %v, want ErrUnavailable", err)
		}
	case <-time.After(time.Minute):
		l.t.Errorf("a hold in a dead store has no end a minute after its deadline of %s", deadline)
	}
	l.work.Go(func() {
		l.insist("give back", func(ctx context.Context) error { return l.stores[0].VoidLost(ctx, c) })
	})
}
