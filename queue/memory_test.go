package queue

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

const mib = 1 << 20

// newFullEnv returns a queue on a Redis with the given maxmemory.
func newFullEnv(t *testing.T, maxmemory string, opts Options) *env {
	t.Helper()
	return envOn(t, redistest.Start(t, redistest.WithArgs("--maxmemory", maxmemory)), opts, Pool{ID: "p"})
}

// puts returns a runner that writes answers of the given size. The job's verdict follows
// from its output.
func puts(bytes int, wrote *atomic.Int64) func(context.Context, *Claim) Verdict {
	piece := make([]byte, 64<<10)
	return func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			return Verdict{Kind: Requeue, Unused: true}
		}
		for n := 0; n < bytes; n += len(piece) {
			if _, err := c.Output().Write(piece); err != nil {
				return failed(err)
			}
			wrote.Add(int64(len(piece)))
		}
		return Verdict{Kind: Done, Status: http.StatusOK}
	}
}

// The answers of one org leave room for the jobs of others, however many and large they
// are: an answer without room ends with a stated error, and Redis never gets full.
func TestAnswersOfAnOrgLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	e := newFullEnv(t, "64mb", Options{})
	ctx := t.Context()
	var wrote atomic.Int64
	var jobs []*Job
	for range 12 { // while there is room for them
		jobs = append(jobs, e.put(e.job("p", "hog", "ann", Async, 10)))
	}
	e.run(puts(4*mib, &wrote), WorkerOptions{Concurrency: map[string]int{"p": 4}})
	kept := 0
	for _, j := range jobs {
		switch j = e.end(j); {
		case j.State == Succeeded:
			kept++
		case j.Code != "answer_not_kept" || j.Error == nil || j.Error.Status != http.StatusGone:
			t.Errorf("a job without room is %s %s, %v", j.State, j.Code, j.Error)
		}
	}
	if kept == 0 || kept > 6 {
		t.Errorf("%d answers of 4 MiB were kept, of a half of 51 MiB", kept)
	}
	other := e.end(e.put(e.job("p", "honest", "bob", Async, 10)))
	if a, err := e.Result(ctx, other); err != nil || len(a.Body) != 4*mib {
		t.Errorf("the other org's job is %s %s, its answer has %d bytes, %v", other.State, other.Code, len(a.Body), err)
	}
	if n := e.rdb.Info(ctx, "memory").Val(); e.rdb.Set(ctx, "hold", "1", 0).Err() != nil {
		t.Errorf("Redis is full: %s", n)
	}
}

// A job whose answer does not fit in its org's share does not start, and its org waits. The
// org's answers run again when older ones are gone.
func TestAnswerIsAdmittedBeforeItsAttempt(t *testing.T) {
	t.Parallel()
	e := newFullEnv(t, "32mb", Options{})
	ctx := t.Context()
	first := e.claimOne("p", e.put(e.job("p", "hog", "ann", Async, 10)))
	if err := first.Reserve(ctx, 8*mib); err != nil {
		t.Fatal(err)
	}
	second := e.claimOne("p", e.put(e.job("p", "hog", "ann", Async, 10)))
	err := second.Reserve(ctx, 8*mib)
	if v := noRoom(err); v.Kind != Park || v.Scope != ParkFlowModel || !v.Unused {
		t.Errorf("a second answer of 8 MiB in 10: %v, so the job is to %+v", err, v)
	}
	other := e.claimOne("p", e.put(e.job("p", "honest", "bob", Async, 10)))
	if err := other.Reserve(ctx, 4*mib); err != nil {
		t.Errorf("the other org's: %v", err)
	}
	if err := first.release(ctx, Verdict{Kind: Requeue, Unused: true}, "0"); err != nil {
		t.Fatal(err)
	}
	if err := second.Reserve(ctx, 8*mib); err != nil {
		t.Errorf("after the first job went back: %v", err)
	}
}

