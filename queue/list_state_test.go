package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestOpenJobsAreListedWithoutTheOthers checks that a list of waiting or running jobs has
// all of them, newest first and page by page, although ten thousand newer ones have ended;
// for one org, one user, or all orgs.
func TestOpenJobsAreListedWithoutTheOthers(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"}, Pool{ID: "q"})
	ctx := t.Context()
	var queued []string
	for i := range 5 {
		queued = append(queued, e.put(e.job([]string{"p", "q"}[i%2], "acme", "ann", Async, 10)).ID)
	}
	bob := e.put(e.job("p", "acme", "bob", Batch, 10))
	other := e.put(e.job("p", "acme-2", "ann", Async, 10))
	// Ended jobs are in the org's index and nowhere else.
	var ended []redis.Z
	for i := range listMost + 10 {
		ended = append(ended, redis.Z{Score: 9e15 + float64(i), Member: fmt.Sprintf("job_%s%026d", poolCode("p"), i)})
	}
	if err := e.rdb.ZAdd(ctx, orgIndex("acme"), ended...).Err(); err != nil {
		t.Fatal(err)
	}
	// Newest first by their ids, which are in no order within one millisecond.
	slices.SortFunc(queued, func(a, b string) int { return strings.Compare(jobRef{id: b}.age(), jobRef{id: a}.age()) })
	list := func(org string, f Filter, after string, limit int) (ids []string, more bool) {
		t.Helper()
		page, err := e.List(ctx, org, f, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		return ids, page.More
	}
	anns := Filter{User: "ann", State: Queued}
	first, more := list("acme", anns, "", 3)
	rest, end := list("acme", anns, first[len(first)-1], 3)
	if !more || end || !slices.Equal(append(first, rest...), queued) {
		t.Errorf("got %v (more: %v) and %v (more: %v), want %v in two pages", first, more, rest, end, queued)
	}
	if got, _ := list("acme", Filter{State: Queued}, "", 100); len(got) != 6 || !slices.Contains(got, bob.ID) {
		t.Errorf("the org's: got %v, want bob's and ann's five", got)
	}
	if got, _ := list("", Filter{State: Queued}, "", 100); len(got) != 7 || !slices.Contains(got, other.ID) {
		t.Errorf("of all orgs: got %v, want seven", got)
	}
	claims := e.claim("p", 2)
	if got, _ := list("acme", Filter{State: Running}, "", 100); len(got) != 0 {
		t.Errorf("got %v as running, want none before it starts", got)
	}
	if got, _ := list("", Filter{State: Queued}, "", 100); len(got) != 7 {
		t.Errorf("claimed and not started: got %d queued, want 7", len(got))
	}
	for _, c := range claims {
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := list("", Filter{State: Running}, "", 100); len(got) != 2 {
		t.Errorf("got %v as running, want two", got)
	}
	if got, _ := list("", Filter{State: Queued}, "", 100); len(got) != 5 {
		t.Errorf("two run: got %d queued, want 5", len(got))
	}
}
