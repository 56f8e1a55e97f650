package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

// Open reads a blob from an offset. Reading an encrypted blob may fail with an error that wraps
// seal.ErrBroken; what was read before that is genuine.
func (s *Store) Open(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	err := checkName(name)
	if err != nil {
		return nil, err
	}
	length := int64(-1)
	if offset > 0 {
		length = seal.MaxHead // only the head: a bucket would send everything
	}
	r, err := s.at.open(ctx, name, 0, length)
	if err != nil {
		return nil, named("open", err)
	}
	begin, err := io.ReadAll(io.LimitReader(r, seal.MaxHead))
	if err != nil {
		_ = r.Close()
		return nil, named("open", err)
	}
	stream, err := s.ring.Load().OpenStream(begin, name)
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("blob: open %s: %w", name, err)
	}
	at := offset
	if stream != nil {
		at = stream.At(offset)
	}
	var body io.ReadCloser
	if offset == 0 {
		body = opened{io.MultiReader(bytes.NewReader(begin[at:]), r), r}
	} else {
		_ = r.Close()
		body, err = s.at.open(ctx, name, at, -1)
		if err != nil {
			return nil, named("open", err)
		}
	}
	if stream != nil {
		body = opened{stream.Reader(body, offset), body}
	}
	return body, nil
}

// opened reads from one and closes the other.
type opened struct {
	io.Reader
	io.Closer
}
