package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llmguard/llmguard/internal/storage/files"
)

// Result is a line of a result file: an answer, or the reason why there is none.
type Result = result

// Codes of lines that never ran, because of the time or because the batch was cancelled, and of lines with a lost
// answer.
const (
	CodeExpired   = "batch_expired"
	CodeCancelled = "batch_cancelled"
	CodeLost      = "result_lost"
)

// Results calls each for every line of a batch that has ended, in no particular order, until that fails. It reads
// the result files, or the input file if the batch never began. The error is files.ErrNotFound, before the first
// call, if a file is gone.
func (s *Store) Results(ctx context.Context, b *Batch, each func(*Result) error) error {
	ids := []string{b.Output, b.Errors}
	if b.Started.IsZero() {
		ids = []string{b.Input}
	}
	var all []*lineReader
	defer func() {
		for _, r := range all {
			_ = r.Close()
		}
	}()
	for _, id := range slices.DeleteFunc(ids, func(id string) bool { return id == "" }) {
		r, err := openLines(ctx, s.files, &files.File{ID: id, Owner: b.filesOwner()}, position{}, maxResultLine)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := b.readResults(r, each); err != nil {
			return err
		}
	}
	return nil
}

func (b *Batch) readResults(r *lineReader, each func(*Result) error) error {
	for {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("batch: results of %s: %w", b.ID, err)
		}
		one := &Result{}
		_ = json.Unmarshal(line, one) // a line of an input file may be invalid
		switch {
		case b.Started.IsZero():
			one.Error = b.unbegun(r.at.line)
		case one.Response == nil && one.Error == nil:
			one.Error = &failure{CodeLost, "The result of this request cannot be read."}
		}
		if err := each(one); err != nil {
			return err
		}
	}
}

// unbegun returns why a line of a batch never ran, and no other did.
func (b *Batch) unbegun(line int) *failure {
	if b.Status != Failed {
		return &failure{Code: CodeCancelled}
	}
	for _, p := range b.Problems {
		if p.Line == nil || *p.Line == line {
			return &failure{p.Code, p.Message}
		}
	}
	return &failure{"batch_failed", "Other requests of the batch are not valid, so none of it ran."}
}
