package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// contents stores the bodies and answers of jobs: in Redis, or in the blob store if they
// are large.
type contents struct {
	rdb     redisconn.DB
	opts    *Options
	log     *slog.Logger
	metrics *metrics
	memory  *capacity.Memory
	// bodies writes the bodies of new jobs. It does not share a connection with reads,
	// so that a slow write never delays a read.
	bodies *coalescedCommands

	settings  *settings
	admission *admission
}

// Only this file reads and writes what tenants send and receive: the body lg:{id}:in and
// the output lg:{id}:out:<attempt>, a stream whose entries have the ids 1-0, 2-0, ... so
// that a repeated append has no effect:
//
//	k=head s=<status> h=<header JSON>   k=b d=<bytes>   k=end ok=1|0 v=<outcome JSON>
//	k=blob r=<ref>: all the bytes, now outside Redis
//
// With Options.Seal, the body and the bytes are sealed, the bytes in field x instead of d.
// Each is bound to its org, key and position.
func bodyKey(id string) string { return "lg:{" + id + "}:in" }

func outKey(id string, attempt int) string {
	return "lg:{" + id + "}:out:" + strconv.Itoa(attempt)
}

// Concurrent requests of one kind (bodies, looks, job reads) share a pipeline of at most
// bodyBatch callers. A body larger than bodySmall gets its own.
const (
	bodyBatch = 32
	bodySmall = 64 << 10
)

// runLife is how much longer a job's body is kept than the job may wait and its results
// live, and how long partial output is kept after each write: no attempt is silent for
// longer.
const runLife = time.Hour

// indexCap bounds the index of an org and of a user. One put in indexTrim trims it.
const (
	indexCap  = 100_000
	indexTrim = 64
)

// writeBody stores the body and lists the job before the job exists, so that an existing
// job always has both. Jobs of batches are not listed; their batch is.
func (cs *contents) writeBody(ctx context.Context, p *pool, j *Job, body []byte) error {
	j.away = cs.outside(j.Bytes)
	if err := cs.admission.admit(ctx, p, j); err != nil {
		return err
	}
	text, away := cs.kept(ctx, p, j, body)
	if j.away && !away { // the body has to stay in Redis
		j.away = false
		if err := cs.admission.admit(ctx, p, j); err != nil {
			return err
		}
	}
	var cmds []failing
	add := func(pipe redisconn.Pipe) { cmds = addBody(ctx, pipe, p, j, text) }
	if len(text) > bodySmall { // a large body must not delay other callers
		pipe := cs.rdb.Pipeline()
		add(pipe)
		_ = pipe.Exec(ctx) // every command has its own error
	} else if err := cs.bodies.exec(ctx, add); err != nil {
		return fmt.Errorf("queue: write body: %w", err)
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			if capacity.IsFull(err) { // no command can take effect later
				cs.dropBody(ctx, j)
			}
			return fmt.Errorf("queue: write body: %w", err)
		}
	}
	return nil
}

// failing is a command of any type.
type failing interface{ Err() error }

// addBody adds the commands of writeBody to a pipeline.
func addBody(ctx context.Context, pipe redisconn.Pipe, p *pool, j *Job, text []byte) []failing {
	now := time.Now()
	oldest := itoa(now.Add(-p.MaxAge - p.ResultTTL).UnixMilli())
	cmds := append(make([]failing, 0, 5), pipe.Set(ctx, bodyKey(j.ID), text, p.MaxAge+p.ResultTTL+runLife))
	for _, index := range j.indexes() {
		cmds = append(cmds,
			pipe.ZAddNX(ctx, index, redisconn.Z{Score: float64(now.UnixMilli()), Member: j.ID}),
			pipe.PExpire(ctx, index, p.MaxAge+p.ResultTTL))
		if rand.N(indexTrim) == 0 {
			pipe.ZRemRangeByScore(ctx, index, "-inf", "("+oldest)
			pipe.ZRemRangeByRank(ctx, index, 0, -indexCap-1)
		}
	}
	return cmds
}

func (j *Job) indexes() []string {
	if j.Class == Batch {
		return nil
	}
	return []string{orgIndex(j.Org), userIndex(j.Org, j.User)}
}

