package tokenizer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"path"
	"strings"
)

// rankFiles hold the tokens that OpenAI publishes for tiktoken in files of "base64 rank" lines. They
// are the largest part of the binary, so they are stored as a byte with the length of each token,
// in the order of ranks, followed by the bytes of all tokens, compressed. A test compares them with
// the published files, and writes them anew with -update.
//
//go:embed ranks/*.gz
var rankFiles embed.FS

// P50k has the tokens of r50k_base, a special token at their end, and 24 runs of spaces.
const r50kTokens = 50256

// rankFile returns the bytes of the tokens of an encoding in the order of ranks, and where each ends.
func rankFile(encoding string) (blob []byte, ends []uint32, err error) {
	file := strings.Replace(encoding, "r50k", "p50k", 1)
	packed, err := rankFiles.ReadFile("ranks/" + file + ".gz")
	if err != nil {
		return nil, nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	total := uint32(0)
	for int(total)+len(ends) < len(raw) {
		total += uint32(raw[len(ends)])
		ends = append(ends, total)
	}
	if int(total)+len(ends) != len(raw) {
		return nil, nil, fmt.Errorf("%s: the lengths of the tokens are not those of the file", file)
	}
	blob = raw[len(ends):]
	if encoding != file {
		ends = ends[:r50kTokens]
		blob = blob[:ends[r50kTokens-1]]
	}
	return blob, ends, nil
}

// rankLoader passes the rank files to tiktoken-go.
type rankLoader struct{}

// LoadTiktokenBpe implements tiktoken.BpeLoader.
func (rankLoader) LoadTiktokenBpe(url string) (map[string]int, error) {
	encoding := strings.TrimSuffix(path.Base(url), ".tiktoken")
	blob, ends, err := rankFile(encoding)
	if err != nil {
		return nil, err
	}
	ranks := make(map[string]int, len(ends))
	start := uint32(0)
	for i, end := range ends {
		rank := i
		if encoding == P50k.String() && i >= r50kTokens {
			rank++ // after the special token
		}
		ranks[string(blob[start:end])] = rank
		start = end
	}
	return ranks, nil
}
