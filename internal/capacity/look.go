package capacity

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// lookEvery is how long the figures of Redis's memory are reused. What is admitted meanwhile is
// counted.
const lookEvery = time.Second

// node holds what one server reports about its memory, in bytes.
type node struct{ used, most int64 }

// look returns the bound, at most lookEvery old, and the total share in percent.
func (m *Memory) look(ctx context.Context) (Bound, int, error) {
	if seen, opts, fresh := m.last(); fresh {
		return seen, opts.MemoryShare, nil
	}
	select {
	case m.looking <- struct{}{}:
		defer func() { <-m.looking }()
	case <-ctx.Done():
		return Bound{}, 0, fmt.Errorf("capacity: look: %w", context.Cause(ctx))
	}
	seen, opts, fresh := m.last()
	if fresh {
		return seen, opts.MemoryShare, nil
	}
	// Read the count first: what is written in between then counts twice instead of not at all.
	written, err := m.rdb.HGet(ctx, m.keys[2], "written").Int64()
	if err != nil && !redisconn.IsNil(err) {
		return Bound{}, 0, fmt.Errorf("capacity: look: %w", err)
	}
	nodes, err := m.nodes(ctx)
	if err != nil {
		return Bound{}, 0, err
	}
	seen = boundOf(nodes, written, int64(opts.MemoryShare))
	seen.Share = opts.OrgShare
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.looked = seen, time.Now()
	return seen, opts.MemoryShare, nil
}

// outdated drops figures older than a time, and reports whether it did.
func (m *Memory) outdated(before time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.looked.Before(before) {
		return false
	}
	m.looked = time.Time{}
	return true
}

// last returns the last figures, the options, and whether they are still fresh.
func (m *Memory) last() (Bound, Options, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, m.opts, time.Since(m.looked) < lookEvery
}

// boundOf returns the bound of all servers together. If one of them is beyond its share nothing
// is admitted, because the next write may go to that one.
func boundOf(nodes []node, written, percent int64) Bound {
	var used, most int64
	full := false
	for _, n := range nodes {
		bound := n.most / 100 * percent
		full = full || n.most > 0 && n.used >= bound
		used, most = used+n.used, most+bound
	}
	if full {
		return Bound{Most: 1, Other: 1, whole: most}
	}
	return Bound{Most: most, Other: max(used-written, 0), whole: most}
}

// nodes queries the server, or every primary of a cluster.
func (m *Memory) nodes(ctx context.Context) ([]node, error) {
	var mu sync.Mutex
	var all []node
	err := m.rdb.EachPrimary(ctx, func(ctx context.Context, c redisconn.DB) error {
		n, err := memoryOf(c.Info(ctx, "memory"))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, n)
		return err
	})
	return all, err
}

// Largest returns the org whose callers keep most, and how many bytes; 0 if none keeps anything.
func Largest(ctx context.Context, rdb redisconn.DB) (org string, bytes int64, err error) {
	sums, err := rdb.HGetAll(ctx, countPrefix+":sums").Result()
	if err != nil {
		return "", 0, fmt.Errorf("capacity: largest: %w", err)
	}
	for field, text := range sums {
		name, isOrg := strings.CutPrefix(field, "o ")
		if n, _ := strconv.ParseInt(text, 10, 64); isOrg && n > bytes {
			org, bytes = name, n
		}
	}
	return org, bytes, nil
}

// Usage returns how much memory a server uses, and how much it may use: without maxmemory the
// memory of its machine, and 0 if it reports neither.
func Usage(ctx context.Context, server redisconn.DB) (used, most int64, err error) {
	n, err := memoryOf(server.Info(ctx, "memory"))
	return n.used, n.most, err
}

// memoryOf parses a server's figures. Without maxmemory the machine's memory is the limit.
func memoryOf(cmd redisconn.Text) (node, error) {
	info, err := cmd.Result()
	if err != nil {
		if strings.Contains(err.Error(), "not supported") { // the in-process store has no such section and no limit
			return node{}, nil
		}
		return node{}, fmt.Errorf("capacity: memory of Redis: %w", err)
	}
	var n node
	var machine int64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "used_memory":
			n.used = number
		case "maxmemory":
			n.most = number
		case "total_system_memory":
			machine = number
		}
	}
	n.most = cmp.Or(n.most, machine)
	return n, nil
}
