package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// Filter selects jobs; its zero value selects all jobs of an org.
type Filter struct {
	User, Model string
	State       State
	Born        *string   // of the user; nil: any
	Since       time.Time // put at this time or later, by the clock of the proxy that put the job
}

// lister reads pages of jobs.
type lister struct {
	rdb      redisconn.DB
	settings *settings
	own      *ownedPools
}

func (f Filter) picks(j *Job) bool {
	return (f.User == "" || j.User == f.User) && (f.Born == nil || j.UserBorn == *f.Born) &&
		(f.Model == "" || j.Model == f.Model) && (f.State == "" || j.State == f.State)
}

// Page is one page of a list of jobs.
type Page struct {
	Jobs []*Job
	// More means the list continues after the job with the id Next, which need not be
	// one of Jobs.
	More bool
	Next string
}

const (
	listStep = 200    // jobs read in one round trip
	listMost = 10_000 // jobs examined for one page
)

// List returns the jobs of an org that the filter selects, newest first: at most limit of
// them, older than the job `after` if that is not empty. For the states Queued and Running
// it reads only waiting and claimed jobs, and an empty org means all orgs. Otherwise it
// examines at most 10,000 jobs, reading only the state of those that do not match it, so a
// page may have fewer than limit jobs although there are more. The error is ErrNotFound if
// `after` names no job of the org, or of the filter's user.
func (q *Queue) List(ctx context.Context, org string, f Filter, after string, limit int) (Page, error) {
	limit = min(max(limit, 1), 1000)
	open := f.State == Queued || f.State == Running
	if open && (org == "" || plain(org)) && (f.User == "" || plain(f.User)) {
		return q.lister.listOpen(ctx, org, f, after, limit)
	}
	if !plain(org) || (f.User != "" && !plain(f.User)) {
		return Page{}, nil
	}
	index := orgIndex(org)
	if f.User != "" {
		index = userIndex(org, f.User)
	}
	var from int64
	if after != "" {
		rank, err := q.rdb.ZRevRank(ctx, index, after).Result()
		if redisconn.IsNil(err) {
			return Page{}, ErrNotFound
		}
		if err != nil {
			return Page{}, fmt.Errorf("queue: list: %w", err)
		}
		from = rank + 1
	}
	read := listing{org: org, filter: f, limit: limit}
	for end := from + listMost; from < end; from += listStep {
		entries, err := q.rdb.ZRevRangeWithScores(ctx, index, from, from+listStep-1).Result()
		if err != nil {
			return read.page, fmt.Errorf("queue: list: %w", err)
		}
		done, err := q.lister.fill(ctx, &read, entries)
		if err != nil || done {
			return read.page, err
		}
	}
	read.page.More = true
	return read.page, nil
}

// listing is a page of an org's jobs while it is being read.
type listing struct {
	org    string
	filter Filter
	limit  int
	page   Page
}

// fill adds the selected jobs among an index's entries to the page. It reports whether the
// page is complete: full, or at the end of the list.
func (l *lister) fill(ctx context.Context, r *listing, entries []redisconn.Z) (bool, error) {
	page, f := &r.page, r.filter
	jobs, err := l.readAll(ctx, r.org, f.State, entries)
	if err != nil {
		return true, err
	}
	for i, e := range entries {
		if !f.Since.IsZero() && int64(e.Score) < f.Since.UnixMilli() {
			page.More, page.Next = false, ""
			return true, nil
		}
		j := jobs[i]
		if j == nil || j.Org != r.org || !f.picks(j) { // nil: expired, or the put was refused
			page.Next = e.Member
			continue
		}
		if len(page.Jobs) == r.limit {
			page.More, page.Next = true, page.Jobs[r.limit-1].ID
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

// readAll reads the jobs of an index's entries. A job is nil if it has expired, belongs to
// another org, or is not in the wanted state. The state is read first, so that a long list
// of other jobs costs one field each.
func (l *lister) readAll(ctx context.Context, org string, want State, entries []redisconn.Z) ([]*Job, error) {
	refs, at, err := l.inState(ctx, org, want, entries)
	if err != nil {
		return nil, err
	}
	jobs := make([]*Job, len(entries))
	if len(refs) == 0 {
		return jobs, nil
	}
	found, err := l.readRefs(ctx, refs)
	if err != nil {
		return nil, err
	}
	for k, j := range found {
		jobs[at[k]] = j
	}
	return jobs, nil
}

// inState returns the entries that are in the wanted state (any if it is empty), and their
// positions.
func (l *lister) inState(ctx context.Context, org string, want State,
	entries []redisconn.Z,
) (refs []jobRef, at []int, err error) {
	states := make([]redisconn.Text, len(entries))
	pipe := l.rdb.Pipeline()
	for i, e := range entries {
		id := e.Member
		p := l.own.poolOf(ctx, org, id)
		if p == nil {
			continue
		}
		if want == "" {
			refs, at = append(refs, jobRef{p, id}), append(at, i)
			continue
		}
		states[i] = pipe.HGet(ctx, jobKey(p.ID, id), "state")
	}
	if want == "" {
		return refs, at, nil
	}
	if err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, nil, fmt.Errorf("queue: list: %w", err)
	}
	for i, state := range states {
		if state == nil || State(state.Val()) != want {
			continue
		}
		id := entries[i].Member
		refs, at = append(refs, jobRef{l.own.poolOf(ctx, org, id), id}), append(at, i)
	}
	return refs, at, nil
}
