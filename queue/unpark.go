package queue

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Unpark wakes what limits have put aside of these orgs, in all pools: their limits are others
// now. What is refused again is put aside again.
func (q *Queue) Unpark(ctx context.Context, orgs map[string]bool) error {
	for _, p := range q.settings.pools() {
		subjects, err := q.rdb.ZRange(ctx, p.keys[4], 0, -1).Result()
		if err != nil {
			return fmt.Errorf("queue: parked: %w", err)
		}
		var due []redis.Z
		for _, subject := range subjects {
			if w := strings.Fields(subject); len(w) > 1 && w[0] != "p" && orgs[w[1]] { // kind org ...
				due = append(due, redis.Z{Score: 1, Member: subject})
			}
		}
		if len(due) == 0 {
			continue
		}
		if err := q.rdb.ZAddXX(ctx, p.keys[4], due...).Err(); err != nil {
			return fmt.Errorf("queue: unpark: %w", err)
		}
		q.wakeups.call(ctx, p)
	}
	return nil
}
