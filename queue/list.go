package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Filter picks jobs; its zero value picks all of an org's.
type Filter struct {
	User, Model string
	State       State
	Since       time.Time // put then or later, by the clock of the proxy that put it
}

func (f Filter) picks(j *Job) bool {
	return (f.User == "" || j.User == f.User) && (f.Model == "" || j.Model == f.Model) && (f.State == "" || j.State == f.State)
}

// Page is a part of a list of jobs.
type Page struct {
	Jobs []*Job
	// More tells that the list goes on after the job with the id Next, which
	// need not be one of Jobs.
	More bool
	Next string
}

const (
	listStep = 200    // jobs read at once
	listMost = 10_000 // looked at for one page
)

// List returns the jobs of an org that the filter picks, newest first: at most
// limit of them, older than the job `after` if that is not empty. A page may
// have fewer and yet more to come: it looks at 10,000 jobs at most. The error
// is ErrNotFound when `after` names no job of the org, or of the filter's user.
func (q *Queue) List(ctx context.Context, org string, f Filter, after string, limit int) (Page, error) {
	var page Page
	if !plain(org) || (f.User != "" && !plain(f.User)) {
		return page, nil
	}
	index := orgIndex(org)
	if f.User != "" {
		index = userIndex(org, f.User)
	}
	var from int64
	if after != "" {
		rank, err := q.rdb.ZRevRank(ctx, index, after).Result()
		if errors.Is(err, redis.Nil) {
			return page, ErrNotFound
		}
		if err != nil {
			return page, fmt.Errorf("queue: list: %w", err)
		}
		from = rank + 1
	}
	limit = min(max(limit, 1), 1000)
	for end := from + listMost; from < end; from += listStep {
		entries, err := q.rdb.ZRevRangeWithScores(ctx, index, from, from+listStep-1).Result()
		if err != nil {
			return page, fmt.Errorf("queue: list: %w", err)
		}
		done, err := q.fill(ctx, &page, org, f, entries, limit)
		if err != nil || done {
			return page, err
		}
	}
	page.More = true
	return page, nil
}

// fill adds the picked ones of an index's entries to a page. It reports whether
// the page is complete: full, or at the end of the list.
func (q *Queue) fill(ctx context.Context, page *Page, org string, f Filter, entries []redis.Z, limit int) (bool, error) {
	jobs, err := q.readAll(ctx, org, entries)
	if err != nil {
		return true, err
	}
	for i, e := range entries {
		if !f.Since.IsZero() && int64(e.Score) < f.Since.UnixMilli() {
			page.More, page.Next = false, ""
			return true, nil
		}
		j := jobs[i]
		if j == nil || j.Org != org || !f.picks(j) { // nil: forgotten, or its put was refused
			page.Next, _ = e.Member.(string)
			continue
		}
		if len(page.Jobs) == limit {
			page.More, page.Next = true, page.Jobs[limit-1].ID
			return true, nil
		}
		page.Jobs, page.Next = append(page.Jobs, j), j.ID
	}
	if len(entries) < listStep {
		page.More, page.Next = false, ""
		return true, nil
	}
	return false, nil
}

// readAll reads the jobs of an index's entries in one round trip; nil stands
// for a job that is forgotten, or not ours to read.
func (q *Queue) readAll(ctx context.Context, org string, entries []redis.Z) ([]*Job, error) {
	pipe := q.rdb.Pipeline()
	reads := make([]func() (*Job, error), len(entries))
	for i, e := range entries {
		id, _ := e.Member.(string)
		if p := q.poolOf(ctx, org, id); p != nil {
			reads[i] = p.read(ctx, pipe, id)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("queue: list: %w", err)
	}
	jobs := make([]*Job, len(entries))
	for i, read := range reads {
		if read == nil {
			continue
		}
		var err error
		if jobs[i], err = read(); err != nil && !errors.Is(err, ErrNewer) {
			return nil, err
		}
	}
	return jobs, nil
}
