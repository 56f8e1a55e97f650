package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// memoryEvery is how long a look at Redis's memory is good for.
const memoryEvery = time.Second

// memory is what this process last saw of Redis's memory.
type memory struct {
	mu     sync.Mutex
	looked time.Time
	used   int64 // percent of maxmemory on the fullest node; 0 without maxmemory
}

// checkMemory refuses a job when Redis is nearly full, so that what runs can
// still settle. The look is at most a second old; one that fails changes
// nothing, because then the put fails too.
func (q *Queue) checkMemory(ctx context.Context, p *pool) error {
	m := &q.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.looked) >= memoryEvery {
		used, err := q.memoryUsed(ctx)
		if err != nil {
			return err
		}
		m.used, m.looked = used, time.Now()
	}
	most := int64(q.now().opts.MemoryShare)
	if m.used < most {
		return nil
	}
	q.metrics.puts.WithLabelValues(p.ID, "full").Inc()
	return &FullError{Scope: "memory", Limit: most, RetryAfter: 10 * time.Second}
}

// memoryUsed asks the node, or every primary of a cluster.
func (q *Queue) memoryUsed(ctx context.Context) (int64, error) {
	cluster, ok := q.rdb.(*redis.ClusterClient)
	if !ok {
		var info *redis.StringCmd
		if err := q.reads.exec(ctx, func(pipe redis.Pipeliner) { info = pipe.Info(ctx, "memory") }); err != nil {
			return 0, fmt.Errorf("queue: memory of Redis: %w", err)
		}
		return percent(info)
	}
	var mu sync.Mutex
	var most int64
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		used, err := percent(node.Info(ctx, "memory"))
		mu.Lock()
		most = max(most, used)
		mu.Unlock()
		return err
	})
	return most, err
}

// percent is the part of maxmemory that is used, by what a node says.
func percent(cmd *redis.StringCmd) (int64, error) {
	info, err := cmd.Result()
	if err != nil {
		if strings.Contains(err.Error(), "not supported") { // the in-process store has no such section, and no bound
			return 0, nil
		}
		return 0, fmt.Errorf("queue: memory of Redis: %w", err)
	}
	var used, most int64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_memory":
			used, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory":
			most, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	if most == 0 {
		return 0, nil
	}
	return used * 100 / most, nil
}
