package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/seal"
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

func ring(t *testing.T, id string) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(seal.Key{ID: id, Secret: "a secret for the key " + id})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	s := open(t, dir)
	conform(t, s)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v: %v", err, info.Mode())
	}
}

// TestSealed: a store with keys does all that one without does, tells nothing to
// who reads its files, and reads what was there before.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	old := strings.Repeat("an old prompt ", 20_000)
	write(t, s, "acme/old", old)
	write(t, s, "acme/empty", "")
	s.Seal(ring(t, "k"))
	conform(t, s)
	text := strings.Repeat("a secret prompt ", 20_000)
	write(t, s, "acme/new", text)
	write(t, s, "acme/new-empty", "")
	for name, want := range map[string]string{"old": old, "new": text, "empty": "", "new-empty": ""} {
		for _, off := range []int{0, 7, 100_000, 200_000, len(want)} {
			if off > len(want) {
				continue
			}
			if got := read(t, s, "acme/"+name, int64(off)); got != want[off:] {
				t.Errorf("%s from %d: %d bytes of %d", name, off, len(got), len(want)-off)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "acme", "new"))
	if err != nil || bytes.Contains(raw, []byte("prompt")) {
		t.Errorf("it lies there in the clear: %v", err)
	}
	f := func(what string, want error) {
		t.Helper()
		for _, off := range []int64{0, 100_000} {
			r, err := s.Open(t.Context(), "acme/new", off)
			if err == nil {
				_, err = io.ReadAll(r)
				_ = r.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("%s, from %d: %v, not %v", what, off, err, want)
			}
		}
	}
	f("whole", nil)
	if err := os.WriteFile(filepath.Join(dir, "acme", "new"), raw[:len(raw)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	f("cut", seal.ErrBroken)
	elsewhere, err := os.ReadFile(filepath.Join(dir, "acme", "new-empty"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "acme", "new"), elsewhere, 0o600); err != nil {
		t.Fatal(err)
	}
	f("another's", seal.ErrBroken)
	if err := os.WriteFile(filepath.Join(dir, "acme", "new"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*seal.Ring{nil, ring(t, "other")} {
		s.Seal(r)
		f("without the key", seal.ErrNoKey)
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

// TestRemoveDirectory: what is removed leaves no directory of its own, also
// while others write beside it.
func TestRemoveDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var writers sync.WaitGroup
	for _, part := range []string{"in", "out-1"} {
		writers.Go(func() {
			name := "jobs/one/" + part
			for range 100 {
				w, err := s.Create(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				if err := w.Commit(); err != nil {
					t.Error(err)
				}
				if err := s.Remove(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if left, err := os.ReadDir(filepath.Join(dir, "jobs")); err != nil || len(left) != 0 {
		t.Errorf("%v left, %v", left, err)
	}
}

// TestMounted: a directory that lies under a mount is told from what was mounted.
func TestMounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	f := func(what string, want bool) {
		t.Helper()
		if got := s.Mounted(); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	f("nothing known", true)
	if _, err := s.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	f("as it was", true)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	f("gone", false)
	if _, err := open(t, dir).Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	f("another", false)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	f("back", true)
}
