package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// When the primary dies and a replica takes over, what the replica had not
// received is forgotten: at most what was answered within the replication lag.
// The stores notice and write it again: then ledger and limits are whole.
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
			l.mended(killed)
			users, over := l.over()
			n, oldest := l.forgotten(killed)
			t.Logf("%d of %d answered ends were forgotten, the oldest answered %s before the death; %d users were over their budget, by %d in all",
				n, len(l.told)+len(l.voided), oldest.Round(time.Millisecond), users, over)
			if oldest > lag+time.Second && l.judged() {
				t.Errorf("forgot what was %s old, with a lag of %s", oldest, lag)
			}
			// Answers and the stream to the replica leave in one turn of Redis's loop;
			// those of the turn that it died in may be lost.
			if inFlight := 8; lag == 0 && n > inFlight && l.judged() {
				t.Errorf("forgot %d without lag", n)
			}
			if lag > 0 && n == 0 && l.judged() {
				t.Error("the lag had no effect: the test tries nothing")
			}
			l.check()
		})
	}
}

// mended waits until every store has noticed an outage and written its tail
// again. Then nothing that the callers were told is missing.
func (l *callers) mended(since time.Time) {
	l.t.Helper()
	for i, s := range l.stores {
		until(l.t, fmt.Sprintf("store %d has written its tail again", i), func() bool {
			s.tail.mu.Lock()
			defer s.tail.mu.Unlock()
			return s.tail.done.After(since)
		})
	}
	if n, sum, _ := l.missing(); n > 0 {
		l.t.Errorf("%d settles over %d are still missing", n, sum)
	}
	if settles, voids := l.replay(); settles+voids > 0 {
		l.t.Errorf("%d settles and %d voids were still forgotten", settles, voids)
	}
}

// forgotten is how many ends of calls were news to the store when they were
// last written again, and how long before an instant the first of them had been
// answered.
func (l *callers) forgotten(death time.Time) (n int, oldest time.Duration) {
	for _, s := range l.stores {
		s.tail.mu.Lock()
		last := s.tail.last
		s.tail.mu.Unlock()
		if n += last.forgotten; last.forgotten > 0 {
			oldest = max(oldest, death.Sub(last.oldest))
		}
	}
	return n, oldest
}

// again waits until a hold of every org is answered that was asked for after an
// instant, and is not one that was under way.
func (l *callers) again(since time.Time) {
	l.t.Helper()
	for time.Since(since) < 3*time.Minute {
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
	l.t.Fatal("no recovery within 3 min")
}
