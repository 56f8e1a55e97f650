package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
)

// TestSpreadLabels: the sums by a label have every call once, whatever the spread was when it was
// made. A limit by user and label is in one part, and one by address counts a network in one part.
func TestSpreadLabels(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newSpread(t, rdb, 16, Options{SumLabels: []string{"project"}})
		limit := costLimit("user", "user+project", hour(20))
		n := 0
		for _, parts := range []int{16, 4, 1} {
			f.parts = parts
			for user := range 12 {
				c := f.of(user)
				c.Labels = ledger.Labels(fmt.Sprint("project=p", user%2))
				h, err := f.Hold(ctx, Terms{Limits: []Limit{limit}, Call: c, Max: cost(5)})
				if err != nil {
					t.Fatal(err)
				}
				f.settle(ctx, h, 5)
				n++
			}
		}
		list, err := f.Ledger.LabelRollups(ctx, f.org, "project", start, start.Add(time.Hour))
		if err != nil || len(list) != 2 {
			t.Fatalf("got %+v, %v; want one line of p0 and one of p1", list, err)
		}
		for i, r := range list {
			if r.Value != fmt.Sprint("p", i) || r.Calls != int64(n/2) || int64(r.Cost) != int64(5*n/2) {
				t.Errorf("got %+v; want p%d with %d calls of 5", r, i, n/2)
			}
		}
	})
}

// TestSpreadByNetwork: all addresses that limits count as one are in one part.
func TestSpreadByNetwork(t *testing.T) {
	sp := Spread{Parts: 64, By: IP, IPv6Prefix: 64}
	parts := map[int]bool{}
	for i := range 100 {
		parts[sp.partOf(ledger.Call{Org: "acme", IP: fmt.Sprintf("2001:db8::%x", i+1)})] = true
	}
	if len(parts) != 1 {
		t.Errorf("a network is in %d parts, want 1", len(parts))
	}
	for _, c := range []struct {
		sp      Spread
		subject Subject
		whole   bool
	}{
		{sp, IP, true},
		{sp, "ip+project", true},
		{sp, User, false},
		{sp, "project", false},
		{sp, Org, false},
		{Spread{Parts: 4, By: User}, "user+project", true},
		{Spread{Parts: 4, By: User}, "key+project", true},
		{Spread{Parts: 4, By: User}, "project", false},
		{Spread{Parts: 4, By: User}, IP, false},
	} {
		got := c.sp.whole(&Limit{Subject: c.subject}, ledger.Call{Org: "acme", User: "ann", Key: "k", IP: "10.0.0.1"})
		if got != c.whole {
			t.Errorf("a limit by %s of an org that is spread by %s: whole = %v, want %v", c.subject, c.sp.By, got, c.whole)
		}
	}
}

// TestSpreadRequests: a limit on the requests of an org counts them together, however it is spread.
func TestSpreadRequests(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newSpread(t, rdb, 16, Options{})
		limits := []Limit{requestLimit("all", Org, perMinute(10))}
		admitted := 0
		for user := range 40 {
			out, err := f.Requests.Count(t.Context(), limits, ledger.Call{Org: f.org, User: fmt.Sprint("user", user)})
			if err != nil {
				t.Fatal(err)
			}
			if !out.Refused {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("%d requests were admitted, want 10", admitted)
		}
	})
}
