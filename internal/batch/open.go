package batch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var openScript = lua.Load("batch_open")

// FullError refuses a batch because its org or user has the maximum number of unfinished
// ones.
type FullError struct {
	User  bool // the user has; otherwise the org
	Limit int
}

func (e *FullError) Error() string {
	whose := "org"
	if e.User {
		whose = "user"
	}
	return fmt.Sprintf("batch: the %s has %d open batches", whose, e.Limit)
}

const (
	// countedFor is how long a batch counts as unfinished if its end was never noticed.
	// It exceeds the duration of a batch that its provider runs.
	countedFor = 4 * 24 * time.Hour
	// unconfirmedFor is how long a batch counts whose process died while creating it.
	unconfirmedFor = 10 * time.Minute
)

// Bounds limit the batches of each org; 0 is unlimited.
type Bounds struct {
	// Lines is the most requests of a batch; 0 is 50,000.
	Lines int
	// Open and UserOpen are the most unfinished batches of an org and of one user.
	Open, UserOpen int
	// Kept is how many ended batches of an org can be read: the newest.
	Kept int
	// Memory admits the records; nil means they are not counted.
	Memory *capacity.Memory
}

// Bound sets the bounds. Call it before the Store is used.
func (s *Store) Bound(b Bounds) { s.bounds = b }

func (s *Store) maxLines() int { return cmp.Or(s.bounds.Lines, 50_000) }

func openKeys(org, user string) []string {
	return []string{"lg:{" + org + "}:openbatches", "lg:{" + org + "}:openbatches:" + user}
}

// count counts a new batch as unfinished. The error may be a *FullError.
func (s *Store) count(ctx context.Context, o Owner, id string) error {
	reply, err := openScript.Run(ctx, s.rdb, openKeys(o.Org, o.User), s.clock, id, s.bounds.Open, s.bounds.UserOpen,
		int64(countedFor/time.Second), int64(unconfirmedFor/time.Second)).Text()
	switch {
	case err != nil:
		return fmt.Errorf("batch: count: %w", err)
	case reply == "org":
		return &FullError{Limit: s.bounds.Open}
	case reply == "user":
		return &FullError{User: true, Limit: s.bounds.UserOpen}
	}
	return nil
}

// confirm makes a created batch count until its end.
func (s *Store) confirm(ctx context.Context, pipe redisconn.Pipe, o Owner, id string, now time.Time) {
	for _, key := range openKeys(o.Org, o.User) {
		pipe.ZAddXX(ctx, key, redisconn.Z{Score: float64(now.Unix()), Member: id})
	}
}

// uncount removes a batch from the unfinished ones.
func (s *Store) uncount(ctx context.Context, o Owner, id string) error {
	pipe := s.rdb.Pipeline()
	for _, key := range openKeys(o.Org, o.User) {
		pipe.ZRem(ctx, key, id)
	}
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("batch: count: %w", err)
	}
	return nil
}
