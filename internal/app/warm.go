package app

import (
	"context"

	"github.com/llmguard/llmguard/tokenizer"
)

// loadTables loads the token tables, so that the first calls need not wait for them
// and damaged ones are noticed now.
func loadTables() error {
	for _, enc := range []tokenizer.Encoding{tokenizer.O200k, tokenizer.CL100k} {
		if err := tokenizer.Warm(enc); err != nil {
			return err
		}
	}
	return nil
}

// after runs something once the tables are loaded: a job that is claimed before would hold
// its quota, and its place, while they load.
func after(ctx context.Context, warm <-chan struct{}, run func(context.Context) error) error {
	select {
	case <-warm:
		return quiet(run(ctx))
	case <-ctx.Done():
		return nil
	}
}
