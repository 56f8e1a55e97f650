package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// seams are the pairs of characters that no token crosses. Merges cannot join across such a place,
// so a piece may be cut there and its parts counted separately. In Chinese, Japanese and Korean,
// whose pieces are whole clauses, that leaves words of a few characters. It is a bitmap over hashed
// pairs of characters: a collision hides a seam, which costs time but never a wrong count.
type seams struct {
	bits [1 << (seamBits - 6)]uint64
}

const seamBits = 19

// anyRune represents every character in a pair.
const anyRune = 0

func seamHash(a, b uint32) uint32 {
	return uint32((uint64(a)<<21 | uint64(b)) * mixer >> (64 - seamBits))
}

func (m *seams) mark(a, b uint32) {
	h := seamHash(a, b)
	m.bits[h>>6] |= 1 << (h & 63)
}

func (m *seams) marked(a, b uint32) bool {
	h := seamHash(a, b)
	return m.bits[h>>6]&(1<<(h&63)) != 0
}

// between reports whether no token crosses from character a to b.
func (m *seams) between(a, b uint32) bool {
	return !m.marked(a, b) && !m.marked(a, anyRune) && !m.marked(anyRune, b)
}

// add marks the pairs of characters that token crosses. If a token starts or ends inside a
// character, the whole side is marked.
func (m *seams) add(token []byte) error {
	i := 0
	for i < len(token) && token[i]&0xC0 == 0x80 {
		i++
	}
	var before uint32
	for first := true; i < len(token); first = false {
		if !utf8.FullRune(token[i:]) { // the start of a character
			switch {
			case !first:
				m.mark(before, anyRune)
			case i > 0:
				m.markPrefix(token[i:])
			}
			return nil
		}
		r, size := utf8.DecodeRune(token[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("token %q has an invalid byte inside", token)
		}
		switch {
		case !first:
			m.mark(before, uint32(r))
		case i > 0:
			m.mark(anyRune, uint32(r))
		}
		before, i = uint32(r), i+size
	}
	return nil
}

// markPrefix marks every character that starts with the bytes of prefix.
func (m *seams) markPrefix(prefix []byte) {
	size := 4
	switch {
	case prefix[0] < 0xE0:
		size = 2
	case prefix[0] < 0xF0:
		size = 3
	}
	rest := 6 * (size - len(prefix)) // bits of the missing bytes
	for n := range uint32(1) << rest {
		b := append(make([]byte, 0, utf8.UTFMax), prefix...)
		for shift := rest - 6; shift >= 0; shift -= 6 {
			b = append(b, 0x80|byte(n>>shift)&0x3F)
		}
		if r, _ := utf8.DecodeRune(b); r != utf8.RuneError {
			m.mark(anyRune, uint32(r))
		}
	}
}

// runeAt returns the character at s[i] and its length. s must be valid UTF-8
// and i the start of a character.
func runeAt(s []byte, i int) (uint32, int) {
	b := uint32(s[i])
	switch {
	case b < utf8.RuneSelf:
		return b, 1
	case b < 0xE0:
		p := s[i : i+2]
		return b&0x1F<<6 | uint32(p[1]&0x3F), 2
	case b < 0xF0:
		p := s[i : i+3]
		return b&0x0F<<12 | uint32(p[1]&0x3F)<<6 | uint32(p[2]&0x3F), 3
	default:
		p := s[i : i+4]
		return b&0x07<<18 | uint32(p[1]&0x3F)<<12 | uint32(p[2]&0x3F)<<6 | uint32(p[3]&0x3F), 4
	}
}
