package files

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	idPrefix = "file-"
	idLen    = len(idPrefix) + 26
)

// NewID returns a new file id with 130 random bits.
func NewID() string { return idPrefix + strings.ToLower(rand.Text()) }

func validID(id string) bool {
	if len(id) != idLen || !strings.HasPrefix(id, idPrefix) {
		return false
	}
	for _, c := range id[len(idPrefix):] {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Filter selects and orders the files of a list.
type Filter struct {
	Purpose string // empty: all
	After   string // id of the last file of the previous page; empty: the first page
	Limit   int    // page size
	Oldest  bool   // oldest first; otherwise newest first
}

const listStep = 500

// List returns a page of an owner's files, and whether there are more. The error is ErrNotFound
// if Filter.After is not a file of the owner.
func (s *Store) List(ctx context.Context, o Owner, f Filter) (page []*File, more bool, err error) {
	var from int64
	span, rank := s.rdb.ZRevRange, s.rdb.ZRevRank
	if f.Oldest {
		span, rank = s.rdb.ZRange, s.rdb.ZRank
	}
	if f.After != "" {
		n, err := rank(ctx, indexKey(o), f.After).Result()
		if redisconn.IsNil(err) {
			return nil, false, ErrNotFound
		}
		if err != nil {
			return nil, false, fmt.Errorf("files: list: %w", err)
		}
		from = n + 1
	}
	for ; ; from += listStep {
		ids, err := span(ctx, indexKey(o), from, from+listStep-1).Result()
		if err != nil {
			return nil, false, fmt.Errorf("files: list: %w", err)
		}
		list, err := s.read(ctx, o, ids)
		if err != nil {
			return nil, false, err
		}
		for _, file := range list {
			if f.Purpose != "" && file.Purpose != f.Purpose {
				continue
			}
			if len(page) == f.Limit {
				return page, true, nil
			}
			page = append(page, file)
		}
		if len(ids) < listStep {
			return page, false, nil
		}
	}
}

// read reads files in one round trip; files that no longer exist are omitted.
func (s *Store) read(ctx context.Context, o Owner, ids []string) ([]*File, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	pipe := s.rdb.Pipeline()
	records := make([]redisconn.Cmd[map[string]string], len(ids))
	for i, id := range ids {
		records[i] = pipe.HGetAll(ctx, recordKey(o.Org, id))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("files: list: %w", err)
	}
	now, list := time.Now(), make([]*File, 0, len(ids))
	for i, id := range ids {
		if f := decode(o.Org, id, records[i].Val()); f != nil && now.Before(f.Expires) {
			list = append(list, f)
		}
	}
	return list, nil
}
