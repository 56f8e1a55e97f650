package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file alone reads and writes what tenants send and receive: the body
// lg:{id}:in and the output lg:{id}:out:<attempt>, a stream whose entries have
// ids 1-0, 2-0, ... so that a repeated append changes nothing:
//
//	k=head s=<status> h=<header JSON>   k=b d=<bytes>   k=end ok=1|0 v=<outcome JSON>
func bodyKey(id string) string { return "lg:{" + id + "}:in" }

func outKey(id string, attempt int) string {
	return "lg:{" + id + "}:out:" + strconv.Itoa(attempt)
}

// indexCap bounds the index of an org and of a user; one put in indexTrim
// cuts it.
const (
	indexCap  = 100_000
	indexTrim = 64
)

// writeBody stores the body and lists the job, before the job exists: a job
// that exists always has both.
func (q *Queue) writeBody(ctx context.Context, p *pool, j *Job, body []byte) error {
	now := time.Now()
	oldest := itoa(now.Add(-p.MaxAge - p.ResultTTL).UnixMilli())
	pipe := q.rdb.Pipeline()
	pipe.Set(ctx, bodyKey(j.ID), body, p.MaxAge+p.ResultTTL)
	for _, index := range []string{orgIndex(j.Org), userIndex(j.Org, j.User)} {
		pipe.ZAddNX(ctx, index, redis.Z{Score: float64(now.UnixMilli()), Member: j.ID})
		pipe.PExpire(ctx, index, p.MaxAge+p.ResultTTL)
		if rand.N(indexTrim) == 0 {
			pipe.ZRemRangeByScore(ctx, index, "-inf", "("+oldest)
			pipe.ZRemRangeByRank(ctx, index, 0, -indexCap-1)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: write body: %w", err)
	}
	return nil
}

// dropBody forgets what writeBody wrote; a failure leaves it to its TTL.
func (q *Queue) dropBody(ctx context.Context, j *Job) {
	pipe := q.rdb.Pipeline()
	pipe.Unlink(ctx, bodyKey(j.ID))
	pipe.ZRem(ctx, orgIndex(j.Org), j.ID)
	pipe.ZRem(ctx, userIndex(j.Org, j.User), j.ID)
	_, _ = pipe.Exec(ctx)
}

// Body returns the body given to Put; ErrNotFound once it is forgotten, which
// for a job that succeeded is at once.
func (q *Queue) Body(ctx context.Context, j *Job) ([]byte, error) {
	body, err := q.rdb.Get(ctx, bodyKey(j.ID)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("queue: read body: %w", err)
	}
	return body, nil
}

// entry is one entry of an output, numbered from 1.
type entry struct {
	n      int64
	values []any
}

func headEntry(status int, h http.Header) []any {
	text, _ := json.Marshal(h) // strings only: cannot fail
	return []any{"k", "head", "s", status, "h", text}
}

func bytesEntry(data []byte) []any { return []any{"k", "b", "d", data} }

func endEntry(ok bool, v Verdict) []any {
	text, _ := json.Marshal(v) // plain fields only: cannot fail
	return []any{"k", "end", "ok", flag(ok), "v", text}
}

// appendOutput appends entries and wakes the watchers. Entries that are there
// already, after a lost reply, are skipped.
func (q *Queue) appendOutput(ctx context.Context, id string, attempt int, ttl time.Duration, entries []entry) error {
	key := outKey(id, attempt)
	pipe := q.rdb.Pipeline()
	adds := make([]*redis.StringCmd, len(entries))
	for i, e := range entries {
		adds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: itoa(e.n) + "-0", Values: e.values})
	}
	pipe.PExpire(ctx, key, ttl)
	pipe.Publish(ctx, jobChannel(id), "o")
	_, _ = pipe.Exec(ctx)
	for _, add := range adds {
		if err := add.Err(); err != nil && !strings.Contains(err.Error(), "equal or smaller") {
			return fmt.Errorf("queue: write output: %w", err)
		}
	}
	return nil
}

// outputEvents turns stream entries into events and returns the last id.
func outputEvents(attempt int, messages []redis.XMessage, last string) ([]Event, string, error) {
	events := make([]Event, 0, len(messages))
	for _, m := range messages {
		text := func(field string) string { s, _ := m.Values[field].(string); return s }
		last = m.ID
		switch text("k") {
		case "head":
			e := Event{Kind: Head, Attempt: attempt}
			e.Status, _ = strconv.Atoi(text("s"))
			if err := json.Unmarshal([]byte(text("h")), &e.Header); err != nil {
				return nil, last, fmt.Errorf("queue: output head: %w", err)
			}
			events = append(events, e)
		case "b":
			events = append(events, Event{Kind: Bytes, Attempt: attempt, Data: []byte(text("d"))})
		case "end":
			events = append(events, Event{Kind: End, Attempt: attempt, OK: text("ok") == "1"})
		}
	}
	return events, last, nil
}

// remains is what a dead attempt left behind.
type remains struct {
	outcome *Verdict // of a complete output
	partial bool     // some output, not complete
}

// remainsOf looks at the output of an attempt.
func (q *Queue) remainsOf(ctx context.Context, id string, attempt int) (remains, error) {
	last, err := q.rdb.XRevRangeN(ctx, outKey(id, attempt), "+", "-", 1).Result()
	if err != nil {
		return remains{}, fmt.Errorf("queue: read output: %w", err)
	}
	if len(last) == 0 {
		return remains{}, nil
	}
	values := last[0].Values
	if values["k"] != "end" || values["ok"] != "1" {
		return remains{partial: true}, nil
	}
	var v Verdict
	text, _ := values["v"].(string)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return remains{}, fmt.Errorf("queue: outcome of %s: %w", id, err)
	}
	return remains{outcome: &v}, nil
}

// loadClaimed reads a job and its body in one round trip.
func (q *Queue) loadClaimed(ctx context.Context, p *pool, id string) (*Job, []byte, error) {
	pipe := q.rdb.Pipeline()
	record := pipe.HGetAll(ctx, jobKey(p.ID, id))
	body := pipe.Get(ctx, bodyKey(id))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, fmt.Errorf("queue: read claimed job: %w", err)
	}
	j, err := decodeJob(p.ID, id, record.Val())
	if err != nil {
		return nil, nil, err
	}
	data, err := body.Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, fmt.Errorf("queue: read body: %w", err)
	}
	return j, data, nil
}

// unlinkBodies forgets the bodies of jobs that need them no more; a failure
// leaves them to their TTL.
func (q *Queue) unlinkBodies(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	pipe := q.rdb.Pipeline()
	for _, id := range ids {
		pipe.Unlink(ctx, bodyKey(id))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		q.log.DebugContext(ctx, "forget bodies", "err", err)
	}
}
