package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/blobtest"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

func TestDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	s := blobtest.Open(t, dir)
	blobtest.Conform(t, s)
	blobtest.Write(t, s, "acme/file", "text")
	for path, want := range map[string]os.FileMode{
		dir:                                0o700,
		filepath.Join(dir, "acme"):         0o700,
		filepath.Join(dir, "acme", "file"): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got mode %o, want %o", path, got, want)
		}
	}
}

// TestDirectoryOnDisk: a blob is a file of the same name, as in all releases, and neither a
// commit nor an abort leaves other files.
func TestDirectoryOnDisk(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
	blobtest.Write(t, s, "acme/sub-1/file_1", "text")
	w, err := s.Create(t.Context(), "acme/sub-1/other")
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	got := files(t, dir)
	if want := []string{"acme/sub-1/file_1"}; !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	earlier := filepath.Join(dir, "acme", "earlier")
	if err := os.WriteFile(earlier, []byte("of an earlier release"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := blobtest.Read(t, s, "acme/earlier", 3), "an earlier release"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := blobtest.Read(t, s, "acme/sub-1", 0); got != blobtest.None {
		t.Errorf("got %q of a directory, want no blob", got)
	}
}

// files returns the paths of all files below dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCancel: cancelling the context of a write aborts it.
func TestCancel(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, "acme/file")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Commit(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v from a commit, want that it is cancelled", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("got files %q, want none", got)
	}
}

// TestIdentityRace: processes that first use a directory concurrently agree on its identity.
func TestIdentityRace(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 16)
	var users sync.WaitGroup
	for i := range ids {
		s := blobtest.Open(t, dir)
		users.Go(func() {
			id, err := s.Identity(t.Context())
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	redistest.Wait(t, users.Wait)
	slices.Sort(ids)
	if got := slices.Compact(ids); len(got) != 1 {
		t.Errorf("got identities %q, want one", got)
	}
}

// TestSealed: a store with keys works like one without, its files reveal nothing, and older
// unencrypted blobs stay readable.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
	old := strings.Repeat("an old prompt ", 20_000)
	blobtest.Write(t, s, "prior/old", old)
	blobtest.Write(t, s, "prior/old-empty", "")
	s.Seal(blobtest.Ring(t, "k"))
	blobtest.Conform(t, s)
	text := strings.Repeat("a secret prompt ", 20_000)
	blobtest.Write(t, s, "prior/new", text)
	blobtest.Write(t, s, "prior/new-empty", "")
	for name, want := range map[string]string{"old": old, "new": text, "old-empty": "", "new-empty": ""} {
		for _, from := range []int{0, 7, 100_000, 200_000, len(want)} {
			if from > len(want) {
				continue
			}
			if got := blobtest.Read(t, s, "prior/"+name, int64(from)); got != want[from:] {
				t.Errorf("%s from %d: got %d bytes, want %d", name, from, len(got), len(want)-from)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "prior", "new"))
	if err != nil || bytes.Contains(raw, []byte("prompt")) {
		t.Errorf("the file shows the text: %v", err)
	}
}

// TestSealBroken: an encrypted blob that was truncated or swapped cannot be read, nor one whose
// key is missing.
func TestSealBroken(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
	s.Seal(blobtest.Ring(t, "k"))
	blobtest.Write(t, s, "file", strings.Repeat("a secret prompt ", 20_000))
	blobtest.Write(t, s, "other", "another text")
	whole, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		ring *seal.Ring
		want error
	}{
		{"whole", whole, blobtest.Ring(t, "k"), nil},
		{"cut", whole[:len(whole)-1], blobtest.Ring(t, "k"), seal.ErrBroken},
		{"exchanged", other, blobtest.Ring(t, "k"), seal.ErrBroken},
		{"without keys", whole, nil, seal.ErrNoKey},
		{"with another key", whole, blobtest.Ring(t, "other"), seal.ErrNoKey},
	} {
		if err := os.WriteFile(filepath.Join(dir, "file"), c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Seal(c.ring)
		for _, from := range []int64{0, 100_000} {
			if got := readError(t, s, "file", from); !errors.Is(got, c.want) {
				t.Errorf("%s, from %d: got %v, want %v", c.name, from, got, c.want)
			}
		}
	}
}

// readError reads a blob to its end and returns the error.
func readError(t *testing.T, s *blob.Store, name string, from int64) error {
	t.Helper()
	r, err := s.Open(t.Context(), name, from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	_, err = io.ReadAll(r)
	return err
}

// TestUnwritable: a store that cannot be written to is detected immediately.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600); err != nil { // a file where a directory must be
		t.Fatal(err)
	}
	if id, err := s.Identity(t.Context()); err == nil {
		t.Errorf("got identity %q, want an error", id)
	}
}

// TestRemoveDirectory: removing blobs leaves no empty directories, even with concurrent writes.
func TestRemoveDirectory(t *testing.T) {
	dir := t.TempDir()
	s := blobtest.Open(t, dir)
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
	redistest.Wait(t, writers.Wait)
	if left, err := os.ReadDir(filepath.Join(dir, "jobs")); err != nil || len(left) != 0 {
		t.Errorf("%v left, %v", left, err)
	}
}

// TestMounted: the directory below a mount point is not the mounted one.
func TestMounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := blobtest.Open(t, dir)
	expect := func(state string, want bool) {
		t.Helper()
		if got := s.Mounted(); got != want {
			t.Errorf("%s: got %v, want %v", state, got, want)
		}
	}
	expect("before the identity is known", true)
	if _, err := s.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("mounted", true)
	move(t, dir, dir+"-moved")
	expect("unmounted", false)
	if _, err := blobtest.Open(t, dir).Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("another is mounted", false)
	move(t, dir, dir+"-other")
	move(t, dir+"-moved", dir)
	expect("mounted again", true)
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
