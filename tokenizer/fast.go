package tokenizer

import (
	"encoding/binary"
	"math/bits"
)

// Most text consists of ASCII words, numbers and punctuation of a few bytes. The loop below finds
// the end of such a piece in one or two machine words and takes its count from a memo keyed by the
// piece's bytes, so no further comparison is needed. Whatever it cannot decide near the start
// (longer runs, other scripts, the end of the text) is left to the splitter and to piece.

const (
	reach = 24 // bytes that the fast loop may read

	ones  = 0x0101010101010101
	highs = 0x80 * ones

	shortBits = 13
	midBits   = 13
	countBits = 60 // position of the count in a memo entry, above the length
	keyMask   = 1<<countBits - 1
)

// memos cache the counts of recent pieces. They belong to one scratch. They are exact because an
// entry contains its whole key: the bytes of the piece (little-endian) and its length from bit 56.
type memos struct {
	short [1 << shortBits]uint64  // up to 7 bytes
	mid   [1 << midBits][2]uint64 // 8 to 15 bytes
}

// asciiTable describes how an encoding handles ASCII.
type asciiTable struct {
	// word has, per first byte of a piece, the bits of findLetters of which one must be set for the
	// piece to be a word: those of the first byte for a letter, of the second for a character that
	// may precede a word.
	word [256]uint16
	// class is that of classTable, with wide for non-ASCII bytes.
	class [256]uint8
	// turns is all ones if a capital after a small letter starts a new word.
	turns uint64
	// cl100k means that an apostrophe starts a piece, and a slash does not end punctuation.
	cl100k bool
}

func newASCIITable(t *classTable, cl100k bool) *asciiTable {
	a := &asciiTable{class: t.ascii, cl100k: cl100k}
	for b, c := range a.class {
		switch {
		case c&cased != 0:
			a.word[b] = 0x80
		case c&(noHead|wide) == 0:
			a.word[b] = 0x8000
		}
	}
	if cl100k {
		a.word['\''] = 0 // may be a contraction
	} else {
		a.turns = ^uint64(0)
	}
	return a
}

// findLetters returns w with the high bit set in each byte that is an ASCII letter, and all other
// bits clear.
func findLetters(w uint64) uint64 {
	x := (w | 0x20*ones) &^ highs
	return (x + (0x80-'a')*ones) &^ (x + (0x80-'z'-1)*ones) &^ w & highs
}

// count counts the tokens and digits of valid UTF-8.
func (c *codec) count(s []byte, sc *scratch) Classes {
	var k Classes
	a := c.ascii
	i := 0
	for len(s)-i >= reach {
		p := s[i:]
		w := binary.LittleEndian.Uint64(p)
		if w&0x8080 != 0 && (w&0x80 != 0 || byte(w) == ' ') {
			i += c.slow(s, i, sc, &k)
			continue
		}
		found := findLetters(w)
		if found&uint64(a.word[byte(w)]) == 0 {
			n := a.notWord(p)
			switch {
			case n == 0:
				i += c.slow(s, i, sc, &k)
				continue
			case a.class[byte(w)]&number != 0: // each group is a token
				k.DigitGroups++
				k.Digits += n
				k.Tokens++
			case n == 1:
				k.Tokens++
			case n < 8:
				k.Tokens += c.short(w&(1<<(8*n)-1)|uint64(n)<<56, sc)
			default:
				k.Tokens += c.piece(s, i, i+n, sc)
			}
			i += n
			continue
		}
		small := found & (w << 2)
		stop := (found ^ highs | found&^small&(small<<8)&a.turns) &^ 0x80
		if stop != 0 {
			n := bits.TrailingZeros64(stop) - 7 // in bits
			if next := byte(w >> n); next < 0x80 && next != '\'' {
				k.Tokens += c.short(w&(1<<n-1)|uint64(n)<<53, sc)
				i += n >> 3
				continue
			}
		} else {
			x := binary.LittleEndian.Uint64(p[8:])
			more := findLetters(x)
			little := more & (x << 2)
			stop = more ^ highs | more&^little&(little<<8|small>>56)&a.turns
			n := bits.TrailingZeros64(stop) - 7
			if next := byte(x >> n); stop != 0 && next < 0x80 && next != '\'' {
				k.Tokens += c.mid(w, x&(1<<n-1)|uint64(n+64)<<53, sc)
				i += 8 + n>>3
				continue
			}
		}
		i += c.slow(s, i, sc, &k)
	}
	for i < len(s) {
		i += c.slow(s, i, sc, &k)
	}
	return k
}

