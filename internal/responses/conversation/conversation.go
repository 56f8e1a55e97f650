// Package conversation keeps responses that no provider keeps: what was asked
// and what was answered, so that a later request can go on from there and the
// response can be retrieved. It is told whose they are; it does not ask.
//
// A response is kept under its own key with the ids of those before it, so that
// a conversation of any length is read in two round trips, and a response that
// is deleted is gone from every conversation.
package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

// ErrNotFound is returned for a response, or one before it, that is not kept.
var ErrNotFound = errors.New("conversation: no such response")

// ErrTooLarge is returned for a response that is larger than is kept, and for a
// conversation that has become too long to go on.
var ErrTooLarge = errors.New("conversation: too large to be kept")

// Turn is one response and what it was made from.
type Turn struct {
	// Before are the ids of the responses that it goes on from, oldest first.
	Before []string `json:"before,omitempty"`
	// Earlier is how many bytes those have together.
	Earlier int `json:"earlier,omitempty"`
	// Input is a JSON array of items, Response the whole response.
	Input    json.RawMessage `json:"input"`
	Response json.RawMessage `json:"response"`
}

// Options are the bounds of what is kept.
type Options struct {
	// TTL is how long a response is kept; 0 is 7 days.
	TTL time.Duration
	// MaxSize is the largest turn that is kept, in bytes; 0 is 1 MB. A whole
	// conversation may have 32 times as much, and MaxTurns turns.
	MaxSize int
	// Seal encrypts what is kept; nil leaves it as it is.
	Seal *seal.Ring
	// Memory admits what is kept into Redis; nil: one with default bounds. It stays as
	// New got it.
	Memory *capacity.Memory
}

// MaxTurns is how many responses a conversation may have.
const MaxTurns = 1000

// Store keeps responses in Redis, in the slot of their org. It is safe for
// concurrent use.
type Store struct {
	rdb    redis.UniversalClient
	memory *capacity.Memory
	opts   atomic.Pointer[Options]
}

// New returns a Store over rdb.
func New(rdb redis.UniversalClient, o Options) *Store {
	s := &Store{rdb: rdb, memory: o.Memory}
	if s.memory == nil {
		s.memory = capacity.New(rdb, nil, capacity.Options{}, nil)
	}
	s.Configure(o)
	return s
}

// Configure sets other options, for all calls that begin from now on.
func (s *Store) Configure(o Options) {
	if o.TTL <= 0 {
		o.TTL = 7 * 24 * time.Hour
	}
	if o.MaxSize <= 0 {
		o.MaxSize = 1_000_000
	}
	s.opts.Store(&o)
}

func key(org, id string) string { return "lg:{" + org + "}:response:" + id }

// turnBytes is about what Redis needs for a turn beside its text.
const turnBytes = 256

// Put keeps a response. What is kept under its id already is replaced. The error may be
// one for which capacity.IsFull is true.
func (s *Store) Put(ctx context.Context, org, id string, t Turn) error {
	o := s.opts.Load()
	if t.Size() > o.MaxSize {
		return ErrTooLarge
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // it would change what is in the texts
	if err := enc.Encode(t); err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	k := key(org, id)
	bytes := capacity.Bytes{Written: int64(text.Len()) + turnBytes}
	if err := s.memory.Reserve(ctx, org, k, bytes, o.TTL); err != nil {
		return fmt.Errorf("conversation: keep: %w", err)
	}
	if err := s.rdb.Set(ctx, k, o.Seal.Seal(text.Bytes(), org, k), o.TTL).Err(); err != nil {
		if capacity.IsFull(err) { // nothing of it comes late
			_ = s.memory.Release(ctx, k)
		}
		return fmt.Errorf("conversation: keep: %w", err)
	}
	_ = s.memory.Settle(ctx, capacity.Settled{ID: k, Written: bytes.Written, Life: o.TTL}) // it counts all the same
	return nil
}

// Get returns one response.
func (s *Store) Get(ctx context.Context, org, id string) (Turn, error) {
	turns, err := s.read(ctx, org, []string{id})
	if err != nil {
		return Turn{}, err
	}
	return turns[0], nil
}

// Load returns a response and those before it, oldest first.
func (s *Store) Load(ctx context.Context, org, id string) ([]Turn, error) {
	last, err := s.Get(ctx, org, id)
	if err != nil || len(last.Before) == 0 {
		return []Turn{last}, err
	}
	if len(last.Before) >= MaxTurns || last.Earlier > maxTurnsOfSize*s.opts.Load().MaxSize {
		return nil, ErrTooLarge
	}
	turns, err := s.read(ctx, org, last.Before)
	return append(turns, last), err
}

// maxTurnsOfSize bounds a conversation by the size of its turns.
const maxTurnsOfSize = 32

// Size is how many bytes a turn has.
func (t Turn) Size() int { return len(t.Input) + len(t.Response) }

func (s *Store) read(ctx context.Context, org string, ids []string) ([]Turn, error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = key(org, id)
	}
	values, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("conversation: read: %w", err)
	}
	turns, ring := make([]Turn, len(ids)), s.opts.Load().Seal
	for i, v := range values {
		sealed, ok := v.(string)
		if !ok {
			return nil, ErrNotFound
		}
		text, err := ring.Open([]byte(sealed), org, keys[i])
		if err == nil {
			err = json.Unmarshal(text, &turns[i])
		}
		if err != nil {
			return nil, fmt.Errorf("conversation: response %s: %w", ids[i], err)
		}
	}
	return turns, nil
}

// Drop forgets a response. One that is not kept is no error.
func (s *Store) Drop(ctx context.Context, org, id string) error {
	if err := s.rdb.Unlink(ctx, key(org, id)).Err(); err != nil {
		return fmt.Errorf("conversation: forget: %w", err)
	}
	_ = s.memory.Release(ctx, key(org, id)) // else it expires
	return nil
}
