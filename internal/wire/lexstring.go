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
