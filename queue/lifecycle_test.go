package queue

import (
	"errors"
	"testing"
	"time"
)

// The records of a job outlive its waiting and running, however short its results are kept.
// Once it ends they are kept as long as results are. A job that an older version put with a
// TTL loses the TTL when it starts.
func TestRecordsOutliveOpenJobs(t *testing.T) {
	t.Parallel()
	const resultTTL = time.Minute
	e := newEnv(t, Options{}, Pool{ID: "p", MaxAge: 2 * time.Minute, ResultTTL: resultTTL})
	ctx := t.Context()
	ttl := func(key string) time.Duration {
		t.Helper()
		d, err := e.rdb.PTTL(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	endless := func(when string, j *Job) {
		t.Helper()
		if d := ttl(jobKey("p", j.ID)); d != -1 {
			t.Errorf("the record of a job that %s has the TTL %v, want none", when, d)
		}
	}
	j := e.job("p", "acme", "ann", Interactive, 10)
	j.Deadline = time.Now().Add(30 * time.Second)
	e.put(j)
	endless("waits", j)
	if d := ttl(bodyKey(j.ID)); d < runLife {
		t.Errorf("its body lives for %v", d)
	}
	e.rdb.PExpire(ctx, jobKey("p", j.ID), resultTTL) // as an older version stores it
	if _, err := e.Places().Return(ctx, "acme", j.ID, time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	endless("waits longer", j)
	e.rdb.PExpire(ctx, jobKey("p", j.ID), resultTTL)
	c := e.claimOne("p", j)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	endless("runs", j)
	c.ctx = ctx
	if _, err := c.Output().Write([]byte("a word")); err != nil {
		t.Fatal(err)
	}
	if err := c.Output().flush(ctx); err != nil {
		t.Fatal(err)
	}
	if d := ttl(outKey(j.ID, 1)); d <= resultTTL {
		t.Errorf("an answer that grows lives for %v", d)
	}
	if err := c.conclude(ctx, Verdict{Kind: Done, Status: 200}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{jobKey("p", j.ID), outKey(j.ID, 1)} {
		if d := ttl(key); d <= 0 || d > resultTTL {
			t.Errorf("after the end %s lives for %v, want at most %v", key, d, resultTTL)
		}
	}
}

// The totals of a pool match its jobs: if records are lost, the totals are recomputed from
// what waits and runs, and an empty pool accepts jobs.
func TestSumsAreDerivedFromTheJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100}, Pool{ID: "p", MaxJobs: 6})
	ctx := t.Context()
	var jobs []*Job
	for i := range 6 {
		jobs = append(jobs, e.put(e.job("p", []string{"acme", "zeta"}[i%2], "ann", Class(1+i%3), 10)))
	}
	sums := func() map[string]string {
		t.Helper()
		e.endings.endOverdue(ctx)
		m := e.rdb.HGetAll(ctx, "lg:{p}:size").Val()
		delete(m, "wide")
		return m
	}
	running := e.claimOne("p", jobs[0])
	want := sums()
	lose := func(j *Job) {
		e.rdb.Del(ctx, jobKey("p", j.ID))
		got, err := newPacer(e.Queue, e.settings.pools()["p"], 1).acquire(ctx, 6)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.claims { // the worker finds no record
			if err := c.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); errors.Is(err, ErrGone) != (c.id == j.ID) {
				t.Fatal(err)
			}
		}
	}
	if want["jobs"] != "6" || want["j acme"] != "3" || want["b zeta ann"] != "21" {
		t.Fatalf("sums %v", want)
	}
	lose(jobs[1])
	got := sums()
	for field, n := range map[string]string{"jobs": "5", "bytes": "35", "j acme": "3", "b acme": "21", "j zeta ann": "2", "b zeta": "14"} {
		if got[field] != n {
			t.Errorf("%s is %q after a record was lost, want %q", field, got[field], n)
		}
	}
	if err := running.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs[2:] {
		lose(j)
	}
	if got := sums(); len(got) != 0 {
		t.Errorf("an empty pool has the sums %v", got)
	}
	for range 6 {
		e.put(e.job("p", "acme", "ann", Async, 10))
	}
}
