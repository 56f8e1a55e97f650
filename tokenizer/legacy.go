package tokenizer

import (
	"sync"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
)

// legacyChunk is the number of characters passed to tiktoken-go at a time: its cost is quadratic in
// the longest piece, and splitting adds at most 0.5 %.
const legacyChunk = 1024

// tiktoken-go builds a new encoder in every GetEncoding and keeps its loader in an unguarded global
// variable. Hence one shared instance of each, and the loader is set once.
var (
	setLoader = sync.OnceFunc(func() { tiktoken.SetBpeLoader(rankLoader{}) })
	loadP50k  = sync.OnceValues(func() (*tiktoken.Tiktoken, error) { return loadLegacy(P50k) })
	loadR50k  = sync.OnceValues(func() (*tiktoken.Tiktoken, error) { return loadLegacy(R50k) })
)

func loadLegacy(enc Encoding) (*tiktoken.Tiktoken, error) {
	setLoader()
	return tiktoken.GetEncoding(enc.String())
}

// legacyOf returns the shared tiktoken-go encoder of enc.
func legacyOf(enc Encoding) (*tiktoken.Tiktoken, error) {
	if enc == P50k {
		return loadP50k()
	}
	return loadR50k()
}

// legacyCount counts text with tiktoken-go in chunks of legacyChunk characters.
func legacyCount(enc Encoding, text []byte) int {
	t, err := legacyOf(enc)
	if err != nil {
		return len(text)
	}
	n := 0
	for len(text) > 0 {
		end := chunkEnd(text)
		n += len(t.EncodeOrdinary(string(text[:end])))
		text = text[end:]
	}
	return n
}

// chunkEnd returns the length of the first legacyChunk characters of text.
func chunkEnd(text []byte) int {
	end := 0
	for k := 0; k < legacyChunk && end < len(text); k++ {
		_, size := utf8.DecodeRune(text[end:])
		end += size
	}
	return end
}
