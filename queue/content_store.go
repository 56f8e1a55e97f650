package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/wire"
)

// Bodies and answers above Options.BlobAbove are blobs, outside Redis:
// jobs/<id>/in and jobs/<id>/out-<attempt>. The store seals them. In their place
// is a ref, and the blob is there before it. While it is put out an answer is in
// Redis, for those who watch; at its end it moves.
const blobPrefix = "jobs/"

func bodyBlob(id string) string { return blobPrefix + id + "/in" }

func outBlob(id string, attempt int) string {
	return blobPrefix + id + "/out-" + strconv.Itoa(attempt)
}

// blobKey is the key in Redis that refers to a blob, "" for the name of
// something else.
func blobKey(name string) string {
	id, part, _ := strings.Cut(strings.TrimPrefix(name, blobPrefix), "/")
	part, _, _ = strings.Cut(part, ".") // what a killed writer left is called part.<digits>.tmp
	number, isOut := strings.CutPrefix(part, "out-")
	attempt, err := strconv.Atoi(number)
	switch {
	case !strings.HasPrefix(name, blobPrefix) || !plain(id):
		return ""
	case part == "in":
		return bodyKey(id)
	case isOut && err == nil:
		return outKey(id, attempt)
	}
	return ""
}

// errContentGone tells a caller that what a ref refers to is not there.
var errContentGone = &wire.Error{
	Status: http.StatusInternalServerError, Type: "server_error", Code: "content_lost",
	Message: "What the job was given or answered is too large for Redis and missing, or damaged, in files.store. Send " +
		"the call again",
}

// errNoBlobs tells that this process cannot follow a ref.
var errNoBlobs = errors.New("queue: what is read is kept in files.store, which this process does not have")

// errNoStore tells that files.store does not take an answer.
var errNoStore = errors.New("queue: files.store does not take the answer")

// errUnmounted tells that files.store is for now another directory.
var errUnmounted = errors.New("queue: files.store is not what it was at the start: is it mounted?")

// refMagic begins a ref in place of a body. JSON never begins with NUL.
const refMagic = "\x00lgb1"

// ref says what a blob has to be: its size and SHA-256 before it was sealed.
type ref struct {
	Size int64  `json:"n"`
	Sum  []byte `json:"sha256"`
}

// text is the ref as it stands at key, in the clear only if contents are.
func (r ref) text(ring *seal.Ring, org, key string) []byte {
	text, _ := json.Marshal(r) // plain fields only: cannot fail
	return append([]byte(refMagic), ring.Seal(text, org, key, "ref")...)
}

// refIn reads what stands at key, or says that it is no ref.
func (cs *contents) refIn(org, key string, text []byte) (r ref, ok bool, err error) {
	rest, ok := bytes.CutPrefix(text, []byte(refMagic))
	if !ok {
		return ref{}, false, nil
	}
	rest, err = cs.settings.seal().Open(rest, org, key, "ref")
	if err == nil {
		err = json.Unmarshal(rest, &r)
	}
	if err != nil {
		return ref{}, true, fmt.Errorf("queue: reference at %s: %w", key, err)
	}
	return r, true, nil
}

// outside reports whether something of this size is kept outside Redis.
func (cs *contents) outside(size int64) bool {
	above := cs.settings.now().opts.BlobAbove
	return cs.opts.Blobs != nil && above > 0 && size > above
}

// putBlob writes a blob of an org, which lasts when it returns, and counts it for as long
// as its key lives. What cannot be written stays in Redis, which the metrics tell.
func (cs *contents) putBlob(ctx context.Context, org, name string, plain []byte, life time.Duration) (ref, error) {
	err := cs.count(ctx, org, name, int64(len(plain)), life)
	if err == nil {
		err = cs.writeBlob(ctx, name, plain)
		if err != nil && cs.opts.Files != nil {
			_ = cs.opts.Files.Uncount(context.WithoutCancel(ctx), org, name) // else the count expires
		}
	}
	cs.metrics.blob(name, err)
	if err != nil {
		cs.log.WarnContext(ctx, "files.store does not take a blob, so Redis keeps what is in it", "blob", name, "err", err)
		return ref{}, err
	}
	sum := sha256.Sum256(plain)
	return ref{Size: int64(len(plain)), Sum: sum[:]}, nil
}

// count counts what is kept for an org where its files are.
func (cs *contents) count(ctx context.Context, org, name string, n int64, life time.Duration) error {
	if cs.opts.Files == nil {
		return nil
	}
	return cs.opts.Files.Count(ctx, org, name, n, life+sweepAge+sweepEvery)
}

