package queue

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/wire"
)

const blobAbove = 64 << 10

// withBlobs returns options that store large contents in a directory.
func withBlobs(t *testing.T, o Options) (Options, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	store.Seal(o.Seal)
	t.Cleanup(func() { _ = store.Close() })
	o.Blobs, o.BlobAbove = store, blobAbove
	return o, dir
}

// blobsIn lists the blobs of a directory, with slashes.
func blobsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		if errors.Is(err, os.ErrNotExist) { // removed in the meantime
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// text returns JSON of at least n bytes that contains its name.
func text(name string, n int) string {
	return `{"` + name + `":"` + strings.Repeat(name+" ", n/(len(name)+1)+1) + `"}`
}

// inRedis returns the memory that all keys take, in bytes.
func (e *env) inRedis() (n int64) {
	e.t.Helper()
	for _, key := range e.rdb.Keys(e.t.Context(), "*").Val() {
		n += e.rdb.MemoryUsage(e.t.Context(), key, 0).Val()
	}
	return n
}

// until waits for a condition.
func (e *env) until(what string, ok func() bool) {
	e.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	e.t.Fatalf("not within a minute: %s", what)
}

// end waits until a job has ended and returns it.
func (e *env) end(j *Job) *Job {
	e.t.Helper()
	e.until("the job ends", func() bool {
		now, err := e.Job(e.t.Context(), j.Org, j.ID)
		if err == nil {
			j = now
		}
		return err == nil && j.State.Terminal()
	})
	return j
}

// TestOutside checks that contents above the bound are not in Redis, neither while the job
// waits nor afterwards, and are unchanged for the runner, a watcher and a later reader,
// with and without keys. The body's blob is removed when the job succeeds.
func TestOutside(t *testing.T) {
	t.Parallel()
	for _, ring := range []*seal.Ring{nil, sealing(t, "k")} {
		o, dir := withBlobs(t, Options{Seal: ring})
		e := newEnv(t, o, Pool{ID: "p"})
		body := text("canary", 200<<10)
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(t.Context(), j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if n := e.inRedis(); n > blobAbove {
			t.Errorf("%d bytes are in Redis of a job that waits", n)
		}
		if got, err := e.Body(t.Context(), j); err != nil || string(got) != body {
			t.Errorf("body of %d bytes, %v", len(got), err)
		}
		e.run(echo, WorkerOptions{})
		j = e.end(j)
		if a, err := e.Result(t.Context(), j); err != nil || string(a.Body) != "echo of "+body {
			t.Errorf("result of %d bytes, %v", len(a.Body), err)
		}
		if n := e.inRedis(); n > blobAbove {
			t.Errorf("%d bytes are in Redis of a job that has ended", n)
		}
		e.until("the body's blob is gone", func() bool { return len(blobsIn(t, dir)) == 1 })
		name := blobsIn(t, dir)[0]
		if name != outBlob(j.ID, 1) {
			t.Errorf("the answer is %s", name)
		}
		on, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || strings.Contains(string(on), "canary") != (ring == nil) {
			t.Errorf("with %v the blob has the text in the clear, or not: %v", ring, err)
		}
		if got := e.answered(body); got != "succeeded echo of "+body {
			t.Errorf("a watcher got %d bytes", len(got))
		}
	}
}

// TestOutsideBound checks that contents up to the bound stay in Redis, that everything does
// with bound 0, and that what was written before stays readable.
func TestOutsideBound(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	small, large := text("s", blobAbove-10)[:blobAbove], text("l", blobAbove)
	put := func(body string) *Job {
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(t.Context(), j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		return j
	}
	put(small)
	if got := blobsIn(t, dir); len(got) != 0 {
		t.Errorf("a small body is in %q", got)
	}
	outside := put(large)
	o.BlobAbove = 0
	if err := e.Configure([]Pool{{ID: "p"}}, o); err != nil {
		t.Fatal(err)
	}
	put(large)
	if got := blobsIn(t, dir); len(got) != 1 || got[0] != bodyBlob(outside.ID) {
		t.Errorf("blobs %q", got)
	}
	if got, err := e.Body(t.Context(), outside); err != nil || string(got) != large {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestOutsideAnswer checks the same for the answer kept for an Idempotency-Key.
func TestOutsideAnswer(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	id, body := wire.NewCallID(), text("answer", 100<<10)
	kept := Answer{Status: 200, Header: http.Header{"A": {"b"}}, Body: []byte(body)}
	for range 2 { // a repetition changes nothing
		if err := e.KeepAnswer(t.Context(), "acme", id, kept, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	a, err := e.Answer(t.Context(), "acme", id)
	if err != nil || string(a.Body) != body || a.Header.Get("A") != "b" {
		t.Errorf("%d bytes, %v", len(a.Body), err)
	}
	if got := blobsIn(t, dir); len(got) != 1 || got[0] != outBlob(id, 1) || e.inRedis() > blobAbove {
		t.Errorf("blobs %q, %d bytes in Redis", got, e.inRedis())
	}
}

// TestOutsideMidway checks that a reader who has read part of an answer, or all of it, gets
// exactly the rest if the answer moves in between.
func TestOutsideMidway(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	e.put(e.job("p", "acme", "ann", Async, 1))
	c := e.claimOne("p", nil)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, rest := text("one", 50<<10), text("two", 50<<10)
	watches := make([]*Watch, 3) // these read nothing, the first part, and everything before the answer moves
	var got [3]strings.Builder
	read := func(i int, until func() bool) {
		for !until() {
			event, err := watches[i].Next(t.Context())
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got[i].Write(event.Data)
		}
	}
	for i := range watches {
		watches[i] = e.Follow(c.Job)
		defer watches[i].Close()
	}
	out := c.Output()
	for i, part := range []string{first, rest} {
		if _, err := out.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
		if err := out.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{first, rest}[:i+1], "")
		for n := 1; n < 3; n++ {
			if i == 0 || n == 2 {
				read(n, func() bool { return got[n].Len() == len(want) })
			}
		}
	}
	if err := c.conclude(t.Context(), Verdict{Kind: Done, Status: 200}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.FromSlash(outBlob(c.id, 1)))
	for i := range watches {
		away := path
		if i == 2 { // has everything and does not need the blob
			away += ".away"
		}
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		read(i, func() bool { return false })
		if err := os.Rename(away, path); err != nil {
			t.Fatal(err)
		}
		if got[i].String() != first+rest {
			t.Errorf("watch %d got %d bytes of %d", i, got[i].Len(), len(first+rest))
		}
	}
	if n := e.rdb.XLen(t.Context(), outKey(c.id, 1)).Val(); n != 3 {
		t.Errorf("the output has %d entries, and not its head, the ref and its end", n)
	}
	if err := e.contents.moveOut(t.Context(), out, out.moving); err != nil { // late and repeated
		t.Error(err)
	}
	if a, err := e.Result(t.Context(), c.Job); err != nil || string(a.Body) != first+rest {
		t.Errorf("%d bytes, %v", len(a.Body), err)
	}
}

// TestOutsideFull checks that a job refused by the queue leaves no blob.
func TestOutsideFull(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p", MaxJobs: 4})
	var full *FullError
	for range 2 {
		if err := e.Put(t.Context(), e.job("p", "acme", "ann", Async, 1), []byte(text("body", 100<<10))); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	if got := blobsIn(t, dir); full == nil || len(got) != 1 {
		t.Errorf("%v, blobs %q", full, got)
	}
}

// TestOutsideErase checks that deleting a response deletes its blobs.
func TestOutsideErase(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	j := e.job("p", "acme", "ann", Async, 1)
	if err := e.Put(t.Context(), j, []byte(text("body", 100<<10))); err != nil {
		t.Fatal(err)
	}
	e.run(func(ctx context.Context, c *Claim) Verdict {
		echo(ctx, c)
		return Verdict{Kind: Done, Status: 200}
	}, WorkerOptions{})
	e.end(j)
	if err := e.Erase(t.Context(), "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	e.until("the blobs are gone", func() bool { return len(blobsIn(t, dir)) == 0 })
}

func TestSlowBodies(t *testing.T) {
	var s slowBodies
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.keep(id, []byte(id))
	}
	for id, want := range map[string]string{"a": "", "b": "b", "e": "e"} {
		if got := string(s.take(id)); got != want {
			t.Errorf("%s: %q", id, got)
		}
		if s.take(id) != nil {
			t.Errorf("%s is kept on", id)
		}
	}
}
