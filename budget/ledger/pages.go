package ledger

import (
	"context"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// scanPage is about how many fields of a day's hash one command reads.
const scanPage = 250

// Pages reads hashes in pages, one page at a time per process, so that Redis serves calls between
// two pages however many callers request their usage.
type Pages struct {
	rdb   redisconn.DB
	fault func(what string, err error) error
	turn  chan struct{} // full while a page is read
}

// NewPages returns a reader whose errors are made by fault.
func NewPages(rdb redisconn.DB, fault func(what string, err error) error) *Pages {
	return &Pages{rdb: rdb, fault: fault, turn: make(chan struct{}, 1)}
}

// Each calls fn once for each matching field of a hash, reading it in pages.
func (p *Pages) Each(ctx context.Context, key, match string, fn func(field, text string) error) error {
	found := map[string]bool{} // a scan may return a field twice
	for cursor := uint64(0); ; {
		page, next, err := p.read(ctx, key, match, cursor)
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			if found[page[i]] {
				continue
			}
			found[page[i]] = true
			if err := fn(page[i], page[i+1]); err != nil {
				return err
			}
		}
		cursor = next
		if cursor == 0 {
			return nil
		}
	}
}

func (p *Pages) read(ctx context.Context, key, match string, cursor uint64) ([]string, uint64, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, 0, p.fault("read roll-ups", ctx.Err())
	}
	page, next, err := p.rdb.HScan(ctx, key, cursor, match, scanPage).Result()
	if err != nil {
		return nil, 0, p.fault("read roll-ups", err)
	}
	return page, next, nil
}
