package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, where string) *Store {
	t.Helper()
	s, err := Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t *testing.T, s *Store, name, text string) {
	t.Helper()
	w, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *Store, name string, offset int64) string {
	t.Helper()
	r, err := s.Open(t.Context(), name, offset)
	if errors.Is(err, ErrNotFound) {
		return "(none)"
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

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	s := open(t, dir)
	conform(t, s)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v: %v", err, info.Mode())
	}
}

// conform is what any store does.
func conform(t *testing.T, s *Store) {
	t.Helper()
	write(t, s, "acme/file-1", "first")
	write(t, s, "acme/file-1", "second try")
	if got := read(t, s, "acme/file-1", 7); got != "try" {
		t.Errorf("read %q", got)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than a part
	w, err := s.Create(t.Context(), "acme/large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(large); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, "acme/large", 0); got != "(none)" {
		t.Errorf("seen before its commit: %d bytes", len(got))
	}
	if err := w.Commit(); err != nil || w.Size() != int64(len(large)) {
		t.Fatal(err, w.Size())
	}
	w.Abort() // changes nothing any more
	if got := read(t, s, "acme/large", 0); got != string(large) {
		t.Errorf("read %d bytes of %d", len(got), len(large))
	}
	w, err = s.Create(t.Context(), "acme/file-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(large); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if got := read(t, s, "acme/file-1", 0); got != "second try" {
		t.Errorf("an aborted write left %d bytes", len(got))
	}
	write(t, s, "acme/batch/1-o", "x")
	write(t, s, "acme/batch/2-o", "y")
	write(t, s, "acme/batch2/1-o", "z")
	if n, err := s.RemoveAll(t.Context(), "acme/batch/", time.Hour); n != 0 || err != nil {
		t.Errorf("removed %d young ones, %v", n, err)
	}
	if n, err := s.RemoveAll(t.Context(), "acme/batch/", -time.Second); n != 2 || err != nil || read(t, s, "acme/batch2/1-o", 0) != "z" {
		t.Errorf("removed %d, %v", n, err)
	}
	for range 2 {
		if err := s.Remove(t.Context(), "acme/large"); err != nil {
			t.Error(err)
		}
	}
	if got := read(t, s, "acme/large", 0); got != "(none)" {
		t.Error("removed and still there")
	}
	id, err := s.Identity(t.Context())
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	if again, err := s.Identity(t.Context()); again != id || err != nil {
		t.Errorf("identity %q, then %q, %v", id, again, err)
	}
}

// TestUnwritable: a store that does not take anything is noticed at once.
func TestUnwritable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Identity(t.Context()); err == nil {
		t.Error("an unwritable directory has an identity")
	}
}
