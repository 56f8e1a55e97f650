package tokenizer

import (
	"math/rand/v2"
	"testing"
)

// TestStreamEqualsWhole: a stream split anywhere, even inside characters, counts like the whole
// text so far.
func TestStreamEqualsWhole(t *testing.T) {
	n := rounds(4_000, 200_000)
	eachOurs(t, func(t *testing.T, enc Encoding) {
		t.Parallel()
		mix := newMixer(t, enc)
		for range n {
			var text []byte
			for range 1 + mix.IntN(4) {
				text = append(text, mix.text()...)
			}
			checkStream(t, enc, text, mix.Rand)
		}
	})
}

// checkStream writes text in random pieces, calling Count now and then.
func checkStream(t *testing.T, enc Encoding, text []byte, r *rand.Rand) {
	t.Helper()
	s := NewStream(enc)
	for i := 0; i < len(text); {
		n := min(r.IntN(12), len(text)-i)
		s.Write(text[i : i+n])
		i += n
		if r.IntN(3) > 0 {
			continue
		}
		upper, got, want := s.Upper(), s.Count(), Count(enc, text[:i])
		if got != want || upper < want || s.Count() != want {
			t.Fatalf("after %q: Count %d, want %d, Upper %d", text[:i], got, want, upper)
		}
	}
	if got, want := s.Count(), Count(enc, text); got != want {
		t.Fatalf("Count of %q = %d, want %d", text, got, want)
	}
}

// TestStreamTwoWrites: every split of texts whose pieces depend on what follows.
func TestStreamTwoWrites(t *testing.T) {
	for _, enc := range []Encoding{O200k, CL100k, R50k} {
		for _, text := range []string{
			"we'll we'LL 'S x'", "1234567", "a  b\n \n  c", "ABCдЕdÉf中ABC中", "end.//\r\n/x", "  \t", "x\u0301\u0302y", "日本語のテキスト、です。", "\xe2\x82\xe2\x82\xac\xf0\x9f\x98\x80\xff", "SomeHTTPServer", "'", "l'",
		} {
			for i := range text {
				s := NewStream(enc)
				s.Write([]byte(text[:i]))
				if got, want := s.Count(), count(enc, text[:i]); got != want {
					t.Errorf("%v %q: %d, want %d", enc, text[:i], got, want)
				}
				s.Write([]byte(text[i:]))
				if got, want := s.Count(), count(enc, text); got != want {
					t.Errorf("%v %q + %q: %d, want %d", enc, text[:i], text[i:], got, want)
				}
			}
		}
	}
}

// TestStreamLong: long texts with pieces above the window, and chunks of the encodings of
// tiktoken-go.
func TestStreamLong(t *testing.T) {
	for _, c := range []struct {
		enc  Encoding
		text []byte
	}{
		{O200k, hostileText("a", 200_000)},
		{O200k, hostileText("random-cjk", 150_000)},
		{CL100k, hostileText("spaces", 150_000)},
		{R50k, kinds[0].text(5_000)},
		{P50k, hostileText("random-cjk", 5_000)},
	} {
		s := NewStream(c.enc)
		for i := 0; i < len(c.text); i += 997 {
			s.Write(c.text[i:min(i+997, len(c.text))])
		}
		if got, want := s.Count(), Count(c.enc, c.text); got != want {
			t.Errorf("%v %.20q: %d, want %d", c.enc, c.text, got, want)
		}
	}
}

// TestStreamForgets: a stream of prose keeps a word, not the text.
func TestStreamForgets(t *testing.T) {
	s, text := NewStream(O200k), kinds[0].text(50_000)
	for i := 0; i+5 <= len(text); i += 5 {
		if s.Write(text[i : i+5]); len(s.tail) > 100 {
			t.Fatalf("keeps %d bytes after %d", len(s.tail), i)
		}
	}
}

func TestStreamEmpty(t *testing.T) {
	s := NewStream(O200k)
	s.Write(nil)
	if s.Count() != 0 || s.Upper() != 0 {
		t.Errorf("empty stream: %d, %d", s.Count(), s.Upper())
	}
}

func hostileText(name string, size int) []byte {
	for _, h := range hostile {
		if h.name == name {
			return h.text(size)
		}
	}
	panic("no hostile text " + name)
}
