package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Character classes of the pre-tokenizer patterns. A character without a bit is "other":
// punctuation, symbols, controls, unassigned.
const (
	upper   uint8 = 1 << iota // Lu, Lt
	lower                     // Ll
	both                      // Lm, Lo, M: counts as upper and as lower in o200k
	mark                      // M, always with both
	number                    // N
	space                     // White_Space
	newline                   // CR, LF, always with space
	wide                      // only in classTable.ascii: not ASCII, must be decoded
)

const (
	cased  = upper | lower | both
	solid  = space | number | upper | lower // together with a check for mark: not punctuation
	noHead = newline | number               // cannot precede a word
)

// classTable maps characters to their classes.
type classTable struct {
	ascii [256]uint8
	runes [unicode.MaxRune + 1]uint8
}

// loadClasses builds the table from the unicode package on first use, so that it costs nothing at
// startup.
var loadClasses = sync.OnceValue(func() *classTable {
	t := new(classTable)
	t.add(upper, unicode.Lu, unicode.Lt)
	t.add(lower, unicode.Ll)
	t.add(both, unicode.Lm, unicode.Lo, unicode.M)
	t.add(mark, unicode.M)
	t.add(number, unicode.N)
	t.add(space, unicode.White_Space)
	for _, n := range newer {
		for c := n.from; c <= n.to; c++ {
			t.runes[c] |= n.class
		}
	}
	t.runes['\r'] |= newline
	t.runes['\n'] |= newline
	copy(t.ascii[:utf8.RuneSelf], t.runes[:utf8.RuneSelf])
	for b := utf8.RuneSelf; b < len(t.ascii); b++ {
		t.ascii[b] = wide
	}
	return t
})

func (t *classTable) add(bits uint8, tables ...*unicode.RangeTable) {
	for _, table := range tables {
		for _, r := range table.R16 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				t.runes[c] |= bits
			}
		}
		for _, r := range table.R32 {
			for c := rune(r.Lo); c <= rune(r.Hi); c += rune(r.Stride) {
				t.runes[c] |= bits
			}
		}
	}
}

// at returns the class and length of the character at s[i]. s must be valid UTF-8 and i the start
// of a character.
func (t *classTable) at(s []byte, i int) (uint8, int) {
	if c := t.ascii[s[i]]; c != wide {
		return c, 1
	}
	return t.decode(s, i)
}

// two returns the class of a character of two bytes.
func (t *classTable) two(a, b byte) uint8 { return t.runes[uint32(a&0x1F)<<6|uint32(b&0x3F)] }

// decode is at for a character that is not ASCII.
func (t *classTable) decode(s []byte, i int) (uint8, int) {
	r, size := runeAt(s, i)
	return t.runes[r], size
}