// slow counts any piece at s[i] and returns its length.
func (c *codec) slow(s []byte, i int, sc *scratch, k *Classes) int {
	e, _ := c.next(s, i)
	class := c.ascii.class[s[i]]
	if class == wide {
		class, _ = c.classes.decode(s, i)
	}
	if class&number != 0 {
		k.DigitGroups++
		k.Digits += runes(s[i:e])
	}
	k.Tokens += c.piece(s, i, e, sc)
	return e - i
}

// short returns the count of a piece of 1 to 7 bytes by its key.
func (c *codec) short(key uint64, sc *scratch) int {
	slot := &sc.memo.short[key*mixer>>(64-shortBits)]
	if *slot&keyMask == key {
		return int(*slot >> countBits)
	}
	return c.shortMiss(key, slot, sc)
}

// mid returns the count of a piece of 8 to 15 bytes by the words of its key.
func (c *codec) mid(a, b uint64, sc *scratch) int {
	slot := &sc.memo.mid[hashMid(a, b)>>(64-midBits)]
	if slot[0] == a && slot[1]&keyMask == b {
		return int(slot[1] >> countBits)
	}
	return c.midMiss(a, b, slot, sc)
}

//go:noinline
func (c *codec) shortMiss(key uint64, slot *uint64, sc *scratch) int {
	n := 1
	if size := key >> 56; size > 1 && !c.memberShort(key) {
		var p [8]byte
		binary.LittleEndian.PutUint64(p[:], key)
		n = c.scan(p[:size], sc)
	}
	*slot = key | uint64(n)<<countBits
	return n
}

//go:noinline
func (c *codec) midMiss(a, b uint64, slot *[2]uint64, sc *scratch) int {
	n := 1
	if !c.memberMid(a, b) {
		var p [16]byte
		binary.LittleEndian.PutUint64(p[:8], a)
		binary.LittleEndian.PutUint64(p[8:], b)
		n = c.fresh(p[:b>>56], sc)
	}
	slot[0], slot[1] = a, b|uint64(n)<<countBits
	return n
}

// notWord returns the length of the piece at the start of p, which is not a word and not at the end
// of the text, or 0 if it is left to the splitter.
func (a *asciiTable) notWord(p []byte) int {
	p = p[:reach]
	switch c := a.class[p[0]]; {
	case c&number != 0:
		return a.digits(p)
	case c&wide != 0 || a.cl100k && p[0] == '\'':
		return 0
	case c&space == 0:
		return a.punctuation(p, 1)
	}
	if p[0] == ' ' && a.class[p[1]]&(space|number|wide) == 0 { // no letter, so not a word
		return a.punctuation(p, 2)
	}
	return a.blank(p)
}

func (a *asciiTable) digits(p []byte) int {
	for n := 1; n < 3; n++ {
		if c := a.class[p[n]]; c&number == 0 {
			if c&wide != 0 {
				return 0
			}
			return n
		}
	}
	return 3
}

// punctuation is the splitter's for a run whose first byte is before p[n].
func (a *asciiTable) punctuation(p []byte, n int) int {
	for a.class[p[n]] == 0 {
		n++
		if n == 16 {
			return 0
		}
	}
	if a.class[p[n]]&wide != 0 {
		return 0
	}
	for p[n] == '\n' || p[n] == '\r' || p[n] == '/' && !a.cl100k {
		n++
		if n == 16 {
			return 0
		}
	}
	return n
}

// blank is the splitter's.
func (a *asciiTable) blank(p []byte) int {
	n, lineEnd := 0, 0
	for {
		c := a.class[p[n]]
		if c&space == 0 {
			if c&wide != 0 {
				return 0
			}
			break
		}
		n++
		if n == 16 {
			return 0
		}
		if c&newline != 0 {
			lineEnd = n
		}
	}
	switch {
	case lineEnd > 0:
		return lineEnd
	case n > 1:
		return n - 1
	}
	return 1
}
