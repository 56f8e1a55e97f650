package batch

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/llmguard/llmguard/internal/capacity"
)

const (
	// recordBytes is about what Redis needs for a batch without metadata: its record
	// and its list entries.
	recordBytes = 2 << 10
	// shortProblems is how many problems a record keeps if its org has no room for all.
	shortProblems = 1
	// shortBytes is reserved for them together with the record.
	shortBytes = 1 << 10
)

// admit reserves the Redis memory of a batch in its org's share until the batch is
// forgotten. It replaces an earlier reservation of the batch. The error may be a
// *capacity.FullError.
func (s *Store) admit(ctx context.Context, org, id string, more int) error {
	if s.bounds.Memory == nil {
		return nil
	}
	bytes := capacity.Bytes{Written: recordBytes + shortBytes + int64(more)}
	return s.bounds.Memory.Reserve(ctx, org, id, bytes, recordLife)
}

// release ends the reservation of admit.
func (s *Store) release(ctx context.Context, id string) error {
	if s.bounds.Memory == nil {
		return nil
	}
	return s.bounds.Memory.Release(ctx, id)
}

// fitting encodes as many problems of a file as its org has room for.
func (v *validation) fitting(ctx context.Context, problems []Problem) ([]byte, error) {
	text, err := problemText(problems)
	if err != nil {
		return nil, fmt.Errorf("batch: problems: %w", err)
	}
	err = v.r.s.admit(ctx, v.turn.b.Org, v.turn.b.ID, v.turn.b.callers()+len(text))
	if !capacity.IsFull(err) {
		return text, err
	}
	return problemText(problems[:min(len(problems), shortProblems)])
}

// callers returns about how many bytes of a record come from its caller.
func (b *Batch) callers() int { return callersBytes(b.Metadata, b.Models, b.Header) }

func callersBytes(metadata map[string]string, models []string, header http.Header) (n int) {
	for label, value := range metadata {
		n += len(label) + len(value) + pairBytes
	}
	for _, model := range models {
		n += len(model) + pairBytes
	}
	for name, values := range header {
		n += len(name) + len(strings.Join(values, ",")) + pairBytes*(1+len(values))
	}
	return n
}

// pairBytes is the JSON overhead of a pair.
const pairBytes = 8
