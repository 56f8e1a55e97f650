// Package cache stores complete answers by org and request, so that an identical request of the
// org can be answered without its provider. It decides nothing about requests: the caller
// chooses the key, and what may be stored.
//
// Every answer is one value in Redis with its own lifetime, counted by internal/capacity like
// all contents, and by the org's own bound. Its body can be in files.store instead. At that bound
// a new answer evicts the org's oldest ones. If that is not enough, or Redis has no room, it is
// not stored.
package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/pricing"
)

var putScript = lua.Load("cache_put")

// MaxBody is the largest body of an answer that is stored, in bytes.
const MaxBody = 1 << 20

// recordBytes is approximately what Redis needs for an answer in addition to its text.
const recordBytes = 256

// ErrTooLarge is returned for an answer whose body is larger than MaxBody.
var ErrTooLarge = errors.New("cache: the answer is too large")

// Answer is a complete answer as it was sent to its caller.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	// Cost is what the call was charged, in nano-USD.
	Cost pricing.Nano `json:"cost"`
	Body []byte       `json:"-"`
	// Age is how long ago the answer was stored, on Redis's clock. Put ignores it.
	Age time.Duration `json:"-"`
}

// record is what precedes the body in Redis.
type record struct {
	Answer
	Life int64 `json:"life"`           // ms that the answer was stored for
	File *ref  `json:"file,omitempty"` // of the body, if that is in files.store
}

// Options configure a Store.
type Options struct {
	// Seal encrypts what is stored; nil stores it unencrypted.
	Seal *seal.Ring
	// Memory admits bytes to Redis; nil means default limits.
	Memory *capacity.Memory
	// Blobs is files.store, which encrypts on its own; nil: there is none.
	Blobs *blob.Store
	// InFiles keeps the bodies of new answers in Blobs. Others are read either way.
	InFiles bool
	// Log defaults to slog.Default().
	Log *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Store stores answers in Redis, in the slot of their org. It is safe for concurrent use. Run must
// be running if it has Options.Blobs.
type Store struct {
	rdb     redisconn.DB
	memory  *capacity.Memory
	seal    atomic.Pointer[seal.Ring]
	metrics *metrics
	bodies  *bodies
	inFiles bool
	log     *slog.Logger
	clock   string // test clock in microseconds; empty: Redis TIME
}

// New returns a Store that uses rdb.
func New(rdb redisconn.DB, o Options) *Store {
	s := &Store{
		rdb: rdb, memory: o.Memory, metrics: newMetrics(o.Metrics), bodies: newBodies(o.Blobs),
		inFiles: o.InFiles && o.Blobs != nil, log: o.Log,
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.memory == nil {
		s.memory = capacity.New(rdb, nil, capacity.Options{}, nil)
	}
	s.Seal(o.Seal)
	return s
}

// Seal replaces the keys for all calls that start from now on. Answers whose key is gone are not
// found.
func (s *Store) Seal(ring *seal.Ring) { s.seal.Store(ring) }

func prefix(org string) string { return "lg:{" + org + "}:cache" }

// answerKey returns the key of an answer. id consists of hexadecimal digits.
func answerKey(org, id string) string { return prefix(org) + ":" + id }

// Get returns the org's answer with this id, or nil if there is none that can be read. The error
// comes from Redis or files.store.
func (s *Store) Get(ctx context.Context, org, id string) (*Answer, error) {
	key := answerKey(org, id)
	pipe := s.rdb.Pipeline()
	value, left := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return nil, fmt.Errorf("cache: read: %w", err)
	}
	sealed, err := value.Bytes()
	if err != nil || left.Val() <= 0 { // none, or it expired in between
		return nil, nil
	}
	text, err := s.seal.Load().Open(sealed, org, key)
	if err != nil {
		return nil, nil // sealed with a key that is gone
	}
	var r record
	head, body, ok := bytes.Cut(text, []byte("\n"))
	if !ok || json.Unmarshal(head, &r) != nil {
		return nil, nil
	}
	a := r.Answer
	if r.File != nil {
		body, err = s.bodies.read(ctx, bodyName(org, id), r.File)
		if body == nil || err != nil {
			return nil, err
		}
	}
	a.Body, a.Age = body, max(time.Duration(r.Life)*time.Millisecond-left.Val(), 0)
	return &a, nil
}

// Bound limits the answers of an org.
type Bound struct {
	Life     time.Duration // of an answer
	MaxBytes int64         // of all of the org's answers
}

// Put stores an answer and replaces one with the same id. capacity.IsFull is true for the error if
// the org or Redis has no room; ErrTooLarge is the other expected one. Put is idempotent.
func (s *Store) Put(ctx context.Context, org, id string, a Answer, in Bound) error {
	if len(a.Body) > MaxBody {
		return ErrTooLarge
	}
	if in.MaxBytes > 0 && int64(len(a.Body)) > in.MaxBytes {
		return fmt.Errorf("cache: store: %w", &capacity.FullError{Org: true, Free: in.MaxBytes, Share: 100, Never: true})
	}
	r, name, body := record{Answer: a, Life: in.Life.Milliseconds()}, bodyName(org, id), a.Body
	if s.inFiles {
		if err := s.bodies.write(ctx, name, body); err != nil {
			return fmt.Errorf("cache: store body: %w", err)
		}
		r.File, body = refOf(body), nil
	}
	head, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cache: store: %w", err)
	}
	key := answerKey(org, id)
	text := s.seal.Load().Seal(bytes.Join([][]byte{head, body}, []byte("\n")), org, key)
	size := int64(len(text)+len(a.Body)-len(body)) + recordBytes
	err = s.put(ctx, write{org: org, id: id, text: text, bytes: size, Bound: in})
	if s.inFiles && capacity.IsFull(err) {
		s.bodies.remove(ctx, name)
	}
	return err
}

