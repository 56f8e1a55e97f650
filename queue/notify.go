package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// JobEnd is the end of a job that had a notice.
type JobEnd struct {
	ID, Org string
	State   State
	At      time.Time // on Redis's clock
	Notice  string    // Job.Notice
}

const (
	announceEvery = time.Second
	announceMost  = 100              // per script call
	announceLease = 30 * time.Second // how long one process has to announce the ends it took
)

// Announce calls fn with the end of every job that has a notice, in no particular order,
// until ctx is done; it then returns nil. The script that ends the job lists its end, and
// the end stays listed until fn has returned nil, so no end is missed if a process dies. fn
// may see an end again after half a minute if its process died or Redis was unavailable,
// and must tolerate that. Any number of processes may announce; each end goes to one of
// them.
func (q *Queue) Announce(ctx context.Context, fn func(context.Context, JobEnd) error) error {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		for _, p := range q.settings.pools() {
			if p.quiet() {
				continue
			}
			if err := q.endings.announce(ctx, p, fn); err != nil && ctx.Err() == nil {
				q.log.WarnContext(ctx, "job ends not announced, will retry", "pool", p.ID, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.endings.ends:
		case <-tick.C:
		}
	}
}

// announce reports the ends in one pool that no other process is announcing.
func (en *endings) announce(ctx context.Context, p *pool, fn func(context.Context, JobEnd) error) error {
	for {
		reply, err := en.scripts.eval(ctx, "ended", endedScript, p.endedKeys(), announceLease.Microseconds(), announceMost)
		if err != nil || reply == "" {
			return err
		}
		lines := strings.Split(reply, "\n")
		told := make([]any, 0, len(lines))
		for _, line := range lines {
			e, err := endingOf(line)
			if err == nil {
				err = fn(ctx, e)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				en.log.WarnContext(ctx, "job end not announced, will retry", "job", e.ID, "err", err)
				continue
			}
			told = append(told, line)
		}
		if len(told) > 0 {
			if err := en.rdb.ZRem(ctx, p.endedKeys()[0], told...).Err(); err != nil {
				return fmt.Errorf("queue: announce: %w", err)
			}
		}
		if len(lines) < announceMost {
			return nil
		}
	}
}

// endingOf decodes an entry of the ended list, as written by ended_add in jobs.lua.
func endingOf(line string) (JobEnd, error) {
	w := strings.SplitN(line, " ", 5)
	if len(w) != 5 {
		return JobEnd{}, fmt.Errorf("queue: %q is no end of a job", line)
	}
	return JobEnd{ID: w[0], State: State(w[1]), Org: w[2], At: instant(w[3]), Notice: w[4]}, nil
}

// announceSoon makes this process announce an end immediately, if it runs Announce.
func (en *endings) announceSoon(j *Job) {
	if j.Notice == "" {
		return
	}
	en.settings.pools()[j.Pool].stir()
	signal(en.ends)
}

func (p *pool) endedKeys() []string { return p.keys[22:23] }
