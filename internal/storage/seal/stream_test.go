package seal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func sealStream(t *testing.T, r *Ring, plain []byte, place ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := r.NewWriter(&out, place...)
	if err != nil {
		t.Fatal(err)
	}
	for rest := plain; len(rest) > 0; { // in pieces of all sizes
		n := min(len(rest), 1+rand.IntN(2*chunkSize))
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func openStream(r *Ring, sealed []byte, offset int64, place ...string) ([]byte, error) {
	s, err := r.OpenStream(sealed[:min(MaxHead, len(sealed))], place...)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return sealed[offset:], nil
	}
	return io.ReadAll(s.Reader(bytes.NewReader(sealed[min(s.At(offset), int64(len(sealed))):]), offset))
}

func text(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return out
}

// TestStreamOpens: a stream can be read from every kind of offset, at any size, and from
// readers that return little at a time.
func TestStreamOpens(t *testing.T) {
	r := ring(t, "new", "old")
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize, 3*chunkSize + 17} {
		plain := text(size)
		for _, ring := range []*Ring{r, ring(t, "old")} {
			sealed := sealStream(t, ring, plain, "acme/file-1")
			for _, off := range []int{0, 1, 16, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize, size - 1, size} {
				if off < 0 || off > size {
					continue
				}
				if got, err := openStream(r, sealed, int64(off), "acme/file-1"); err != nil || !bytes.Equal(got, plain[off:]) {
					t.Errorf("%d bytes from %d: %d bytes, %v", size, off, len(got), err)
				}
			}
			s, err := r.OpenStream(sealed[:min(MaxHead, len(sealed))], "acme/file-1")
			if err != nil {
				t.Fatal(err)
			}
			if err := iotest.TestReader(s.Reader(iotest.HalfReader(bytes.NewReader(sealed[s.At(0):])), 0), plain); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestStreamBroken: a stream that was modified, truncated, moved or reassembled does not read
// to its end, and nothing false is read before.
func TestStreamBroken(t *testing.T) {
	r := ring(t, "k")
	plain := text(3*chunkSize + 100)
	sealed := sealStream(t, r, plain, "acme/file-1")
	s, err := r.OpenStream(sealed[:MaxHead], "acme/file-1")
	if err != nil {
		t.Fatal(err)
	}
	head, full := int(s.At(0)), chunkSize+tagSize
	f := func(what string, broken []byte, place string) {
		t.Helper()
		got, err := openStream(r, broken, 0, place)
		if !errors.Is(err, ErrBroken) || !bytes.HasPrefix(plain, got) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	f("another place", sealed, "other/file-1")
	for _, n := range []int{5, head - 1, head, head + 1, head + full, head + 2*full, head + 3*full, len(sealed) - 1} {
		f("cut", sealed[:n], "acme/file-1")
	}
	for _, i := range []int{5, 10, head, head + full, len(sealed) - 1} {
		broken := bytes.Clone(sealed)
		broken[i] ^= 1
		if got, err := openStream(r, broken, 0, "acme/file-1"); err == nil || !bytes.HasPrefix(plain, got) {
			t.Errorf("byte %d changed: %d bytes, %v", i, len(got), err)
		}
	}
	one, two := sealed[head:head+full], sealed[head+full:head+2*full]
	f("chunks exchanged", bytes.Join([][]byte{sealed[:head], two, one, sealed[head+2*full:]}, nil), "acme/file-1")
	f("a chunk left out", bytes.Join([][]byte{sealed[:head], one, sealed[head+2*full:]}, nil), "acme/file-1")
	f("something behind", append(bytes.Clone(sealed), 'x'), "acme/file-1")
	other := sealStream(t, r, plain, "acme/file-1")
	f("a chunk of another stream", bytes.Join([][]byte{sealed[:head], one, other[head+full:]}, nil), "acme/file-1")
	for name, other := range map[string]*Ring{"other": ring(t, "new"), "none": nil} {
		if got, err := openStream(other, sealed, 0, "acme/file-1"); !errors.Is(err, ErrNoKey) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, failure := range []error{io.ErrClosedPipe, io.ErrUnexpectedEOF} {
		for _, n := range []int{0, 9, full} {
			cut := io.MultiReader(bytes.NewReader(sealed[head:head+full+n]), iotest.ErrReader(failure))
			got, err := io.ReadAll(s.Reader(cut, 0))
			if !errors.Is(err, failure) || errors.Is(err, ErrBroken) || !bytes.HasPrefix(plain, got) {
				t.Errorf("a reader that fails: %d bytes, %v", len(got), err)
			}
		}
	}
}

// TestStreamShows: the plain text does not occur in the stream, and two streams of it differ.
func TestStreamShows(t *testing.T) {
	r := ring(t, "k")
	plain := bytes.Repeat([]byte("a prompt that nobody may read "), 5000)
	one, two := sealStream(t, r, plain), sealStream(t, r, plain)
	if bytes.Contains(one, []byte("prompt")) || bytes.Equal(one, two) {
		t.Error("the text shows")
	}
	if want := len(plain) + 4 + 1 + 1 + saltSize + (len(plain)/chunkSize+1)*tagSize; len(one) != want {
		t.Errorf("%d bytes sealed, not %d", len(one), want)
	}
}

// TestStreamOld: data that was never encrypted is recognized.
func TestStreamOld(t *testing.T) {
	for _, r := range []*Ring{nil, ring(t, "k")} {
		for _, plain := range []string{"", "{", `{"custom_id":"1"}`} {
			if got, err := openStream(r, []byte(plain), 0); err != nil || string(got) != plain {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
}

func TestStreamWriterFails(t *testing.T) {
	r := ring(t, "k")
	w, err := r.NewWriter(&failingWriter{room: 100})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(text(3 * chunkSize)); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%d, %v", n, err)
	}
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}

type failingWriter struct{ room int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func BenchmarkStream(b *testing.B) {
	r, err := NewRing(Key{ID: "k", Secret: "the secret of the key k"})
	if err != nil {
		b.Fatal(err)
	}
	w, err := r.NewWriter(io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	part := text(chunkSize)
	b.SetBytes(chunkSize)
	for b.Loop() {
		if _, err := w.Write(part); err != nil {
			b.Fatal(err)
		}
	}
}
