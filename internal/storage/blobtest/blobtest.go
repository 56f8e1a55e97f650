// Package blobtest tests that a blob store follows the rules of all stores.
package blobtest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

// None is what Read returns for a blob that does not exist.
const None = "(none)"

// Open opens a store and closes it when the test ends.
func Open(t *testing.T, where string) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Write writes a blob and commits it.
func Write(t *testing.T, s *blob.Store, name, text string) {
	t.Helper()
	w := begin(t, s, name, []byte(text))
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// Read returns a blob from an offset, or None.
func Read(t *testing.T, s *blob.Store, name string, offset int64) string {
	t.Helper()
	r, err := s.Open(t.Context(), name, offset)
	if errors.Is(err, blob.ErrNotFound) {
		return None
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Ring returns a ring with one key.
func Ring(t *testing.T, id string) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(seal.Key{ID: id, Secret: "a secret for the key " + id})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Conform runs the rules as subtests on an empty store.
func Conform(t *testing.T, s *blob.Store) {
	t.Helper()
	rules := []struct {
		name  string
		check func(*testing.T, *blob.Store)
	}{
		{"a commit replaces", replaces},
		{"a reader sees only commits", hidesUncommitted},
		{"an abort leaves nothing", aborts},
		{"offsets", offsets},
		{"each lists by prefix", lists},
		{"remove", removes},
		{"names", refusesNames},
		{"the identity stays", keepsIdentity},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.check(t, s) })
	}
}

func replaces(t *testing.T, s *blob.Store) {
	Write(t, s, "acme/file-1", "first")
	Write(t, s, "acme/file-1", "second try")
	expect(t, s, "acme/file-1", "second try")
	Write(t, s, "acme/file-1", "")
	expect(t, s, "acme/file-1", "")
}

func hidesUncommitted(t *testing.T, s *blob.Store) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // several parts
	w := begin(t, s, "acme/large", large)
	expect(t, s, "acme/large", None)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(len(large)) {
		t.Errorf("got size %d, want %d", w.Size(), len(large))
	}
	w.Abort() // no effect after a commit
	expect(t, s, "acme/large", string(large))
}

func aborts(t *testing.T, s *blob.Store) {
	Write(t, s, "acme/kept", "old")
	for _, size := range []int{10, 11 << 20} {
		w := begin(t, s, "acme/kept", make([]byte, size))
		w.Abort()
		expect(t, s, "acme/kept", "old")
	}
}

func offsets(t *testing.T, s *blob.Store) {
	text := string(bytes.Repeat([]byte("0123456789"), 20_000))
	Write(t, s, "acme/offsets", text)
	for _, from := range []int{0, 1, 7, 100_000, len(text) - 1, len(text)} {
		got := Read(t, s, "acme/offsets", int64(from))
		if got != text[from:] {
			t.Errorf("from %d: got %d bytes, want %d", from, len(got), len(text)-from)
		}
	}
	Write(t, s, "acme/empty", "")
	if got := Read(t, s, "acme/empty", 0); got != "" {
		t.Errorf("got %q of an empty blob", got)
	}
}

func lists(t *testing.T, s *blob.Store) {
	for _, name := range []string{"acme/batch/1-o", "acme/batch/2-o", "acme/batch2/1-o"} {
		Write(t, s, name, "x")
	}
	for prefix, want := range map[string][]string{
		"acme/batch/":   {"acme/batch/1-o", "acme/batch/2-o"},
		"acme/batch":    {"acme/batch/1-o", "acme/batch/2-o", "acme/batch2/1-o"},
		"acme/batch/2":  {"acme/batch/2-o"},
		"nothing/here/": nil,
	} {
		var got []string
		err := s.Each(t.Context(), prefix, func(name string, at time.Time) error {
			if age := time.Since(at); age > time.Hour || age < -time.Hour {
				t.Errorf("%s was written at %s", name, at)
			}
			got = append(got, name)
			return nil
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("prefix %q: got %q and %v, want %q", prefix, got, err, want)
		}
	}
	end := errors.New("enough")
	if err := s.Each(t.Context(), "acme/batch/", func(string, time.Time) error { return end }); !errors.Is(err, end) {
		t.Errorf("got %v, want the error of the function", err)
	}
}

func removes(t *testing.T, s *blob.Store) {
	for _, name := range []string{"acme/old/1", "acme/old/2", "acme/older/1"} {
		Write(t, s, name, "x")
	}
	for range 2 {
		if err := s.Remove(t.Context(), "acme/older/1"); err != nil {
			t.Error(err)
		}
		expect(t, s, "acme/older/1", None)
	}
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{time.Hour, 0}, {-time.Hour, 2}, {-time.Hour, 0}} {
		if got, err := s.RemoveAll(t.Context(), "acme/old/", c.age); got != c.want || err != nil {
			t.Errorf("older than %s: removed %d and %v, want %d", c.age, got, err, c.want)
		}
	}
}

func refusesNames(t *testing.T, s *blob.Store) {
	for _, name := range []string{"", ".", "/etc/passwd", "../up", "a/../../up", "a//b", "a/"} {
		_, read := s.Open(t.Context(), name, 0)
		_, write := s.Create(t.Context(), name)
		if read == nil || write == nil || s.Remove(t.Context(), name) == nil {
			t.Errorf("%q is taken as a name", name)
		}
	}
}

func keepsIdentity(t *testing.T, s *blob.Store) {
	id, err := s.Identity(t.Context())
	if err != nil || id == "" {
		t.Fatalf("got %q and %v", id, err)
	}
	if again, err := s.Identity(t.Context()); again != id || err != nil {
		t.Errorf("got %q and %v, want %q again", again, err, id)
	}
}

func begin(t *testing.T, s *blob.Store, name string, data []byte) *blob.Writer {
	t.Helper()
	w, err := s.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	return w
}

func expect(t *testing.T, s *blob.Store, name, want string) {
	t.Helper()
	got := Read(t, s, name, 0)
	if got != want {
		t.Errorf("%s: got %d bytes %.20q, want %d", name, len(got), got, len(want))
	}
}