// writeTime is how long a blob may take to be written: what hangs must leave the
// time to keep an answer in Redis. A variable for tests.
var writeTime = 20 * time.Second

func (cs *contents) writeBlob(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if !cs.opts.Blobs.Mounted() {
		return errUnmounted
	}
	w, err := cs.opts.Blobs.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("queue: write blob: %w", err)
	}
	return w.Commit()
}

// getBlob reads what a ref refers to. It is errContentGone when it is missing or
// another.
func (cs *contents) getBlob(ctx context.Context, name string, r ref) ([]byte, error) {
	if cs.opts.Blobs == nil {
		return nil, errNoBlobs
	}
	from, err := cs.opts.Blobs.Open(ctx, name, 0)
	if errors.Is(err, blob.ErrNotFound) && !cs.opts.Blobs.Mounted() {
		return nil, errUnmounted
	}
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, seal.ErrBroken) {
		return nil, cs.lost(ctx, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("queue: read blob: %w", err)
	}
	defer from.Close()
	data, err := io.ReadAll(io.LimitReader(from, r.Size+1))
	if errors.Is(err, seal.ErrBroken) {
		return nil, cs.lost(ctx, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("queue: read blob: %w", err)
	}
	if sum := sha256.Sum256(data); int64(len(data)) != r.Size || !bytes.Equal(sum[:], r.Sum) {
		return nil, cs.lost(ctx, name, errors.New("it is not what was written"))
	}
	return data, nil
}

func (cs *contents) lost(ctx context.Context, name string, err error) error {
	cs.metrics.blobs.WithLabelValues(blobKind(name), "lost").Inc()
	cs.log.ErrorContext(ctx, "a blob that a job refers to is missing or damaged in files.store", "blob", name, "err", err)
	return errContentGone
}

func blobKind(name string) string {
	if strings.HasSuffix(name, "/in") {
		return "body"
	}
	return "answer"
}

// kept is a body as it is written to Redis: sealed, or the ref to its blob.
func (cs *contents) kept(ctx context.Context, p *pool, j *Job, body []byte) (text []byte, away bool) {
	if cs.outside(int64(len(body))) {
		if r, err := cs.putBlob(ctx, j.Org, bodyBlob(j.ID), body, p.life()); err == nil {
			return r.text(cs.settings.seal(), j.Org, bodyKey(j.ID)), true
		}
	}
	return cs.settings.seal().Seal(body, j.Org, bodyKey(j.ID)), false
}

// openBody turns what Redis has of a body into the body.
func (cs *contents) openBody(ctx context.Context, j *Job, text []byte) ([]byte, error) {
	r, away, err := cs.refIn(j.Org, bodyKey(j.ID), text)
	if err != nil {
		return nil, err
	}
	if away {
		return cs.getBlob(ctx, bodyBlob(j.ID), r)
	}
	return cs.openText(j, text)
}

// openText is openBody for one that is in Redis.
func (cs *contents) openText(j *Job, text []byte) ([]byte, error) {
	plain, err := cs.settings.seal().Open(text, j.Org, bodyKey(j.ID))
	if err != nil {
		return nil, fmt.Errorf("queue: body of %s: %w", j.ID, err)
	}
	return plain, nil
}

// slowBodies are the last few bodies that took so long to read that the grants
// of their claims may have gone stale: the jobs go back, and come again at once.
type slowBodies struct {
	mu   sync.Mutex
	list []slowBody
}

type slowBody struct {
	id   string
	body []byte
}

// slowMost bodies are kept at most.
const slowMost = 4

func (s *slowBodies) keep(id string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == slowMost {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, slowBody{id, body})
}

// take returns the body of a job and keeps it no longer; nil when it has none.
func (s *slowBodies) take(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.list {
		if b.id == id {
			s.list = slices.Delete(s.list, i, i+1)
			return b.body
		}
	}
	return nil
}

// dropBlob forgets the body of a job that succeeded: what refers to it first.
func (cs *contents) dropBlob(ctx context.Context, org, id string) {
	cs.unlinkBodies(ctx, []string{id})
	cs.removeBlobs(ctx, org, bodyBlob(id))
}

// removeBlobs deletes the blobs of a job whose records are gone, in so far as
// there are any; the sweep deletes what this fails to.
func (cs *contents) removeBlobs(ctx context.Context, org string, names ...string) {
	if cs.opts.Blobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	for _, name := range names {
		if err := cs.opts.Blobs.Remove(ctx, name); err != nil {
			cs.log.DebugContext(ctx, "blob not removed, a sweep will", "blob", name, "err", err)
			return
		}
	}
	if cs.opts.Files != nil {
		_ = cs.opts.Files.Uncount(ctx, org, names...) // else the count expires
	}
}

const removeTime = 10 * time.Second

// outputMove is an answer about to leave Redis: the entries whose bytes are in
// the blob, and the ref and the end that come in their place.
type outputMove struct {
	ids     []string
	entries []entry
}

// depart writes an answer that Redis has whole to a blob; the ref will be entry
// n of the output, and the end that follows n+1.
func (cs *contents) depart(ctx context.Context, o *Output, n int64, end []any) (*outputMove, error) {
	key := outKey(o.job.ID, o.attempt)
	if err := cs.opts.Spool.Memory.Take(ctx, o.job.Org, o.size, restPatience); err != nil {
		return nil, err
	}
	defer cs.opts.Spool.Memory.Give(o.job.Org, o.size)
	whole := bytes.NewBuffer(make([]byte, 0, o.size))
	ids, err := cs.wholeOutput(ctx, o.job.Org, key, whole)
	if err != nil {
		return nil, err
	}
	if n := int64(whole.Len()); n != o.size-o.spilled {
		return nil, fmt.Errorf("queue: output %s has %d bytes and not %d", key, n, o.size-o.spilled)
	}
	if _, err := o.rest.WriteTo(whole); err != nil {
		return nil, err
	}
	data := whole.Bytes()
	r, err := cs.putBlob(ctx, o.job.Org, outBlob(o.job.ID, o.attempt), data, o.ttl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoStore, err)
	}
	return &outputMove{ids, []entry{{n, blobEntry(r.text(cs.settings.seal(), o.job.Org, key))}, {n + 1, end}}}, nil
}

