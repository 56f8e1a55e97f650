package batch

import (
	"context"
	"fmt"

	"github.com/llmguard/llmguard/internal/capacity"
)

const (
	// recordBytes is about what Redis needs for a batch without metadata: its record and
	// its places in lists.
	recordBytes = 2 << 10
	// shortProblems is how many problems a record has where its org has no room for all.
	shortProblems = 1
	// shortBytes is admitted for them with the record.
	shortBytes = 1 << 10
)

// admit counts what a batch takes in Redis in its org's share, until it is forgotten. What
// it had before is replaced. The error may be a *capacity.FullError.
func (s *Store) admit(ctx context.Context, org, id string, more int) error {
	if s.bounds.Memory == nil {
		return nil
	}
	bytes := capacity.Bytes{Written: recordBytes + shortBytes + int64(more)}
	return s.bounds.Memory.Reserve(ctx, org, id, bytes, recordLife)
}

// release ends what admit counted.
func (s *Store) release(ctx context.Context, id string) error {
	if s.bounds.Memory == nil {
		return nil
	}
	return s.bounds.Memory.Release(ctx, id)
}

// fitting is as much of what is wrong with a file as its org has room for.
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

// callers is about how many bytes of a record are its caller's.
func (b *Batch) callers() int { return callersBytes(b.Metadata, b.Models) }

func callersBytes(metadata map[string]string, models []string) (n int) {
	for label, value := range metadata {
		n += len(label) + len(value) + pairBytes
	}
	for _, model := range models {
		n += len(model) + pairBytes
	}
	return n
}

// pairBytes is what the JSON of a pair has besides its texts.
const pairBytes = 8
