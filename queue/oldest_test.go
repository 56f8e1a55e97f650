package queue

import (
	"fmt"
	"testing"
	"time"
)

// TestOldest checks that Oldest finds the longest-waiting job among many flows and lanes,
// and only among those that wait.
func TestOldest(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	if put, err := e.Oldest(t.Context(), "p"); err != nil || put != [4]time.Time{} {
		t.Fatalf("an empty pool: %v, %v", put, err)
	}
	var first *Job
	for i := range 40 {
		j := e.job("p", fmt.Sprint("org", (41-i)%7), fmt.Sprint("user", i%5), Async, 10)
		j.Model = fmt.Sprint("model-", i%3)
		e.put(j)
		if first == nil {
			first = j
		}
		time.Sleep(2 * time.Millisecond) // ids have a resolution of milliseconds
	}
	put, err := e.Oldest(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := idTime(first.ID)
	if !put[Async].Equal(want) || !put[Interactive].IsZero() || !put[Batch].IsZero() {
		t.Errorf("got %v, the first job's id says %v", put, want)
	}
	if _, err := e.Cancel(t.Context(), first.Org, first.ID); err != nil {
		t.Fatal(err)
	}
	if next, err := e.Oldest(t.Context(), "p"); err != nil || !next[Async].After(put[Async]) {
		t.Errorf("after the first has gone: %v, before: %v (%v)", next, put, err)
	}
}
