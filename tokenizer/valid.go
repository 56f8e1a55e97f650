package tokenizer

import (
	"encoding/binary"
	"math/bits"
)

// An automaton checks for well-formed UTF-8. A step is one load and one shift, without a branch on
// the byte. A state is a multiple of six, and the entry of a byte holds the next state at those
// bits.
const (
	utf8Whole = 6 * iota // between characters
	utf8Bad              // permanently invalid
	utf8One              // one more byte, of any kind
	utf8Two
	utf8Three
	utf8E0 // two more bytes, the first at least 0xA0
	utf8ED // two more bytes, the first at most 0x9F
	utf8F0 // three more bytes, the first at least 0x90
	utf8F4 // three more bytes, the first at most 0x8F
)

var utf8Steps = makeUTF8Steps()

func makeUTF8Steps() *[256]uint64 {
	var steps [256]uint64
	set := func(from, lo, hi, to int) {
		for b := lo; b <= hi; b++ {
			steps[b] = steps[b]&^(63<<from) | uint64(to)<<from
		}
	}
	for from := utf8Whole; from <= utf8F4; from += 6 {
		set(from, 0, 0xFF, utf8Bad)
	}
	set(utf8Whole, 0x00, 0x7F, utf8Whole)
	set(utf8Whole, 0xC2, 0xDF, utf8One)
	set(utf8Whole, 0xE0, 0xEF, utf8Two)
	set(utf8Whole, 0xE0, 0xE0, utf8E0)
	set(utf8Whole, 0xED, 0xED, utf8ED)
	set(utf8Whole, 0xF0, 0xF4, utf8Three)
	set(utf8Whole, 0xF0, 0xF0, utf8F0)
	set(utf8Whole, 0xF4, 0xF4, utf8F4)
	set(utf8One, 0x80, 0xBF, utf8Whole)
	set(utf8Two, 0x80, 0xBF, utf8One)
	set(utf8Three, 0x80, 0xBF, utf8Two)
	set(utf8E0, 0xA0, 0xBF, utf8One)
	set(utf8ED, 0x80, 0x9F, utf8One)
	set(utf8F0, 0x90, 0xBF, utf8Two)
	set(utf8F4, 0x80, 0x8F, utf8Two)
	return &steps
}

// wideBytes returns the number of bytes of text above 0x7F and whether text is
// well-formed UTF-8.
func wideBytes(text []byte) (wide int, valid bool) {
	steps, state := utf8Steps, uint64(utf8Whole)
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		if w&highs == 0 && state&63 == utf8Whole {
			continue
		}
		wide += bits.OnesCount64(w & highs)
		state = steps[byte(w)] >> (state & 63)
		state = steps[byte(w>>8)] >> (state & 63)
		state = steps[byte(w>>16)] >> (state & 63)
		state = steps[byte(w>>24)] >> (state & 63)
		state = steps[byte(w>>32)] >> (state & 63)
		state = steps[byte(w>>40)] >> (state & 63)
		state = steps[byte(w>>48)] >> (state & 63)
		state = steps[byte(w>>56)] >> (state & 63)
	}
	for _, b := range text {
		wide += int(b >> 7)
		state = steps[b] >> (state & 63)
	}
	return wide, state&63 == utf8Whole
}
