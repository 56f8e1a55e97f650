package tokenizer

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"path"
	"strconv"
)

// rankFiles are the files that OpenAI publishes for tiktoken, compressed by `gzip -9 -n`: they are
// the largest part of the binary. A test compares them with the files of tiktoken-go-loader.
//
//go:embed ranks/*.gz
var rankFiles embed.FS

// rankFile returns a rank file as published: a line "base64 rank" for each token.
func rankFile(name string) ([]byte, error) {
	packed, err := rankFiles.ReadFile("ranks/" + name + ".gz")
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, nil
}

// rankLoader passes the rank files to tiktoken-go.
type rankLoader struct{}

// LoadTiktokenBpe implements tiktoken.BpeLoader.
func (rankLoader) LoadTiktokenBpe(url string) (map[string]int, error) {
	raw, err := rankFile(path.Base(url))
	if err != nil {
		return nil, err
	}
	ranks := make(map[string]int, bytes.Count(raw, []byte{'\n'}))
	for line := range bytes.Lines(raw) {
		code, rank, ok := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
		if !ok {
			continue
		}
		token, err := base64.StdEncoding.DecodeString(string(code))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(url), err)
		}
		ranks[string(token)], err = strconv.Atoi(string(rank))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Base(url), err)
		}
	}
	return ranks, nil
}
