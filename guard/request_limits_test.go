package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// TestRequestLimitsOfARequest: a limit counts the requests of its class, paths and methods.
func TestRequestLimitsOfARequest(t *testing.T) {
	limit := func(id string, by budget.Subject, change func(*RequestLimit)) RequestLimit {
		l := RequestLimit{Limit: budget.Limit{ID: id, Subject: by, Metric: budget.Requests}}
		if change != nil {
			change(&l)
		}
		return l
	}
	p := &Policy{RequestLimits: []RequestLimit{
		limit("address", budget.IP, nil),
		limit("all", budget.Key, nil),
		limit("reads", budget.User, func(l *RequestLimit) { l.Class = Reads }),
		limit("changes", budget.Key, func(l *RequestLimit) { l.Class = Writes }),
		limit("jobs", budget.Org, func(l *RequestLimit) { l.Endpoints, l.Methods = []string{"/v1/jobs"}, []string{"GET"} }),
		limit("below", budget.Org, func(l *RequestLimit) { l.Endpoints = []string{"/v1/jobs/*"} }),
		limit("files", budget.IP, func(l *RequestLimit) { l.Endpoints = []string{"/v1/files*"} }),
	}}
	for _, tc := range []struct {
		a       Arrival
		address bool
		want    string
	}{
		{Arrival{Reads, "GET", "/v1/jobs", false}, false, "all reads jobs"},
		{Arrival{Reads, "GET", "/v1/jobs", false}, true, "address"},
		{Arrival{Writes, "DELETE", "/v1/jobs/job_1", false}, false, "all changes below"},
		{Arrival{Writes, "POST", "/v1/jobs", false}, false, "all changes"},
		{Arrival{Writes, "POST", "/v1/files", false}, true, "address files"},
		{Arrival{Reads, "GET", "/v1/files/file_1/content", false}, true, "address files"},
		{Arrival{Spends, "POST", "/v1/chat/completions", false}, false, "all"},
		{Arrival{Writes, "POST", "/v1/chat/completions", true}, false, "changes"}, // it was counted as Spends
	} {
		var got []string
		for _, l := range p.requestLimits(tc.a, tc.address) {
			got = append(got, l.ID)
		}
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%+v, per address %v: got limits %q, want %q", tc.a, tc.address, text, tc.want)
		}
	}
}

// TestAddressCounts: any number of addresses has a bounded number of counts, known addresses keep theirs, and
// new ones get their own when most have gone.
func TestAddressCounts(t *testing.T) {
	const most, keep = 100, time.Minute
	c, now := addressCounts{most: most}, time.Unix(1_800_000_000, 0)
	if got := c.place("10.0.0.1", keep, now); got != "10.0.0.1" {
		t.Errorf("the first address: got counted as %s, want itself", got)
	}
	counts := map[string]bool{}
	for step := range 10 { // within the time of a count
		for i := range 50_000 {
			counts[c.place(fmt.Sprintf("2001:db8:%x:%x::", step, i), keep, now.Add(time.Duration(step)*keep/10))] = true
		}
	}
	if len(counts) > most+sharedPlaces {
		t.Errorf("a crowd: got %d counts, want at most %d", len(counts), most+sharedPlaces)
	}
	if got := c.place("10.0.0.1", keep, now.Add(keep/2)); got != "10.0.0.1" {
		t.Errorf("a known address in a crowd: got counted as %s, want itself", got)
	}
	if got := c.place("10.0.0.1", keep, now.Add(keep)); got != "10.0.0.1" {
		t.Errorf("a known address later: got counted as %s, want itself", got)
	}
	shared := c.place("10.0.0.2", keep, now.Add(keep))
	if !strings.HasPrefix(shared, "shared-") {
		t.Errorf("a new address in a crowd: got counted as %s, want a shared count", shared)
	}
	if again := c.place("10.0.0.2", keep, now.Add(keep)); again != shared {
		t.Errorf("a new address in a crowd, again: got counted as %s, want %s", again, shared)
	}
	if got := c.place("10.0.0.2", keep, now.Add(2*keep)); got != "10.0.0.2" {
		t.Errorf("after the crowd: got counted as %s, want itself", got)
	}
	known := []int{len(c.now), len(c.old)}
	if slices.Max(known) > most {
		t.Errorf("got %v addresses remembered, want at most %d each", known, most)
	}
}
