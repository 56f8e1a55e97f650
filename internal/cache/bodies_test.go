package cache

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/blobtest"
)

// inFiles returns a cache whose bodies are below dir.
func inFiles(t *testing.T, rdb redis.UniversalClient, dir string) (*shelf, *blob.Store) {
	blobs := blobtest.Open(t, dir)
	return &shelf{New(redistest.DB(rdb), Options{Blobs: blobs, InFiles: true}), t, rdb}, blobs
}

// is checks an answer's body; "" means that there is no answer.
func (s *shelf) is(what, org, id, want string) {
	s.t.Helper()
	a, err := s.Get(s.t.Context(), org, id)
	got := ""
	if a != nil {
		got = string(a.Body)
	}
	if err != nil || got != want {
		s.t.Errorf("%s: got %q, %v; want %q", what, got, err, want)
	}
}

// exists checks which files there are.
func exists(t *testing.T, what string, want bool, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: got %v of %s, want that it exists: %v", what, err, path, want)
		}
	}
}

var hour = Bound{Life: time.Hour, MaxBytes: 1 << 20}

// TestBodiesInFiles: all processes find an answer whose body is a file, which nobody can read
// without the keys, and one whose file is missing or not the one that was stored is not found.
func TestBodiesInFiles(t *testing.T) {
	rdb, dir, ctx := redistest.Start(t).Client(), t.TempDir(), t.Context()
	s, blobs := inFiles(t, rdb, dir)
	s.Seal(ringOf(t, "old"))
	blobs.Seal(ringOf(t, "old"))
	s.try(s.Put(ctx, "acme", "1f", answerOf("a secret answer"), hour), s.Put(ctx, "acme", "2f", answerOf("another secret"), hour))
	reader := &shelf{New(redistest.DB(rdb), Options{Blobs: blobs, Seal: ringOf(t, "old")}), t, rdb}
	reader.is("by another process", "acme", "1f", "a secret answer")
	reader.is("of another org", "other", "1f", "")
	(&shelf{New(redistest.DB(rdb), Options{Seal: ringOf(t, "old")}), t, rdb}).is("without files.store", "acme", "1f", "")

	path := filepath.Join(dir, "cache", "acme", "1f")
	raw, err := os.ReadFile(path)
	s.try(err)
	text := rdb.Get(ctx, "lg:{acme}:cache:1f").Val()
	if bytes.Contains(raw, []byte("secret")) || text == "" || strings.Contains(text, "secret") {
		t.Errorf("got %q in the file and %q in Redis, want both encrypted", raw, text)
	}
	other, err := os.ReadFile(filepath.Join(dir, "cache", "acme", "2f"))
	s.try(err)
	for what, data := range map[string][]byte{"another answer's file": other, "a torn file": raw[:len(raw)-1], "an empty file": {}} {
		s.try(os.WriteFile(path, data, 0o600))
		s.is(what, "acme", "1f", "")
	}
	blobtest.Write(t, blobs, "cache/acme/1f", "a later answer")
	s.is("a file written again", "acme", "1f", "")
	s.try(os.Remove(path))
	s.is("a missing file", "acme", "1f", "")
	s.try(s.Put(ctx, "acme", "1f", answerOf("a new answer"), hour))
	s.is("stored again", "acme", "1f", "a new answer")
	blobs.Seal(ringOf(t, "new"))
	s.is("a file whose key is gone", "acme", "1f", "")
}