// What is written of an answer in progress counts once: the part that Redis already holds
// takes nothing from other orgs in addition to what was reserved.
func TestAnswersUnderWayCountOnce(t *testing.T) {
	t.Parallel()
	e := newFullEnv(t, "64mb", Options{})
	ctx := t.Context()
	hog := e.claimOne("p", e.put(e.job("p", "hog", "ann", Async, 10)))
	if err := hog.Reserve(ctx, 16*mib); err != nil {
		t.Fatal(err)
	}
	if err := hog.Start(ctx); err != nil {
		t.Fatal(err)
	}
	out := hog.Output()
	piece := make([]byte, 256<<10)
	for n := 0; n < 16*mib; n += len(piece) {
		if _, err := out.Write(piece); err != nil {
			t.Fatal(err)
		}
		if err := out.flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	e.memory.Configure(capacity.Options{}) // reads Redis's memory again
	other := e.claimOne("p", e.put(e.job("p", "honest", "bob", Async, 10)))
	if err := other.Reserve(ctx, 12*mib); err != nil {
		t.Errorf("12 MiB of a half of the 35 that the first org leaves: %v", err)
	}
}

// An answer beyond its org's share goes to files.store, and is complete for watchers and
// later readers.
func TestAnswerWithoutRoomGoesToTheStore(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newFullEnv(t, "12mb", o)
	var wrote atomic.Int64
	e.run(puts(8*mib, &wrote), WorkerOptions{})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Watch(t.Context(), j)
	defer w.Close()
	got := 0
	for {
		event, err := w.Next(t.Context())
		if err != nil {
			break
		}
		got += len(event.Data)
	}
	j = e.end(j)
	a, err := e.Result(t.Context(), j)
	if err != nil || len(a.Body) != 8*mib || got != 8*mib || j.State != Succeeded {
		t.Errorf("the job is %s %s; result of %d bytes, %v; a watcher got %d", j.State, j.Code, len(a.Body), err, got)
	}
	if n := len(blobsIn(t, dir)); n != 1 {
		t.Errorf("%d blobs, want the answer", n)
	}
}

// An answer is partly in files.store's spool, and a failover of Redis has lost the rest: the job ends.
func TestAnswerOfWhichRedisLostAPartEnds(t *testing.T) {
	t.Parallel()
	opts, _ := withBlobs(t, Options{})
	e := newFullEnv(t, "12mb", opts)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	o := c.Output()
	for range 8 {
		if _, err := o.Write(bytes.Repeat([]byte("x"), mib)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.flush(ctx); err != nil || o.spilled == 0 || o.spilled == o.size {
		t.Fatalf("%d of %d bytes are outside Redis, %v; want a part", o.spilled, o.size, err)
	}
	// Not all but one: how many entries there are depends on how fast they were written.
	if err := e.rdb.XTrimMaxLen(ctx, outKey(j.ID, 1), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.conclude(ctx, Verdict{Kind: Done}); err != nil {
		t.Fatal(err)
	}
	got, err := e.Job(t.Context(), "acme", j.ID)
	if err != nil || got.State != Failed || got.Code != "answer_not_kept" {
		t.Errorf("job %+v, %v; want it failed and charged", got, err)
	}
}

// Output refused by a full Redis is not sent again forever: the job ends with an error that
// says why.
func TestAFullRedisEndsAnAnswer(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	o := c.Output()
	if _, err := o.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	if pause := o.rested(&capacity.FullError{}); pause <= flushRetry {
		t.Errorf("sent again after %s", pause)
	}
	o.mu.Lock()
	o.full = time.Now().Add(-fullPatience)
	o.mu.Unlock()
	if _, err := o.Write([]byte("more")); !errors.Is(err, errNotKept) {
		t.Errorf("written to a Redis that has been full for %s: %v", fullPatience, err)
	}
	if err := c.conclude(ctx, Verdict{Kind: Done}); err != nil {
		t.Fatal(err)
	}
	got, err := e.Job(ctx, "acme", j.ID)
	if err != nil || got.State != Failed || got.Code != "answer_not_kept" {
		t.Errorf("job %+v, %v", got, err)
	}
}

// Of an ended job only what remains in Redis counts, and of a forgotten one nothing.
func TestEndedJobsCountWhatStays(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	count := func() int64 { n, _ := e.rdb.HGet(ctx, "lg:{capacity}:sums", "o acme").Int64(); return n }
	var wrote atomic.Int64
	run := puts(mib, &wrote)
	var jobs []*Job
	body := []byte(`{"x":"` + strings.Repeat("x", 100_000) + `"}`)
	for _, class := range []Class{Async, Batch, Async} {
		j := e.job("p", "acme", "ann", class, 10)
		if err := e.Put(ctx, j, body); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	if n := count(); n < 3*100_000 || n > 3*110_000 {
		t.Errorf("three that wait count %d bytes", n)
	}
	if _, err := e.Cancel(ctx, "acme", jobs[2].ID); err != nil {
		t.Fatal(err)
	}
	left := e.job("p", "acme", "ann", Interactive, 10)
	if err := e.Put(ctx, left, body); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Cancel(ctx, "acme", left.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Body(ctx, left); !errors.Is(err, ErrNotFound) {
		t.Errorf("the body of a call that was cancelled: %v", err)
	}
	stop := e.run(run, WorkerOptions{})
	for i, j := range jobs {
		jobs[i] = e.end(j)
	}
	stop()
	if n := count(); n < 2*mib+100_000 || n > 2*mib+120_000 {
		t.Errorf("two answers of 1 MiB and the body of a cancelled job count %d bytes", n)
	}
	if err := e.Forget(ctx, jobs[1:2]); err != nil {
		t.Fatal(err)
	}
	if err := e.Erase(ctx, "acme", jobs[0].ID); err != nil {
		t.Fatal(err)
	}
	if n := count(); n < 100_000 || n > 110_000 {
		t.Errorf("the cancelled job alone counts %d bytes", n)
	}
}
