package faults

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
)

// On a cluster of three primaries with replicas, an org's slot moves to another node and then
// that node dies, all under load.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 1)
	l := newCallers(t, 2*time.Second, 4, group.Client(), group.Client())
	l.forgets = true
	l.start(8)
	l.more(randtest.Rounds(100, 10_000))

	const slot = "lg:{org0}:ledger" // in the first org's slot
	from := group.Owner(slot)
	to := group.Nodes[0]
	if to == from {
		to = group.Nodes[1]
	}
	keys := group.MoveSlot(slot, to, 40*time.Millisecond)
	t.Logf("moved a slot with %d keys", keys)
	l.again()
	l.within()
	l.more(50)

	to.Kill()
	until(t, "the replica to get the slots", func() bool { return group.Owner(slot) != to })
	l.again()
	to.Restart()
	group.Healthy()
	l.refusals()
	l.stop()
	l.log()
	n, sum := l.missing()
	users, over := l.over()
	t.Logf("lost %d of %d answered settles, over %d; %d users were over their budget, by %d in all",
		n, len(l.receipts), sum, users, over)
	l.replay()
	l.check()
}
