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

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/wire"
)

// Bodies and answers above Options.BlobAbove are blobs outside Redis: jobs/<id>/in and
// jobs/<id>/out-<attempt>. The store seals them. Redis holds a ref in their place, written
// after the blob. An answer stays in Redis for its watchers while it grows, and moves out
// when it ends.
const blobPrefix = "jobs/"

func bodyBlob(id string) string { return blobPrefix + id + "/in" }

func outBlob(id string, attempt int) string {
	return blobPrefix + id + "/out-" + strconv.Itoa(attempt)
}

// blobKey returns the Redis key that refers to a blob, or "" if the name is not that of a
// blob.
func blobKey(name string) string {
	id, part, _ := strings.Cut(strings.TrimPrefix(name, blobPrefix), "/")
	part, _, _ = strings.Cut(part, ".") // a killed writer leaves part.<digits>.tmp
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

// errContentGone is returned to a caller when the blob of a ref is missing.
var errContentGone = &wire.Error{
	Status: http.StatusInternalServerError, Type: "server_error", Code: "content_lost",
	Message: "The stored request or answer of this job is missing or damaged in files.store. Send the call again",
}

// errNoBlobs is returned when this process has no store to resolve a ref with.
var errNoBlobs = errors.New("queue: the content is in files.store, which this process does not have")

// errPartLost is returned when Redis no longer has all of an output that was sent to it, for example after a failover.
var errPartLost = errors.New("queue: a part of the output is lost")

// errNoStore is returned when files.store does not accept an answer.
var errNoStore = errors.New("queue: files.store does not accept the answer")

// errUnmounted is returned while files.store is a different directory than at startup.
var errUnmounted = errors.New("queue: files.store has changed since the start: check that it is mounted")

// refMagic starts a ref that takes the place of a body. JSON never starts with NUL.
const refMagic = "\x00lgb1"

// ref identifies a blob by its size and SHA-256 before sealing.
type ref struct {
	Size int64  `json:"n"`
	Sum  []byte `json:"sha256"`
}

// text returns the ref as stored at key. It is in the clear only if contents are.
func (r ref) text(ring *seal.Ring, org, key string) []byte {
	text, _ := json.Marshal(r) // plain fields only: cannot fail
	return append([]byte(refMagic), ring.Seal(text, org, key, "ref")...)
}

// refIn decodes the ref stored at key. ok is false if the text is not a ref.
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

// outside reports whether content of this size is stored outside Redis.
func (cs *contents) outside(size int64) bool {
	above := cs.settings.now().opts.BlobAbove
	return cs.opts.Blobs != nil && above > 0 && size > above
}

// putBlob writes a blob of an org durably and counts it for as long as its key lives. If
// the write fails, the content stays in Redis and the metrics record it.
func (cs *contents) putBlob(ctx context.Context, org, name string, plain []byte, life time.Duration) (ref, error) {
	err := cs.count(ctx, org, name, int64(len(plain)), life)
	if err == nil {
		err = cs.writeBlob(ctx, name, plain)
		if err != nil && cs.opts.Files != nil {
			_ = cs.opts.Files.Uncount(context.WithoutCancel(ctx), org, name) // if this fails, the count expires
		}
	}
	cs.metrics.blob(name, err)
	if err != nil {
		cs.log.WarnContext(ctx, "blob not written to files.store, kept in redis", "blob", name, "err", err)
		return ref{}, err
	}
	sum := sha256.Sum256(plain)
	return ref{Size: int64(len(plain)), Sum: sum[:]}, nil
}

// count adds stored bytes to the usage of an org's files.
func (cs *contents) count(ctx context.Context, org, name string, n int64, life time.Duration) error {
	if cs.opts.Files == nil {
		return nil
	}
	return cs.opts.Files.Count(ctx, org, name, n, life+sweepAge+sweepEvery)
}

// writeTime bounds the writing of a blob, so that a hanging store leaves time to keep the
// answer in Redis. It is a variable for tests.
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

// getBlob reads the blob of a ref. It returns errContentGone if the blob is missing or does
// not match.
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
		return nil, cs.lost(ctx, name, errors.New("its size or checksum does not match"))
	}
	return data, nil
}

func (cs *contents) lost(ctx context.Context, name string, err error) error {
	cs.metrics.blobs.WithLabelValues(blobKind(name), "lost").Inc()
	cs.log.ErrorContext(ctx, "blob of a job missing or damaged in files.store", "blob", name, "err", err)
	return errContentGone
}

