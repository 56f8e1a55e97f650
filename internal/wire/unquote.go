package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// appendUnquoted appends the text of a JSON string, given without its quotes, to dst. It accepts
// anything: an invalid escape becomes U+FFFD, as an unpaired surrogate does, and bytes that are not
// UTF-8 are kept. The text of a valid string is never longer than the string.
func appendUnquoted(dst, inner []byte) []byte {
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 {
			return append(dst, inner...)
		}
		dst = append(dst, inner[:i]...)
		inner = inner[i:]
		if len(inner) >= 2 {
			if c := escapes[inner[1]]; c != 0 {
				dst = append(dst, c)
				inner = inner[2:]
				continue
			}
		}
		r, n := decodeEscape(inner)
		dst = utf8.AppendRune(dst, r)
		inner = inner[n:]
	}
}

// escapes maps the letter of a two-character escape to its meaning.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/',
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// decodeEscape decodes the \u escape (or pair of them) at the start of b and returns how many bytes
// it takes, at least one.
func decodeEscape(b []byte) (r rune, n int) {
	r, ok := hex4(b)
	if !ok {
		return utf8.RuneError, min(2, len(b))
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := hex4(b[6:])
	if !ok {
		return utf8.RuneError, 6
	}
	if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// hex4 decodes a \uXXXX escape at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		v := hexValue[c]
		if v == 0xff {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}

// hexValue maps a hex digit to its value and any other byte to 0xff.
var hexValue = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i := range 10 {
		table['0'+i] = byte(i)
	}
	for i := range 6 {
		table['a'+i], table['A'+i] = byte(10+i), byte(10+i)
	}
	return table
}()
