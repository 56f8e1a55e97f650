package tokenizer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// rankFiles hold the tokens that OpenAI publishes for tiktoken in files of "base64 rank" lines. They
// are the largest part of the binary and were the largest part of its start. So a file has the two
// tokens that each merges from, which is less than its bytes and spares finding them: the 256 single
// bytes, then six columns with the bytes of the left and right ranks, the highest first, compressed.
// A test compares them with the published files, and writes them anew with -update.
//
//go:embed ranks/*.gz
var rankFiles embed.FS

// P50k has the tokens of r50k_base, a special token at their end, and 24 runs of spaces.
const r50kTokens = 50256

// singles is the number of single bytes, which have the first ranks.
const singles = 256

// rankTable has the tokens of an encoding in the order of ranks. Each after the single bytes merges
// from two before it.
type rankTable struct {
	blob        []byte   // of all tokens
	ends        []uint32 // of each in blob
	left, right []uint32 // ranks of its parts; 0 for single bytes
}

func readRanks(encoding string) (*rankTable, error) {
	file := strings.Replace(encoding, "r50k", "p50k", 1)
	packed, err := rankFiles.ReadFile("ranks/" + file + ".gz")
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	raw := bytes.NewBuffer(make([]byte, 0, 2*len(packed)))
	if _, err := raw.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	tokens := singles + (raw.Len()-singles)/6
	if encoding != file {
		tokens = r50kTokens
	}
	t, err := parseRanks(raw.Bytes(), tokens)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// parseRanks reads the first tokens of a file.
func parseRanks(raw []byte, tokens int) (*rankTable, error) {
	column := (len(raw) - singles) / 6
	if len(raw) != singles+6*column || tokens > singles+column {
		return nil, fmt.Errorf("%d bytes are not a file of %d tokens", len(raw), tokens)
	}
	t := &rankTable{
		blob: slices.Grow(slices.Clone(raw[:singles]), 8*tokens), ends: make([]uint32, tokens),
		left: make([]uint32, tokens), right: make([]uint32, tokens),
	}
	for rank := range singles {
		t.ends[rank] = uint32(rank + 1)
	}
	for rank := singles; rank < tokens; rank++ {
		digit := func(k int) uint32 { return uint32(raw[k*column+rank]) } // singles cancel out
		left, right := digit(0)<<16|digit(1)<<8|digit(2), digit(3)<<16|digit(4)<<8|digit(5)
		if max(left, right) >= uint32(rank) {
			return nil, fmt.Errorf("rank %d is made of ranks %d and %d", rank, left, right)
		}
		t.left[rank], t.right[rank] = left, right
		t.blob = append(append(t.blob, t.token(left)...), t.token(right)...)
		t.ends[rank] = uint32(len(t.blob))
	}
	return t, nil
}

// token returns the bytes of a token, which must not be changed.
func (t *rankTable) token(rank uint32) []byte {
	start := uint32(0)
	if rank > 0 {
		start = t.ends[rank-1]
	}
	return t.blob[start:t.ends[rank]]
}

// rankLoader passes the rank files to tiktoken-go.
type rankLoader struct{}

// LoadTiktokenBpe implements tiktoken.BpeLoader.
func (rankLoader) LoadTiktokenBpe(url string) (map[string]int, error) {
	encoding := strings.TrimSuffix(path.Base(url), ".tiktoken")
	t, err := readRanks(encoding)
	if err != nil {
		return nil, err
	}
	ranks := make(map[string]int, len(t.ends))
	for i := range t.ends {
		rank := i
		if encoding == P50k.String() && i >= r50kTokens {
			rank++ // after the special token
		}
		ranks[string(t.token(uint32(i)))] = rank
	}
	return ranks, nil
}
