package faults

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

// When the primary dies and a replica takes over, what the replica had not received is lost.
// The stores notice and write it again, so that ledger and limits are complete.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		lags bool // the replica receives nothing before the primary dies
	}{{"without lag", false}, {"with lag", true}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var network *link
			group := redistest.StartSentinel(t, 1, func(addr string) string {
				network = newLink(t, addr)
				return network.Addr
			})
			if got := group.Follows(group.Nodes[1]); got != network.Addr {
				t.Fatalf("the replica follows %s, want %s", got, network.Addr)
			}
			l := newCallers(t, 2*time.Second, 2, group.Client(), group.Client())
			l.forgets = true
			l.start(8)
			l.more(randtest.Rounds(100, 10_000))
			if test.lags {
				network.Set(fault{Kind: "timeout", Values: map[string]any{"timeout": 0}})
				l.more(50)
			}
			old := group.Primary()
			killed := time.Now()
			old.Kill()
			l.again()
			l.more(50)
			old.Restart() // comes back as a replica, and loses what only it knew
			l.more(50)
			l.refusals()
			l.stop()
			l.log()
			forgotten := l.repaired(killed)
			users, over := l.over()
			t.Logf("%d of %d answered ends were forgotten; %d users were over their budget, by %d in all",
				forgotten, len(l.receipts)+len(l.voided), users, over)
			if test.lags && forgotten == 0 {
				t.Error("the new primary forgot nothing, want what the old one alone knew")
			}
			l.check()
		})
	}
}
