package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/quota"
)

// Flow is a unit of fair queueing: a user in an org.
type Flow struct{ Org, User string }

// Waiting is what a flow has waiting in one class.
type Waiting struct {
	Flow
	Class        Class
	Jobs, Tokens int64
	Oldest       time.Time // when its first job was put, by the clock of its proxy
	High, Low    int64     // jobs of these priorities
}

// Parked is a subject that a limit has parked: the pool (no Org), an org (no User) or a
// flow.
type Parked struct {
	Flow
	// What is parked of it: all, or only the jobs for one model, with one key, or both.
	// The queue does not keep the name of that model or key.
	What  string
	Until time.Time
}

// parkedWhat names the kinds of subjects_of in flows.lua.
var parkedWhat = map[string]string{
	"o": "all", "u": "all", "O": "model", "U": "model", "K": "key", "L": "key and model",
	"p": "all",
}

// Waiting lists the flows of a pool that have waiting jobs, the one with the oldest job
// first. It reads every waiting job and is meant for operators.
func (q *Queue) Waiting(ctx context.Context, poolID string) ([]Waiting, error) {
	p, err := q.settings.pool(poolID)
	if err != nil {
		return nil, err
	}
	var all []Waiting
	for class := Interactive; class <= Batch; class++ {
		all, err = q.lister.waitingIn(ctx, p, class, all)
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b Waiting) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), cmp.Compare(a.Class, b.Class))
	})
	return all, nil
}

// waitingIn adds the flows of one class. Members sort by flow, then by age. Reserved places
// sort after them, with the prefix ~.
func (l *lister) waitingIn(ctx context.Context, p *pool, class Class, all []Waiting) ([]Waiting, error) {
	first := len(all)
	err := l.members(ctx, p, class, redisconn.Between{Min: "-", Max: "(~"}, func(m string) error {
		w := strings.Fields(m) // org user lane seq id tokens
		if len(w) != 6 || idCode(w[4]) == "" {
			return fmt.Errorf("member %q", m)
		}
		flow := Flow{Org: w[0], User: w[1]}
		put, _ := idTime(w[4])
		if len(all) == first || all[len(all)-1].Flow != flow {
			all = append(all, Waiting{Flow: flow, Class: class, Oldest: put})
		}
		last := &all[len(all)-1]
		if put.Before(last.Oldest) {
			last.Oldest = put
		}
		tokens, _ := strconv.ParseInt(w[5], 10, 64)
		last.Jobs, last.Tokens = last.Jobs+1, last.Tokens+tokens
		switch lanePriority(w[2]) {
		case quota.High:
			last.High++
		case quota.Low:
			last.Low++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("queue: waiting jobs: %w", err)
	}
	return all, nil
}

// members calls fn for the waiting jobs of a class in a range.
func (l *lister) members(
	ctx context.Context, p *pool, class Class, in redisconn.Between, fn func(member string) error,
) error {
	const page = 1000
	in.Count = page
	for {
		members, err := l.rdb.ZRangeByLex(ctx, p.keys[10+int(class)], in).Result()
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := fn(m); err != nil {
				return err
			}
		}
		if len(members) < page {
			return nil
		}
		in.Min = "(" + members[page-1]
	}
}

// Parked lists what limits have parked in a pool, earliest wake-up first.
func (q *Queue) Parked(ctx context.Context, poolID string) ([]Parked, error) {
	p, err := q.settings.pool(poolID)
	if err != nil {
		return nil, err
	}
	entries, err := q.rdb.ZRangeWithScores(ctx, p.keys[4], 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("queue: parked: %w", err)
	}
	all := make([]Parked, 0, len(entries))
	for _, e := range entries {
		w := append(strings.Fields(e.Member), "", "", "") // kind org [user] [key] [model]
		var flow Flow
		switch w[0] {
		case "p": // the whole pool
		case "o", "O":
			flow.Org = w[1]
		default:
			flow = Flow{Org: w[1], User: w[2]}
		}
		all = append(all, Parked{Flow: flow, What: parkedWhat[w[0]], Until: time.UnixMicro(int64(e.Score))})
	}
	return all, nil
}
