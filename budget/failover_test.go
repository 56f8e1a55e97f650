package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// When the primary dies and a replica takes over, what the replica had not
// received is forgotten: at most what was answered within the replication lag.
// Settling it again, as it was told, makes ledger and limits whole.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(fmt.Sprintf("lag %s", lag), func(t *testing.T) {
			t.Parallel()
			group := redistest.StartSentinel(t, 1)
			l := newCallers(t, 2*time.Second, 2, group.Client(), group.Client())
			l.forgets = true
			l.start(8)
			time.Sleep(forLong(time.Second, 10*time.Second))
			if lag > 0 {
				group.Links[0].Set(redistest.Fault{Kind: "latency", Values: map[string]any{"latency": lag.Milliseconds()}})
				time.Sleep(forLong(time.Second, 5*time.Second))
				if !group.LinksInUse() {
					t.Fatal("the replica does not follow over the slow link")
				}
			}
			old := group.Primary()
			if lag > 0 {
				group.Links[0].Set(redistest.Fault{Kind: redistest.Down}) // what is under way is lost, as when a host dies
			}
			old.Kill()
			killed := time.Now()
			l.again(killed)
			t.Logf("holds were answered again after %s", time.Since(killed).Round(10*time.Millisecond))
			time.Sleep(500 * time.Millisecond)
			old.Restart() // comes back as a replica, and forgets what it alone knew
			time.Sleep(500 * time.Millisecond)
			l.stop()
			l.tell()
			n, sum, first := l.missing()
			users, over := l.over()
			t.Logf("lost %d of %d answered settles, over %d; %d users were over their budget, by %d in all", n, len(l.told), sum, users, over)
			if n > 0 {
				age := killed.Sub(first)
				t.Logf("the oldest of them was answered %s before the death", age.Round(time.Millisecond))
				if age > lag+time.Second {
					t.Errorf("lost what was %s old, with a lag of %s", age, lag)
				}
			}
			// Answers and the stream to the replica leave in one turn of Redis's loop;
			// those of the turn that it died in may be lost.
			if inFlight := 8; lag == 0 && n > inFlight {
				t.Errorf("lost %d settles without lag", n)
			}
			if lag > 0 && n == 0 {
				t.Error("the lag had no effect: the test tries nothing")
			}
			settles, voids := l.replay()
			t.Logf("replayed: %d settles and %d voids were news to the store", settles, voids)
			l.check()
		})
	}
}

// again waits until a hold of every org is answered that was asked for after an
// instant, and is not one that was under way.
func (l *callers) again(since time.Time) {
	l.t.Helper()
	for time.Since(since) < 30*time.Second {
		l.mu.Lock()
		all := true
		for _, org := range l.orgs {
			all = all && l.okAt[org].After(since.Add(50*time.Millisecond))
		}
		l.mu.Unlock()
		if all {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.t.Fatal("no recovery within 30 s")
}