func blobKind(name string) string {
	if strings.HasSuffix(name, "/in") {
		return "body"
	}
	return "answer"
}

// kept returns a body as written to Redis: sealed, or replaced by the ref to its blob.
func (cs *contents) kept(ctx context.Context, p *pool, j *Job, body []byte) (text []byte, away bool) {
	if cs.outside(int64(len(body))) {
		if r, err := cs.putBlob(ctx, j.Org, bodyBlob(j.ID), body, p.life()); err == nil {
			return r.text(cs.settings.seal(), j.Org, bodyKey(j.ID)), true
		}
	}
	return cs.settings.seal().Seal(body, j.Org, bodyKey(j.ID)), false
}

// openBody returns the body for what Redis holds of it.
func (cs *contents) openBody(ctx context.Context, j *Job, text []byte) ([]byte, error) {
	r, away, err := cs.refIn(j.Org, bodyKey(j.ID), text)
	switch {
	case err != nil:
		return nil, err
	case away:
		return cs.getBlob(ctx, bodyBlob(j.ID), r)
	}
	return cs.openText(j, text)
}

// openText is openBody for a body that is in Redis.
func (cs *contents) openText(j *Job, text []byte) ([]byte, error) {
	plain, err := cs.settings.seal().Open(text, j.Org, bodyKey(j.ID))
	if err != nil {
		return nil, fmt.Errorf("queue: body of %s: %w", j.ID, err)
	}
	return plain, nil
}

// slowBodies holds the last few bodies that took so long to read that the grants of their
// claims may have gone stale. Their jobs are requeued and come back shortly.
type slowBodies struct {
	mu   sync.Mutex
	list []slowBody
}

type slowBody struct {
	id   string
	body []byte
}

// slowMost is the maximum number of bodies held.
const slowMost = 4

func (s *slowBodies) keep(id string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == slowMost {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, slowBody{id, body})
}

// take removes and returns the body of a job, or nil if it is not held.
func (s *slowBodies) take(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(b slowBody) bool { return b.id == id })
	if i < 0 {
		return nil
	}
	body := s.list[i].body
	s.list = slices.Delete(s.list, i, i+1)
	return body
}

// removeBlobs deletes the blobs of a job whose records are gone, if there are any. The
// sweep deletes the ones that remain on failure.
func (cs *contents) removeBlobs(ctx context.Context, org string, names ...string) {
	if cs.opts.Blobs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	for _, name := range names {
		if err := cs.opts.Blobs.Remove(ctx, name); err != nil {
			cs.log.DebugContext(ctx, "blob not removed, the next sweep will retry", "blob", name, "err", err)
			return
		}
	}
	if cs.opts.Files != nil {
		_ = cs.opts.Files.Uncount(ctx, org, names...) // if this fails, the count expires
	}
}

const removeTime = 10 * time.Second

// outputMove is an answer about to leave Redis: the entries whose bytes are in the blob,
// and the ref and the end that replace them.
type outputMove struct {
	ids     []string
	entries []entry
}

// depart writes an answer to a blob. The ref becomes entry n of the output, and the end
// entry n+1.
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
		return nil, fmt.Errorf("%w: %s has %d bytes, want %d", errPartLost, key, n, o.size-o.spilled)
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

// moveOut replaces the bytes with the ref in one transaction: a watcher sees either all of
// the bytes or the ref. It is idempotent and must be repeated until it succeeds, because a
// command whose reply was lost may still take effect.
func (cs *contents) moveOut(ctx context.Context, o *Output, d *outputMove) error {
	key := outKey(o.job.ID, o.attempt)
	pipe := cs.rdb.TxPipeline()
	for some := range slices.Chunk(d.ids, 1000) {
		pipe.XDel(ctx, key, some...)
	}
	for _, e := range d.entries {
		pipe.XAdd(ctx, key, itoa(e.n)+"-0", e.values)
	}
	pipe.PExpire(ctx, key, o.ttl)
	if err := pipe.Exec(ctx); err != nil && !strings.Contains(err.Error(), "equal or smaller") {
		return fmt.Errorf("queue: move output: %w", err)
	}
	_ = cs.rdb.Publish(ctx, jobChannel(o.job.ID), "o").Err() // watchers that miss it poll
	return nil
}

// wholeOutput reads back the bytes of an output and returns the ids of their entries.
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

// blobOf reads the answer that an output entry refers to. It returns nothing if the caller
// already has all of its bytes. room is the spool memory it took, which the caller must
// give back.
func (cs *contents) blobOf(
	ctx context.Context, of attemptRef, m redisconn.Entry, have int64,
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