// dropBody deletes what writeBody wrote. If that fails, it expires.
func (cs *contents) dropBody(ctx context.Context, j *Job) {
	pipe := cs.rdb.Pipeline()
	pipe.Unlink(ctx, bodyKey(j.ID))
	for _, index := range j.indexes() {
		pipe.ZRem(ctx, index, j.ID)
	}
	_ = pipe.Exec(ctx)
	_ = cs.memory.Release(ctx, j.ID) // if this fails, the reservation expires
	if j.away {
		cs.removeBlobs(ctx, j.Org, bodyBlob(j.ID))
	}
}

// Body returns the body given to Put, or ErrNotFound once it is deleted, which happens as
// soon as the job succeeds. The error is a *wire.Error if the body should be in the blob
// store but is not.
func (q *Queue) Body(ctx context.Context, j *Job) ([]byte, error) {
	body, err := q.rdb.Get(ctx, bodyKey(j.ID)).Bytes()
	if redisconn.IsNil(err) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("queue: read body: %w", err)
	}
	return q.contents.openBody(ctx, j, body)
}

// entry is one entry of an output, numbered from 1.
type entry struct {
	n      int64
	values []any
}

// size returns the entry's share of the answer in bytes.
func (e entry) size() int64 {
	data, _ := e.values[3].([]byte)
	return int64(len(data))
}

func headEntry(status int, h http.Header) []any {
	text, _ := json.Marshal(h) // strings only: cannot fail
	return []any{"k", "head", "s", status, "h", text}
}

func bytesEntry(data []byte) []any { return []any{"k", "b", "d", data} }

func blobEntry(ref []byte) []any { return []any{"k", "blob", "r", ref} }

func endEntry(ok bool, v Verdict) []any {
	text, _ := json.Marshal(v) // plain fields only: cannot fail
	return []any{"k", "end", "ok", flag(ok), "v", text}
}

// sealed returns the entry's values as they are stored.
func (cs *contents) sealed(org, key string, e entry) []any {
	if cs.settings.seal() == nil || e.values[1] != "b" {
		return e.values
	}
	data, _ := e.values[3].([]byte)
	return []any{"k", "b", "x", cs.settings.seal().Seal(data, org, key, itoa(e.n)+"-0")}
}

// attemptRef names an attempt of an org's job whose output is recorded.
type attemptRef struct {
	org, id string
	attempt int
}

func (a attemptRef) key() string { return outKey(a.id, a.attempt) }

// appendOutput appends entries and wakes the watchers. It skips entries that are already
// there after a lost reply.
func (cs *contents) appendOutput(ctx context.Context, of attemptRef, ttl time.Duration, entries []entry) error {
	key := of.key()
	pipe := cs.rdb.Pipeline()
	adds := make([]failing, len(entries))
	for i, e := range entries {
		adds[i] = pipe.XAdd(ctx, key, itoa(e.n)+"-0", cs.sealed(of.org, key, e))
	}
	pipe.PExpire(ctx, key, ttl)
	pipe.Publish(ctx, jobChannel(of.id), "o")
	_ = pipe.Exec(ctx)
	for _, add := range adds {
		if err := add.Err(); err != nil && !strings.Contains(err.Error(), "equal or smaller") {
			return fmt.Errorf("queue: write output: %w", err)
		}
	}
	return nil
}

// reading is the position of a reader in an output: the id of the last entry, and the
// number of bytes.
type reading struct {
	last  string
	bytes int64
}

// outputEvents converts entries of an output into events and returns the new position.
func (cs *contents) outputEvents(
	ctx context.Context, of attemptRef, messages []redisconn.Entry, far reading,
) ([]Event, reading, error) {
	key, events := of.key(), make([]Event, 0, len(messages))
	for _, m := range messages {
		text := func(field string) string { s, _ := m.Values[field].(string); return s }
		far.last = m.ID
		switch text("k") {
		case "head":
			e := Event{Kind: Head, Attempt: of.attempt}
			e.Status, _ = strconv.Atoi(text("s"))
			if err := json.Unmarshal([]byte(text("h")), &e.Header); err != nil {
				return nil, far, fmt.Errorf("queue: output head: %w", err)
			}
			events = append(events, e)
		case "b":
			data, err := cs.openBytes(of.org, key, m)
			if err != nil {
				return nil, far, err
			}
			far.bytes += int64(len(data))
			events = append(events, Event{Kind: Bytes, Attempt: of.attempt, Data: data})
		case "blob":
			data, room, err := cs.blobOf(ctx, of, m, far.bytes)
			if err != nil {
				return nil, far, err
			}
			if rest := data[min(far.bytes, int64(len(data))):]; len(rest) > 0 {
				far.bytes = int64(len(data))
				events = append(events, Event{Kind: Bytes, Attempt: of.attempt, Data: rest, room: room})
			}
		case "end":
			events = append(events, Event{Kind: End, Attempt: of.attempt, OK: text("ok") == "1"})
		}
	}
	return events, far, nil
}

