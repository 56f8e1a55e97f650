package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/providers"
)

// jobRef refers to a waiting or claimed job without its record.
type jobRef struct {
	pool *pool
	id   string
}

// age returns the part of the id that orders jobs of all pools by when they were put; after
// the pool's code all ids have the same form.
func (r jobRef) age() string { return r.id[len(r.id)-ulidLen:] }

// listOpen is List for queued or running jobs. It reads no other jobs: the members of the
// org's waiting jobs, the ids of all claimed jobs, and then the records for one page.
func (l *lister) listOpen(ctx context.Context, org string, f Filter, after string, limit int) (Page, error) {
	var page Page
	refs, err := l.openJobs(ctx, org, f)
	if err != nil {
		return page, err
	}
	slices.SortFunc(refs, func(a, b jobRef) int { return cmp.Or(cmp.Compare(b.age(), a.age()), cmp.Compare(a.id, b.id)) })
	if after != "" {
		if idCode(after) == "" {
			return page, ErrNotFound
		}
		last := jobRef{id: after}.age()
		refs = slices.DeleteFunc(refs, func(r jobRef) bool { return r.age() >= last })
	}
	for chunk := range slices.Chunk(refs, listStep) {
		jobs, err := l.readRefs(ctx, chunk)
		if err != nil {
			return page, err
		}
		for _, j := range jobs {
			// It may have ended or started since its name was read.
			if j == nil || org != "" && j.Org != org || !f.picks(j) || j.Created.Before(f.Since) {
				continue
			}
			if len(page.Jobs) == limit {
				page.More, page.Next = true, page.Jobs[limit-1].ID
				return page, nil
			}
			page.Jobs = append(page.Jobs, j)
		}
	}
	return page, nil
}

// openJobs returns the jobs of an org that are waiting or claimed; of all orgs if org is
// empty.
func (l *lister) openJobs(ctx context.Context, org string, f Filter) ([]jobRef, error) {
	var refs []jobRef
	for _, p := range l.settings.pools() {
		if _, own := providers.SplitPool(p.ID); own != "" && org != "" && own != org {
			continue
		}
		found, err := l.openIn(ctx, p, org, f)
		if err != nil {
			return nil, fmt.Errorf("queue: list: %w", err)
		}
		refs = append(refs, found...)
	}
	return refs, nil
}

func (l *lister) openIn(ctx context.Context, p *pool, org string, f Filter) (refs []jobRef, err error) {
	// Claimed jobs run or are about to run; until then they are queued.
	ids, err := l.rdb.HKeys(ctx, p.keys[3]).Result()
	for _, id := range ids {
		if idCode(id) != "" {
			refs = append(refs, jobRef{p, id})
		}
	}
	if err != nil || f.State == Running {
		return refs, err
	}
	for class := Interactive; class <= Batch; class++ {
		for _, mark := range []string{"", "~ "} { // "~ " marks jobs that are not due yet or whose caller is gone
			err := l.members(ctx, p, class, between(mark, org, f.User), func(m string) error {
				w := strings.Fields(strings.TrimPrefix(m, "~ ")) // org user lane seq id tokens
				if len(w) == 6 && idCode(w[4]) != "" {
					refs = append(refs, jobRef{p, w[4]})
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return refs, nil
}

// between returns the range of the waiting members of an org or a user; of all orgs if org
// is empty.
func between(mark, org, user string) redisconn.Between {
	switch {
	case org != "" && user != "":
		return redisconn.Between{Min: "[" + mark + org + " " + user + " ", Max: "(" + mark + org + " " + user + "!"}
	case org != "":
		return redisconn.Between{Min: "[" + mark + org + " ", Max: "(" + mark + org + "!"}
	case mark != "":
		return redisconn.Between{Min: "[" + mark, Max: "+"}
	}
	return redisconn.Between{Min: "-", Max: "(~"}
}

// readRefs reads the records in one round trip. A job is nil if it is gone.
func (l *lister) readRefs(ctx context.Context, refs []jobRef) ([]*Job, error) {
	pipe := l.rdb.Pipeline()
	reads := make([]func() (*Job, error), len(refs))
	for i, r := range refs {
		reads[i] = r.pool.read(ctx, pipe, r.id)
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("queue: list: %w", err)
	}
	jobs := make([]*Job, len(refs))
	for i, read := range reads {
		var err error
		jobs[i], err = read()
		if err != nil && !errors.Is(err, ErrNewer) {
			return nil, err
		}
	}
	return jobs, addCosts(ctx, l.rdb, jobs...)
}
