package tokenizer

import (
	"testing"
	"unicode/utf8"
)

// TestValidEqualsUTF8: every sequence of two bytes, the possible successors of each lead byte, and
// random text, at every position in a machine word.
func TestValidEqualsUTF8(t *testing.T) {
	check := func(text []byte) {
		t.Helper()
		for shift := range 9 {
			padded := append([]byte("0123456789012345")[:shift+8*(shift&1)], text...)
			wide, valid := wideBytes(padded)
			if valid != utf8.Valid(padded) || wide != nonASCII(padded) {
				t.Fatalf("%q: %v, %d wide", padded, valid, wide)
			}
		}
	}
	for a := range 256 {
		for b := range 256 {
			check([]byte{byte(a), byte(b)})
			if a >= 0xE0 {
				for _, rest := range []string{"\x80", "\xbf", "\x80\x80", "\xbf\xbf", "\x80a", "\xbf\xc2\x80", "\x80\x80\x80"} {
					check(append([]byte{byte(a), byte(b)}, rest...))
				}
			}
		}
	}
	check([]byte("\xc2" + "0123456701234567" + "\x80")) // a word of ASCII inside a character
	mix := newMixer(t, O200k)
	for range rounds(20_000, 400_000) {
		check(mix.text())
	}
}