// moveOut puts the ref in the place of the bytes, all at once: one who watches
// sees all of the bytes before, or the ref after. It is idempotent, and must be
// repeated until it is known to be done: an answer that is late may still be
// carried out.
func (cs *contents) moveOut(ctx context.Context, o *Output, d *outputMove) error {
	key := outKey(o.job.ID, o.attempt)
	pipe := cs.rdb.TxPipeline()
	for some := range slices.Chunk(d.ids, 1000) {
		pipe.XDel(ctx, key, some...)
	}
	for _, e := range d.entries {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: itoa(e.n) + "-0", Values: e.values})
	}
	pipe.PExpire(ctx, key, o.ttl)
	if _, err := pipe.Exec(ctx); err != nil && !strings.Contains(err.Error(), "equal or smaller") {
		return fmt.Errorf("queue: move output: %w", err)
	}
	_ = cs.rdb.Publish(ctx, jobChannel(o.job.ID), "o").Err() // who misses it looks by itself
	return nil
}

// wholeOutput reads back the bytes of an output, and returns the ids of their entries.
func (cs *contents) wholeOutput(ctx context.Context, org, key string, to *bytes.Buffer) (ids []string, err error) {
	for last := "-"; ; {
		page, err := cs.rdb.XRangeN(ctx, key, last, "+", 256).Result()
		if err != nil {
			return nil, fmt.Errorf("queue: read output: %w", err)
		}
		for _, m := range page {
			last = "(" + m.ID
			if m.Values["k"] != "b" {
				continue
			}
			piece, err := cs.openBytes(org, key, m)
			if err != nil {
				return nil, err
			}
			to.Write(piece)
			ids = append(ids, m.ID)
		}
		if len(page) == 0 {
			return ids, nil
		}
	}
}

// blobOf reads the answer that an entry of an output refers to; nothing for one
// who has all of its bytes. Room is what it takes of the spool's memory, to be given back.
func (cs *contents) blobOf(
	ctx context.Context, of attemptRef, m redis.XMessage, have int64,
) (data []byte, room int64, err error) {
	text, _ := m.Values["r"].(string)
	r, ok, err := cs.refIn(of.org, of.key(), []byte(text))
	if err != nil || !ok {
		return nil, 0, errors.Join(err, errContentGone)
	}
	if r.Size <= have {
		return nil, 0, nil
	}
	if err := cs.opts.Spool.Memory.Take(ctx, of.org, r.Size, bodyPatience); err != nil {
		return nil, 0, err
	}
	data, err = cs.getBlob(ctx, outBlob(of.id, of.attempt), r)
	if err != nil {
		cs.opts.Spool.Memory.Give(of.org, r.Size)
		return nil, 0, err
	}
	return data, r.Size, nil
}