func (cs *contents) openBytes(org, key string, m redisconn.Entry) ([]byte, error) {
	if plain, ok := m.Values["d"].(string); ok {
		return []byte(plain), nil
	}
	text, _ := m.Values["x"].(string)
	plain, err := cs.settings.seal().Open([]byte(text), org, key, m.ID)
	if err != nil {
		return nil, fmt.Errorf("queue: output %s: %w", key, err)
	}
	return plain, nil
}

// remains is what a dead attempt left behind.
type remains struct {
	outcome *Verdict // of a complete output
	partial bool     // the output is incomplete
}

// remainsOf reads what an attempt left in its output.
func (cs *contents) remainsOf(ctx context.Context, id string, attempt int) (remains, error) {
	last, err := cs.rdb.XRevRangeN(ctx, outKey(id, attempt), "+", "-", 1).Result()
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

// fetch reads the jobs and bodies of claims in one round trip, then what dead attempts
// left. Read errors are stored in the claim's unread.
func (cs *contents) fetch(ctx context.Context, p *pool, claims []*Claim) {
	pipe := cs.rdb.Pipeline()
	records, bodies := make([]redisconn.Cmd[map[string]string], len(claims)), make([]redisconn.Text, len(claims))
	for i, c := range claims {
		records[i], bodies[i] = pipe.HGetAll(ctx, jobKey(p.ID, c.id)), pipe.Get(ctx, bodyKey(c.id))
	}
	_ = pipe.Exec(ctx) // every command has its own error
	for i, c := range claims {
		c.unread = c.decode(records[i], bodies[i])
	}
	for _, c := range claims {
		if c.unread == nil && !c.Job.State.Terminal() && c.Job.Attempt > 0 {
			left, err := cs.remainsOf(ctx, c.id, c.Job.Attempt)
			c.Recovered = left.outcome
			c.partial = left.partial
			c.unread = err
		}
	}
}

// decode fills the claim from what was read.
func (c *Claim) decode(record redisconn.Cmd[map[string]string], body redisconn.Text) error {
	if err := record.Err(); err != nil {
		return fmt.Errorf("queue: read claimed job: %w", err)
	}
	j, err := decodeJob(c.p.ID, c.id, record.Val())
	switch {
	case err != nil:
		return err
	case j == nil:
		return ErrGone
	}
	data, err := body.Bytes()
	if err != nil && !redisconn.IsNil(err) {
		return fmt.Errorf("queue: read body: %w", err)
	}
	c.ref, c.away, err = c.q.contents.refIn(j.Org, bodyKey(j.ID), data)
	if err != nil {
		return err
	}
	j.away = c.away
	if !c.away {
		c.Body, err = c.q.contents.openText(j, data)
		if err != nil {
			return err
		}
	}
	c.Job = j
	return nil
}

// unlinkBodies deletes the bodies of jobs that no longer need them. If that fails, they
// expire.
func (cs *contents) unlinkBodies(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	pipe := cs.rdb.Pipeline()
	for _, id := range ids {
		pipe.Unlink(ctx, bodyKey(id))
	}
	if err := pipe.Exec(ctx); err != nil {
		cs.log.DebugContext(ctx, "bodies not deleted", "err", err)
	}
}

// ContentKeys lists where a job's content may be stored: the Redis keys and blob names of
// its body and of each attempt.
func ContentKeys(id string, attempts int) (keys, blobs []string) {
	keys, blobs = []string{bodyKey(id)}, []string{bodyBlob(id)}
	for n := range attempts + 1 {
		keys, blobs = append(keys, outKey(id, n)), append(blobs, outBlob(id, n))
	}
	return keys, blobs
}
