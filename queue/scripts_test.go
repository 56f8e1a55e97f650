package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// A pool's totals and virtual times are stored as tables and trees from the first job on,
// because Redis would scan lists.
func TestNoListsInAPool(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	want := map[string]string{"fair": "hashtable", "size": "hashtable", "users:async": "skiplist"}
	for name, encoding := range want {
		if got := e.rdb.ObjectEncoding(t.Context(), "lg:{p}:"+name).Val(); got != encoding {
			t.Errorf("%s is a %s, want a %s", name, got, encoding)
		}
	}
	e.claimOne("p", j)
	if got := e.claim("p", 1); len(got) != 0 {
		t.Errorf("claimed %s after the only job", got[0].id)
	}
}

// A start leaves a fresh lease alone and renews one that has aged, so that a job that was
// just started is never presumed dead.
func TestStartRenewsAnAgedLease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	lease := func(id string) time.Duration {
		return time.Duration(e.rdb.ZScore(t.Context(), "lg:{p}:claims", id).Val()) * time.Microsecond
	}
	for _, waits := range []time.Duration{time.Second, 20 * time.Second} {
		now := simStart + waits*100
		e.at(now)
		c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
		e.at(now + waits)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := lease(c.id) - now - waits
		if want := e.opts.Lease; left > want || left < want-want/3 || waits > want/3 && left != want {
			t.Errorf("started after %v with a lease of %v more, of %v", waits, left, want)
		}
		if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// A zombie cannot end a job that ended while it waited again.
func TestZombieOfACancelledJob(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	e.at(simStart)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.lapse("p", simStart+2*e.opts.Lease) // puts it back
	if _, err := e.Cancel(t.Context(), "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); !errors.Is(err, ErrGone) {
		t.Errorf("the zombie was told %v, want that the job is gone", err)
	}
}

// Totals are right after jobs of several flows have ended in one call, and the same again
// after a repetition.
func TestJobsEndedTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	for i := range 9 {
		e.put(e.job("p", fmt.Sprintf("o%d", i%2), fmt.Sprintf("u%d", i%3), Async, 10))
	}
	p := e.settings.pools()["p"]
	var batch []*scriptCall
	add := func(c *Claim) {
		args := []any{c.id, c.token, string(Succeeded), quota.AsBooked, "0", 0, "0", "token", c.token, "status", 200}
		batch = append(batch, &scriptCall{ctx: t.Context(), q: e.Queue, p: p, key: jobKey("p", c.id), args: args, done: make(chan struct{})})
	}
	claims := e.claim("p", 8)
	for _, c := range claims {
		add(c)
	}
	add(claims[3])
	p.finishes.run(batch)
	for i, entrant := range batch {
		if entrant.err != nil || entrant.line != "ok" {
			t.Errorf("job %d: %q %v", i, entrant.line, entrant.err)
		}
	}
	left := e.claim("p", 2)
	if len(left) != 1 {
		t.Fatalf("%d jobs are left, want 1", len(left))
	}
	size := e.rdb.HGetAll(t.Context(), "lg:{p}:size").Val()
	delete(size, "wide")
	flow, bytes := left[0].Job.Org+" "+left[0].Job.User, fmt.Sprint(left[0].Job.Bytes)
	want := map[string]string{
		"jobs": "1", "bytes": bytes, "t2": "0", "j " + left[0].Job.Org: "1", "b " + left[0].Job.Org: bytes,
		"j " + flow: "1", "b " + flow: bytes,
	}
	if fmt.Sprint(size) != fmt.Sprint(want) {
		t.Errorf("sums are %v, want %v", size, want)
	}
	for _, c := range claims {
		if j, err := e.Job(t.Context(), c.Job.Org, c.id); err != nil || j.State != Succeeded || j.Status != 200 {
			t.Errorf("%s: %+v %v", c.id, j, err)
		}
	}
}
