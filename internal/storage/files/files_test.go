package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
)

var ann = Owner{"acme", "ann"}

func newStore(t *testing.T, srv *redistest.Server, dir string, o Options) *Store {
	t.Helper()
	blobs, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	o.Log = slog.New(slog.DiscardHandler)
	return New(srv.DB(), blobs, o)
}

func put(t *testing.T, s *Store, o Owner, purpose, text string) (*File, error) {
	t.Helper()
	up, err := s.Begin(t.Context(), o, NewID())
	if err != nil {
		t.Fatal(err)
	}
	defer up.Abort()
	if _, err := io.WriteString(up, text); err != nil {
		t.Fatal(err)
	}
	return up.Commit(t.Context(), "a.jsonl", purpose, time.Hour)
}

func must(t *testing.T, s *Store, o Owner, purpose, text string) *File {
	t.Helper()
	f, err := put(t, s, o, purpose, text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, s *Store, f *File, offset int64) string {
	t.Helper()
	r, err := s.Open(t.Context(), f, offset)
	if errors.Is(err, ErrNotFound) {
		return "(gone)"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFile(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{})
	f := must(t, s, ann, Batch, "one two")
	got, err := s.File(t.Context(), ann, f.ID)
	if err != nil || *got != *f || got.Bytes != 7 || got.Name != "a.jsonl" || got.Expires.Sub(got.Created) != time.Hour {
		t.Errorf("%v: %+v, want %+v", err, got, f)
	}
	if text := read(t, s, got, 4); text != "two" {
		t.Errorf("read %q", text)
	}
	for _, o := range []Owner{{"acme", "bob"}, {"other", "ann"}} {
		if _, err := s.File(t.Context(), o, f.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v sees it: %v", o, err)
		}
		if err := s.Remove(t.Context(), o, f.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v removes it: %v", o, err)
		}
	}
	for _, id := range []string{"", "file-", f.ID + "x", "file-../../../../../../../etc", strings.ToUpper(f.ID)} {
		if _, err := s.File(t.Context(), ann, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := s.Remove(t.Context(), ann, f.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.File(t.Context(), ann, f.ID); !errors.Is(err, ErrNotFound) || read(t, s, f, 0) != "(gone)" {
		t.Errorf("removed: %v, %q", err, read(t, s, f, 0))
	}
}

// TestAbort: an uncommitted file does not exist, and leaves nothing that the sweep would miss.
func TestAbort(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{})
	up, err := s.Begin(t.Context(), ann, NewID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := up.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	f := &File{ID: up.id, Owner: ann}
	if text := read(t, s, f, 0); text != "(gone)" {
		t.Errorf("seen before its commit: %.20q", text)
	}
	up.Abort()
	if text := read(t, s, f, 0); text != "(gone)" {
		t.Errorf("seen after its abort: %.20q", text)
	}
}

// TestCommitTwice: a commit that is repeated after a lost reply counts once.
func TestCommitTwice(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{OrgBytes: 10})
	id := NewID()
	var first *File
	for range 3 {
		up, err := s.Begin(t.Context(), ann, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(up, "12345"); err != nil {
			t.Fatal(err)
		}
		f, err := up.Commit(t.Context(), "a.jsonl", Batch, time.Hour)
		if err != nil || first != nil && *f != *first {
			t.Fatalf("%v: %+v", err, f)
		}
		first = f
	}
	must(t, s, ann, Batch, "12345") // still within the limit
}

func TestOrgBytes(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{OrgBytes: 10})
	f := must(t, s, ann, Batch, "1234567")
	if _, err := put(t, s, Owner{"acme", "bob"}, Batch, "1234"); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the bound: %v", err)
	}
	must(t, s, Owner{"other", "ann"}, Batch, "1234")
	must(t, s, ann, BatchOutput, "1234567") // the output of a batch is never refused
	if err := s.Room(t.Context(), ann); !errors.Is(err, ErrFull) {
		t.Errorf("room beyond the bound: %v", err)
	}
	if err := s.Remove(t.Context(), ann, f.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Room(t.Context(), ann); err != nil {
		t.Errorf("no room after a removal: %v", err)
	}
	must(t, s, ann, Batch, "123")
}

func TestList(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{})
	var ids []string
	for i := range 5 {
		purpose := Batch
		if i%2 == 1 {
			purpose = BatchOutput
		}
		ids = append(ids, must(t, s, ann, purpose, fmt.Sprint(i)).ID)
	}
	must(t, s, Owner{"acme", "bob"}, Batch, "not hers")
	pages := func(f Filter) (all []string) {
		for {
			page, more, err := s.List(t.Context(), ann, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page {
				all = append(all, one.ID)
			}
			if !more {
				return all
			}
			f.After = all[len(all)-1]
		}
	}
	if got := pages(Filter{Limit: 2, Oldest: true}); !slices.Equal(got, ids) {
		t.Errorf("oldest first: %v, want %v", got, ids)
	}
	if got := pages(Filter{Limit: 1, Purpose: BatchOutput}); !slices.Equal(got, []string{ids[3], ids[1]}) {
		t.Errorf("outputs: %v of %v", got, ids)
	}
	if _, _, err := s.List(t.Context(), ann, Filter{Limit: 1, After: NewID()}); !errors.Is(err, ErrNotFound) {
		t.Errorf("after an unknown one: %v", err)
	}
}

// TestSweep: content is deleted if its file has expired or was never completed, but not while a
// batch reads it.
func TestSweep(t *testing.T) {
	s := newStore(t, redistest.Start(t), t.TempDir(), Options{})
	at := func(d time.Duration) time.Time {
		now := time.Now().Add(d)
		s.clock = fmt.Sprint(now.UnixMicro())
		return now
	}
	short, kept, deleted := must(t, s, ann, Batch, "short"), must(t, s, ann, Batch, "kept"), must(t, s, ann, Batch, "deleted")
	for _, f := range []*File{kept, deleted} {
		if err := s.Keep(t.Context(), f, time.Now().Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(t.Context(), ann, deleted.ID); err != nil {
		t.Fatal(err)
	}
	// A process died after writing the content and before the record.
	orphan, err := s.Begin(t.Context(), ann, NewID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(orphan, "orphan"); err != nil {
		t.Fatal(err)
	}
	if err := orphan.w.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after                       time.Duration
		short, kept, deleted, orphn string
	}{
		{30 * time.Minute, "short", "kept", "deleted", "orphan"},
		{2 * time.Hour, "(gone)", "kept", "deleted", "orphan"},
		{25 * time.Hour, "(gone)", "kept", "deleted", "(gone)"},
		{49 * time.Hour, "(gone)", "(gone)", "(gone)", "(gone)"},
	} {
		if err := s.sweep(t.Context(), at(step.after)); err != nil {
			t.Fatal(err)
		}
		got := []string{read(t, s, short, 0), read(t, s, kept, 0), read(t, s, deleted, 0), read(t, s, &File{ID: orphan.id, Owner: ann}, 0)}
		if want := []string{step.short, step.kept, step.deleted, step.orphn}; !slices.Equal(got, want) {
			t.Errorf("after %v: %q, want %q", step.after, got, want)
		}
	}
	if err := s.Keep(t.Context(), short, time.Now().Add(time.Hour)); !errors.Is(err, ErrNotFound) {
		t.Errorf("kept an expired file: %v", err)
	}
}

// TestAgree: processes with another directory do not start, and an emptied directory is
// detected.
func TestAgree(t *testing.T) {
	srv, dir := redistest.Start(t), t.TempDir()
	for range 2 {
		if err := newStore(t, srv, dir, Options{}).Agree(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := newStore(t, srv, t.TempDir(), Options{}).Agree(t.Context()); err == nil || !strings.Contains(err.Error(), "files.store") {
		t.Errorf("another directory: %v", err)
	}
}
