package queue

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestOutsideLost checks that a missing or damaged body or answer is reported as
// permanently lost, also to callers, and that an unavailable store is waited for.
func TestOutsideLost(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	body := text("body", 100<<10)
	put := func() *Job {
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(t.Context(), j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		return j
	}
	path := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	missing, damaged, fine := put(), put(), put()
	if err := os.Remove(path(bodyBlob(missing.ID))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path(bodyBlob(damaged.ID)), []byte(strings.Replace(body, "b", "B", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	e.run(echo, WorkerOptions{})
	for _, j := range []*Job{missing, damaged} {
		if j = e.end(j); j.State != Failed || j.Code != "content_lost" || j.Error == nil || j.Error.Status != 500 {
			t.Errorf("the job is %s %s with %+v, want failed content_lost with status 500", j.State, j.Code, j.Error)
		}
	}
	if fine = e.end(fine); fine.State != Succeeded {
		t.Fatalf("the job is %s %s, want succeeded", fine.State, fine.Code)
	}
	if err := os.Remove(path(outBlob(fine.ID, 1))); err != nil {
		t.Fatal(err)
	}
	var public *wire.Error
	if _, err := e.Result(t.Context(), fine); !errors.As(err, &public) || public.Code != "content_lost" {
		t.Errorf("result: %v", err)
	}
	w := e.Follow(fine)
	defer w.Close()
	if _, err := w.Next(t.Context()); !errors.As(err, &public) || public.Code != "content_lost" {
		t.Errorf("watch: %v", err)
	}
	without := envOn(t, e.srv, Options{}, Pool{ID: "p"})
	if _, err := without.Result(t.Context(), fine); !errors.Is(err, errNoBlobs) {
		t.Errorf("without a store: %v", err)
	}
}

// TestOutsideStoreFails checks that Redis keeps everything when the store accepts nothing,
// and that no job is refused or lost.
func TestOutsideStoreFails(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	if err := os.WriteFile(filepath.Join(dir, "jobs"), nil, 0o600); err != nil { // no directory can be created there
		t.Fatal(err)
	}
	e := newEnv(t, o, Pool{ID: "p"})
	e.run(echo, WorkerOptions{})
	body := text("body", 100<<10)
	if got := e.answered(body); got != "succeeded echo of "+body {
		t.Errorf("a watcher got %d bytes", len(got))
	}
	if got := blobsIn(t, dir); len(got) != 1 {
		t.Errorf("blobs %q", got)
	}
}

// TestOutsideUnmounted checks that an unmounted store is waited for and not written to.
func TestOutsideUnmounted(t *testing.T) {
	t.Parallel()
	o, dir := withBlobs(t, Options{})
	e := newEnv(t, o, Pool{ID: "p"})
	if _, err := o.Blobs.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := text("body", 100<<10)
	put := func() *Job {
		j := e.job("p", "acme", "ann", Async, 1)
		if err := e.Put(t.Context(), j, []byte(body)); err != nil {
			t.Fatal(err)
		}
		return j
	}
	before := put()
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Body(t.Context(), before); !errors.Is(err, errUnmounted) {
		t.Errorf("a body that may come back: %v", err)
	}
	if during := put(); len(blobsIn(t, dir)) != 0 {
		t.Errorf("%s is where nobody will find it", during.ID)
	} else if got, err := e.Body(t.Context(), during); err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	e.run(echo, WorkerOptions{})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	if j := e.end(before); j.State != Succeeded {
		t.Errorf("the job is %s %s, want succeeded", j.State, j.Code)
	}
}

// TestOutsideStoreHangs checks the same for a store that never answers.
func TestOutsideStoreHangs(t *testing.T) {
	saved := writeTime
	writeTime = 50 * time.Millisecond
	t.Cleanup(func() { writeTime = saved })
	ended := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redistest.Came(t, ended) }))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(ended) })
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	store, err := blob.Open(t.Context(), "s3://b?region=us-east-1&s3ForcePathStyle=true&endpoint="+srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, Options{Blobs: store, BlobAbove: blobAbove}, Pool{ID: "p"})
	e.run(echo, WorkerOptions{})
	body := text("body", 100<<10)
	if got := e.answered(body); got != "succeeded echo of "+body {
		t.Errorf("a watcher got %d bytes", len(got))
	}
}