// write is an answer to be written to Redis.
type write struct {
	org, id string
	text    []byte
	bytes   int64 // counted against the org's bound
	Bound
}

// put writes an answer if Redis and the org's bound have room.
func (s *Store) put(ctx context.Context, w write) error {
	key := answerKey(w.org, w.id)
	written := capacity.Bytes{Written: int64(len(w.text)) + recordBytes}
	if err := s.memory.Reserve(ctx, w.org, key, written, w.Life); err != nil {
		return fmt.Errorf("cache: store: %w", err)
	}
	evicted, err := s.insert(ctx, w)
	s.evicted(ctx, w.org, evicted)
	if err == nil {
		return nil
	}
	if capacity.IsFull(err) { // certainly not written
		_ = s.memory.Release(ctx, key)
	}
	return fmt.Errorf("cache: store: %w", err)
}

// evicted frees what answers had that were evicted.
func (s *Store) evicted(ctx context.Context, org string, ids []string) {
	if len(ids) == 0 {
		return
	}
	s.metrics.evicted(len(ids))
	keys, names := make([]string, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		keys[i], names[i] = answerKey(org, id), bodyName(org, id)
	}
	_ = s.memory.Release(ctx, keys...) // else it expires
	if s.inFiles {
		s.bodies.remove(ctx, names...)
	}
}

// insertTries limits how often the oldest answers may have changed before they could be evicted.
const insertTries = 5

// insert runs the script that writes an answer, and returns the ids of the answers it evicted. It
// learns from a first run which ones those are, because a script declares its keys.
func (s *Store) insert(ctx context.Context, w write) (evicted []string, err error) {
	keys := append(count(w.org).Keys(), orderKey(w.org), answerKey(w.org, w.id))
	args := []any{s.clock, w.org, w.bytes, w.Life.Microseconds(), w.MaxBytes, w.text, w.id}
	var oldest []string
	for range insertTries {
		allKeys, allArgs := slices.Clone(keys), slices.Clone(args)
		for _, id := range oldest {
			allKeys, allArgs = append(allKeys, answerKey(w.org, id)), append(allArgs, id)
		}
		reply, err := putScript.Run(ctx, s.rdb, allKeys, allArgs...).StringSlice()
		switch {
		case err != nil:
			return nil, err
		case reply[0] == "ok":
			return reply[1:], nil
		case reply[0] == "full":
			return reply[1:], &capacity.FullError{Org: true, Share: 100}
		}
		oldest = reply[1:]
	}
	return nil, &capacity.FullError{Org: true, Share: 100}
}

// orderKey lists the answers of an org by when they were stored.
func orderKey(org string) string { return prefix(org) + ":order" }

// count counts the answers of one org against its own bound.
func count(org string) capacity.Count {
	return capacity.CountAt(nil, prefix(org), prefix(org)+":sums") // only its keys are used
}
