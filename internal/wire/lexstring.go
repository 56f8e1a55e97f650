package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string with its quotes.
func (l *lexer) string() error {
	if l.peek() != '"' {
		return l.unexpected()
	}
	if err := l.count(); err != nil {
		return err
	}
	i := l.pos + 1
	for {
		i = plain(l.buf, i)
		if i >= len(l.buf) {
			l.pos = len(l.buf)
			return errEnd
		}
		switch c := l.buf[i]; {
		case c == '"':
			l.pos = i + 1
			return nil
		case c != '\\':
			l.pos = i
			return errControl
		case i+1 < len(l.buf) && escapes[l.buf[i+1]] != 0:
			i += 2
		default:
			n, err := l.unicodeEscape(i)
			if err != nil {
				l.pos = i
				return err
			}
			i += n
		}
	}
}

// unicodeEscape checks the \u escape at i and returns its length.
func (l *lexer) unicodeEscape(i int) (int, error) {
	r, ok := hex4(l.buf[i:])
	if !ok {
		if len(l.buf)-i < 6 && bytes.IndexByte(l.buf[i:], '"') < 0 {
			return 0, errEnd
		}
		return 0, errEscape
	}
	if !l.strict || !utf16.IsSurrogate(r) {
		return 6, nil
	}
	low, ok := hex4(l.buf[i+6:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0, errSurrogate
	}
	return 12, nil
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plain returns the first index from i on at which b has a quote, a backslash or a control
// character, or len(b). It checks eight bytes at a time: subtracting n from each byte sets the high
// bit of the lowest byte below n, and any wrong bit is above a right one. Flipping bit 1 moves the
// quote just above the control characters, and space out of the way.
func plain(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		hit := (((w ^ 2*ones) - '!'*ones) | ((w ^ '\\'*ones) - ones)) &^ w & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

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
