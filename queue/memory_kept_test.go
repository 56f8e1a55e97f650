package queue

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
)

// Answers kept for an Idempotency-Key count like uploads, large and small ones. What
// exceeds the quota is not kept, and uploads share the same quota.
func TestKeptAnswersCountAsUploads(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	srv := redistest.Start(t)
	const quota = 1_000_000
	o.Files = files.New(srv.DB(), o.Blobs, files.Options{OrgBytes: quota})
	e := envOn(t, srv, o, Pool{ID: "p"})
	ctx := t.Context()
	kept := map[string]int{}
	for i, size := range []int{300_000, 300_000, 300_000, 300_000, 40_000, 40_000, 40_000, 10, 300_000} {
		id := string(rune('a' + i))
		err := e.KeepAnswer(ctx, "acme", id, Answer{Status: 200, Body: make([]byte, size)}, time.Hour)
		switch a, errGet := e.Answer(ctx, "acme", id); {
		case err == nil && errGet == nil && len(a.Body) == size:
			kept[id] = size
		case !errors.Is(err, ErrNoRoom) || !errors.Is(errGet, ErrNotFound):
			t.Errorf("answer %s: kept %v, read %v", id, err, errGet)
		}
	}
	if len(kept) != 6 || kept["d"] > 0 || kept["g"] > 0 || kept["h"] != 10 {
		t.Errorf("kept %v", kept)
	}
	if n := blobBytes(t, o.Blobs); n > quota {
		t.Errorf("%d bytes are in %s under a quota of %d", n, dir, quota)
	}
	owner := files.Owner{Org: "acme", User: "ann"}
	if err := upload(t, o.Files, owner, 30_000); !errors.Is(err, files.ErrFull) {
		t.Errorf("an upload beside them: %v", err)
	}
	if err := upload(t, o.Files, files.Owner{Org: "other", User: "bob"}, 30_000); err != nil {
		t.Errorf("another org's: %v", err)
	}
}

// An answer that Redis has no room for takes memory of this process. If there is none
// either, its job ends with a stated error, and no memory stays taken.
func TestAnswerWithoutRoomTakesTheSpools(t *testing.T) {
	t.Parallel()
	for most, want := range map[int64]State{1 * mib: Failed, 64 * mib: Succeeded} {
		o, _ := withBlobs(t, Options{Spool: spool.New(spool.Options{Memory: most, Disk: -1})})
		e := newFullEnv(t, "12mb", o)
		var wrote atomic.Int64
		j := e.put(e.job("p", "hog", "ann", Async, 10))
		e.run(puts(20*mib, &wrote), WorkerOptions{})
		if j = e.end(j); j.State != want {
			t.Errorf("with %d bytes: %s %s, want %s", most, j.State, j.Code, want)
		}
		for end := time.Now().Add(time.Minute); o.Spool.Memory.Used() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("with %d bytes: %d stay taken", most, o.Spool.Memory.Used())
			}
		}
	}
}

// Content that the store does not accept does not count against its org's quota.
func TestUnwrittenBlobCountsNothing(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	srv := redistest.Start(t)
	o.Files = files.New(srv.DB(), o.Blobs, files.Options{OrgBytes: 1_000_000})
	e := envOn(t, srv, o, Pool{ID: "p"})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.contents.putBlob(t.Context(), "acme", "lost", make([]byte, 900_000), time.Hour); err == nil {
		t.Fatal("a store that is gone took a blob")
	}
	if err := o.Files.Count(t.Context(), "acme", "next", 900_000, time.Hour); err != nil {
		t.Errorf("after a blob that was not written: %v", err)
	}
}

func upload(t *testing.T, store *files.Store, owner files.Owner, size int) error {
	t.Helper()
	u, err := store.Begin(t.Context(), owner, files.NewID())
	if err != nil {
		return err
	}
	defer u.Abort()
	if _, err := u.Write(make([]byte, size)); err != nil {
		return err
	}
	_, err = u.Commit(t.Context(), "f", files.Batch, 0)
	return err
}

func blobBytes(t *testing.T, store *blob.Store) (n int64) {
	t.Helper()
	err := store.Each(t.Context(), blobPrefix, func(name string, _ time.Time) error {
		r, err := store.Open(t.Context(), name, 0)
		if err != nil {
			return err
		}
		defer r.Close()
		buf := make([]byte, 1<<20)
		for {
			k, err := r.Read(buf)
			n += int64(k)
			if err != nil {
				return nil
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A job that can never fit in its org's share of memory is refused when it is put. With a
// store for large answers, only its body counts.
func TestJobBeyondItsShareIsRefused(t *testing.T) {
	t.Parallel()
	e := newFullEnv(t, "32mb", Options{})
	j := e.job("p", "acme", "ann", Async, 10)
	j.Answer = 16 * mib // the share is 12.8 MiB
	var full *FullError
	if err := e.Put(t.Context(), j, []byte("{}")); !errors.As(err, &full) || full.Final("") == nil || full.Final("").Code != "insufficient_quota" {
		t.Errorf("an answer of 16 MiB in a share of 12.8: %v", err)
	}
	o, _ := withBlobs(t, Options{})
	e = newFullEnv(t, "32mb", o)
	j = e.job("p", "acme", "ann", Async, 10)
	j.Answer = 16 * mib
	e.put(j)
}

// A job that can never run because its org's share shrank fails, and blocks no other job.
func TestJobBeyondAShareThatShrankFails(t *testing.T) {
	t.Parallel()
	e := newFullEnv(t, "32mb", Options{})

	j := e.job("p", "acme", "ann", Async, 10)
	j.Answer = 10 * mib
	e.put(j)
	e.memory.Configure(capacity.Options{OrgShare: 20}) // 5 MiB
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Reserve(ctx, j.Answer); err != nil {
			return noRoom(err)
		}
		return Verdict{Kind: Done, Status: http.StatusOK}
	}, WorkerOptions{})
	if j = e.end(j); j.State != Failed || j.Code != "insufficient_quota" {
		t.Errorf("the job is %s %s", j.State, j.Code)
	}
}