// TestBodiesCount: bodies in files count towards the org's bound and not towards Redis, and an
// eviction deletes them.
func TestBodiesCount(t *testing.T) {
	rdb, dir, ctx := redistest.Start(t).Client(), t.TempDir(), t.Context()
	s, _ := inFiles(t, rdb, dir)
	in := Bound{Life: time.Hour, MaxBytes: 50_000}
	for _, id := range []string{"1", "2", "3"} {
		s.try(s.put(id, 20_000, in))
	}
	at := func(id string) string { return filepath.Join(dir, "cache", "acme", id) }
	exists(t, "evicted", false, at("1"))
	exists(t, "stored", true, at("2"), at("3"))
	s.is("stored", "acme", "3", strings.Repeat("x", 20_000))
	own, _ := rdb.HGet(ctx, "lg:{acme}:cache:sums", "all").Int64()
	memory, _ := rdb.HGet(ctx, "lg:{capacity}:sums", "o acme").Int64()
	var texts int64
	for _, id := range []string{"2", "3"} {
		texts += rdb.StrLen(ctx, "lg:{acme}:cache:"+id).Val() + recordBytes
	}
	if own != texts+40_000 || memory != texts {
		t.Errorf("got %d bytes of the org, %d of them in Redis; want %d and %d", own, memory, texts+40_000, texts)
	}
	if err := s.put("4", 50_001, in); !capacity.IsFull(err) {
		t.Errorf("got %v for a body above the bound, want that there is no room", err)
	}
	exists(t, "refused", false, at("4"))
	exists(t, "after a refusal", true, at("2"), at("3"))
	if err := s.put("5", 49_900, in); !capacity.IsFull(err) {
		t.Errorf("got %v for an answer above the bound, want that there is no room", err)
	}
	exists(t, "refused by Redis", false, at("5"))
}

// TestFilesUnavailable: without its files, a cache stores nothing, and a file system that hangs
// does not make a lookup wait.
func TestFilesUnavailable(t *testing.T) {
	rdb, dir, ctx := redistest.Start(t).Client(), filepath.Join(t.TempDir(), "store"), t.Context()
	s, blobs := inFiles(t, rdb, dir)
	_, err := blobs.Identity(ctx)
	s.try(err, s.put("1", 10, hour))
	path := filepath.Join(dir, "cache", "acme", "1")
	s.try(os.Remove(path), syscall.Mkfifo(path, 0o600))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if a, err := s.Get(short, "acme", "1"); a != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v of files that hang; want the end of the time", a, err)
	}
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // lets the reader end
	s.try(err, pipe.Close(), os.Rename(dir, dir+"-moved"))
	if a, err := s.Get(ctx, "acme", "1"); a != nil || !errors.Is(err, errUnmounted) {
		t.Errorf("got %+v, %v without files; want that they are not mounted", a, err)
	}
	if err := s.put("2", 10, hour); !errors.Is(err, errUnmounted) || capacity.IsFull(err) {
		t.Errorf("got %v without files; want that they are not mounted", err)
	}
	if n := rdb.Exists(ctx, "lg:{acme}:cache:2").Val(); n != 0 {
		t.Error("an answer without a body is in Redis")
	}
}

const childDir, childRedis = "LLMGUARD_TEST_CACHE_DIR", "LLMGUARD_TEST_CACHE_REDIS"

