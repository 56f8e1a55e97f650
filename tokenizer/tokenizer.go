// Package tokenizer counts tokens the way OpenAI's models do, exactly and fast enough to count
// every prompt before it is forwarded.
//
// For o200k_base and cl100k_base it returns the same count as tiktoken for every text
// (special-token strings are plain text, each invalid UTF-8 byte is one U+FFFD), without
// allocations in steady state, and in at most n log n time on every input. There is one exception,
// to bound memory: a single piece (a run that the pre-tokenizer does not split) above 64 KB is
// counted in 64 KB windows, which may differ from the exact count by about one token per window.
//
// It does not provide token ids, decoding, or exact counts for models without a public tokenizer:
// for those there is Multiplier. What a request costs besides its text (message framing, tools,
// images) is in separate functions, each of which names the source of its numbers.
//
// Tables are built on first use of an encoding (about 0.05 s of CPU and 10 MB for O200k); call Warm
// at startup to pay for that before the first request. The first piece of more than 64 bytes builds
// one more (0.1 s and 5 MB). Everything is safe for concurrent use unless
// its comment says otherwise.
package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// Encoding names one of OpenAI's vocabularies. The zero value is O200k.
type Encoding uint8

// The encodings of OpenAI's public models.
const (
	O200k  Encoding = iota // o200k_base: gpt-4o and everything since
	CL100k                 // cl100k_base: gpt-4, gpt-3.5-turbo, embeddings
	P50k                   // p50k_base: text-davinci-002 and -003, Codex
	R50k                   // r50k_base: GPT-3
)

// String returns OpenAI's name of the encoding, e.g. "o200k_base".
func (e Encoding) String() string {
	switch e {
	case O200k:
		return "o200k_base"
	case CL100k:
		return "cl100k_base"
	case P50k:
		return "p50k_base"
	case R50k:
		return "r50k_base"
	default:
		return fmt.Sprintf("encoding(%d)", uint8(e))
	}
}

var (
	loadO200k  = sync.OnceValues(func() (*codec, error) { return newCodec(o200kSpec) })
	loadCL100k = sync.OnceValues(func() (*codec, error) { return newCodec(cl100kSpec) })
)

// codecOf returns the tables of an encoding that this package counts itself, building them in the
// first call, and nil for those left to tiktoken-go.
func codecOf(enc Encoding) (*codec, error) {
	switch enc {
	case O200k:
		return loadO200k()
	case CL100k:
		return loadCL100k()
	default:
		return nil, nil
	}
}

// Warm builds the tables of enc now. It fails for an unknown encoding.
func Warm(enc Encoding) error {
	if enc > R50k {
		return fmt.Errorf("tokenizer: unknown %v", enc)
	}
	c, err := codecOf(enc)
	if c == nil && err == nil {
		_, err = legacyOf(enc)
	}
	if err != nil {
		return fmt.Errorf("tokenizer: load %v: %w", enc, err)
	}
	return nil
}

// Count returns the number of tokens of text under enc. If the tables cannot be
// loaded it returns len(text), which no token count exceeds.
func Count(enc Encoding, text []byte) int {
	return CountClasses(enc, text).Tokens
}

// Classes is a token count with the numbers that estimates for other tokenizers need.
type Classes struct {
	Tokens      int // tokens under the encoding
	Digits      int // characters of Unicode category N
	DigitGroups int // runs of one to three of them, as the encoding splits
	NonASCII    int // bytes of characters above U+007F; an invalid byte counts as three
	Bytes       int // length of the text as given
}

// Plus returns the sum of the counts of two texts.
func (k Classes) Plus(other Classes) Classes {
	return Classes{
		Tokens: k.Tokens + other.Tokens, Digits: k.Digits + other.Digits,
		DigitGroups: k.DigitGroups + other.DigitGroups, NonASCII: k.NonASCII + other.NonASCII,
		Bytes: k.Bytes + other.Bytes,
	}
}

// CountClasses counts tokens, digits and non-ASCII bytes. The digit counters follow the splitter of
// O200k and CL100k; for P50k and R50k they are zero.
func CountClasses(enc Encoding, text []byte) Classes {
	if len(text) == 0 {
		return Classes{}
	}
	c, err := codecOf(enc)
	if err != nil {
		return Classes{Tokens: len(text), Bytes: len(text)}
	}
	if c == nil {
		return Classes{Tokens: legacyCount(enc, text), NonASCII: nonASCII(text), Bytes: len(text)}
	}
	sc := c.scratch()
	defer c.release(sc)
	valid := text
	wide, ok := wideBytes(text)
	if !ok {
		sc.valid = appendValid(sc.valid[:0], text)
		valid = sc.valid
		wide = nonASCII(valid)
	}
	k := c.count(valid, sc)
	k.NonASCII, k.Bytes = wide, len(text)
	return k
}

// nonASCII returns the number of bytes above 0x7F.
func nonASCII(text []byte) int {
	n := 0
	for ; len(text) >= 8; text = text[8:] {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(text) & highs)
	}
	for _, b := range text {
		n += int(b >> 7)
	}
	return n
}

// appendValid appends text with every invalid byte replaced by U+FFFD.
func appendValid(dst, text []byte) []byte {
	dst = slices.Grow(dst, len(text)+utf8.UTFMax)
	start, i := 0, 0
	for i < len(text) {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, text[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			start = i + 1
		}
		i += size
	}
	return append(dst, text[start:]...)
}
