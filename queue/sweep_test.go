package queue

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep checks that unreferenced blobs are deleted once they are old enough, and that
// others, and files of an org called jobs, stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	ctx, body := t.Context(), text("body", 100<<10)
	var jobs []*Job
	for range 3 {
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(ctx, j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	e.contents.unlinkBodies(ctx, []string{jobs[0].ID, jobs[1].ID})
	for _, name := range []string{outBlob(jobs[2].ID, 1), "jobs/file-1"} {
		if err := e.contents.writeBlob(ctx, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	killed := filepath.Join(dir, filepath.FromSlash(bodyBlob(jobs[0].ID))) + ".18d3b0c1a2.tmp"
	if err := os.WriteFile(killed, []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		before   time.Time
		n, stays int
	}{{time.Now().Add(-time.Minute), 0, 6}, {time.Now().Add(time.Minute), 4, 2}} {
		n, err := e.sweeper.sweep(ctx, time.Time{}, step.before)
		if got := blobsIn(t, dir); err != nil || n != step.n || len(got) != step.stays {
			t.Errorf("%d deleted, %v, %q stay", n, err, got)
		}
	}
	if got, err := e.Body(ctx, jobs[2]); err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	e.sweeper.sweepBlobs(ctx)
	if e.rdb.Exists(ctx, sweepKey).Val() != 1 {
		t.Error("others sweep at the same time")
	}
}

// TestSweepSpares checks that older blobs stay for a week after Redis was emptied, because
// a backup may be restored.
func TestSweepSpares(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	ctx := t.Context()
	name := bodyBlob(e.NewID("p"))
	if err := e.contents.writeBlob(ctx, name, []byte("x")); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * sweepAge)
	if err := os.Chtimes(filepath.Join(dir, filepath.FromSlash(name)), old, old); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		since time.Duration // ago
		stays int
	}{{0, 1}, {sweepAge, 1}, {spareAge + time.Hour, 0}} {
		if step.since > 0 {
			e.rdb.Set(ctx, sinceKey, time.Now().Add(-step.since).Unix(), 0)
		}
		e.rdb.Del(ctx, sweepKey)
		e.sweeper.sweepBlobs(ctx)
		if got := blobsIn(t, dir); len(got) != step.stays {
			t.Errorf("%v after the first sweep %q stay", step.since, got)
		}
	}
}