// TestKilledBetweenBodyAndIndex: what a process wrote that was killed before Redis had the answer
// is never served, also not as an earlier answer, and is swept.
func TestKilledBetweenBodyAndIndex(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" { // the process that is killed
		silent := redis.NewClient(&redis.Options{Addr: os.Getenv(childRedis), ReadTimeout: time.Hour, DialTimeout: time.Hour, MaxRetries: -1})
		s, _ := inFiles(t, silent, dir)
		t.Fatal("not killed: ", errors.Join(s.Put(t.Context(), "acme", "1f", answerOf("new 1"), hour), silent.Close()))
	}
	rdb, dir, ctx := redistest.Start(t).Client(), t.TempDir(), t.Context()
	s, blobs := inFiles(t, rdb, dir)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a Redis that accepts connections and does not answer
	s.try(err)
	t.Cleanup(func() { _ = silent.Close() })
	path := filepath.Join(dir, "cache", "acme", "1f")
	kill := func(before []byte) {
		t.Helper()
		child := redistest.Process(t, os.Args[0], "-test.run=^TestKilledBetweenBodyAndIndex$")
		child.Env = append(os.Environ(), childDir+"="+dir, childRedis+"="+silent.Addr().String())
		s.try(child.Start())
		redistest.Eventually(t, "the child wrote the body", func() bool {
			now, err := os.ReadFile(path)
			return err == nil && !bytes.Equal(now, before)
		})
		s.try(child.Process.Kill())
		_ = child.Wait()
	}
	kill(nil)
	s.is("a body without an answer", "acme", "1f", "")
	if n, err := s.sweep(ctx, time.Now().Add(-sweepAge)); n != 0 || err != nil {
		t.Errorf("got %d, %v of a sweep; want that a new body stays", n, err)
	}
	if n, err := s.sweep(ctx, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("got %d, %v of a sweep; want one body swept", n, err)
	}
	exists(t, "swept", false, path)

	s.try(s.Put(ctx, "acme", "1f", answerOf("old 1"), hour))
	kill([]byte("old 1"))
	if got := blobtest.Read(t, blobs, "cache/acme/1f", 0); got != "new 1" {
		t.Fatalf("got body %q, want that of the killed process", got)
	}
	s.is("a body that is not of the answer", "acme", "1f", "")
	s.try(s.Put(ctx, "acme", "1f", answerOf("new 2"), hour))
	s.is("stored again", "acme", "1f", "new 2")
}

// TestSweep: bodies of answers that expired or were deleted are removed an hour after they were
// written, and nothing else.
func TestSweep(t *testing.T) {
	rdb, dir, ctx := redistest.Start(t).Client(), t.TempDir(), t.Context()
	s, blobs := inFiles(t, rdb, dir)
	for _, id := range []string{"1", "2", "3"} {
		s.try(s.put(id, 10, hour))
	}
	s.try(s.Put(ctx, "other", "1", answerOf("x"), hour))
	for _, name := range []string{"cache/file-1f", "jobs/1f/in", "acme/file-1", "cache/acme/file-x"} { // not ours
		blobtest.Write(t, blobs, name, "x")
	}
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	s.try(os.WriteFile(at("cache/acme/2.17e.tmp"), nil, 0o600), os.WriteFile(at("cache/acme/9.17e.tmp"), nil, 0o600))
	rdb.Del(ctx, "lg:{acme}:cache:1", "lg:{acme}:cache:3")
	old := time.Now().Add(-sweepAge - time.Minute)
	for _, name := range []string{
		"cache/acme/1", "cache/acme/2", "cache/acme/2.17e.tmp", "cache/acme/9.17e.tmp", "cache/other/1", "cache/file-1f", "jobs/1f/in",
		"acme/file-1", "cache/acme/file-x",
	} {
		s.try(os.Chtimes(at(name), old, old))
	}
	s.try(s.sweepOnce(ctx))
	exists(t, "swept", false, at("cache/acme/1"), at("cache/acme/2.17e.tmp"), at("cache/acme/9.17e.tmp"))
	exists(t, "kept", true, at("cache/acme/2"), at("cache/acme/3"), at("cache/other/1"), at("cache/file-1f"), at("jobs/1f/in"),
		at("acme/file-1"), at("cache/acme/file-x"))
	s.is("kept", "acme", "2", strings.Repeat("x", 10))
	s.try(os.Chtimes(at("cache/acme/3"), old, old), s.sweepOnce(ctx))
	exists(t, "swept by another process in this interval", true, at("cache/acme/3"))
	rdb.Del(ctx, sweepKey)
	s.try(s.sweepOnce(ctx))
	exists(t, "swept later", false, at("cache/acme/3"))
	_ = rdb.Close()
	if n, err := s.sweep(ctx, time.Now().Add(time.Hour)); n != 0 || err == nil {
		t.Errorf("got %d, %v without Redis; want nothing swept and an error", n, err)
	}
}
