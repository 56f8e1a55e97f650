// Package conversation stores responses that no provider stores, with their requests, so that a
// later request can continue the conversation and the response can be retrieved. The caller
// passes the owner; the package does not check it.
//
// A response is stored under its own key with the ids of the responses before it. So a
// conversation of any length is read in two round trips, and a deleted response disappears from
// every conversation.
package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/seal"
)

// ErrNotFound is returned if a response, or one before it, is not stored.
var ErrNotFound = errors.New("conversation: no such response")

// ErrTooLarge is returned for a response that is too large to store, and for a conversation
// that is too long to continue.
var ErrTooLarge = errors.New("conversation: too large to be kept")

// Turn is one response with its input.
type Turn struct {
	// Before are the ids of the responses before it, oldest first.
	Before []string `json:"before,omitempty"`
	// Earlier is the total size of those, in bytes.
	Earlier int `json:"earlier,omitempty"`
	// Input is a JSON array of items, Response the complete response.
	Input    json.RawMessage `json:"input"`
	Response json.RawMessage `json:"response"`
}

// Options configure a Store.
type Options struct {
	// TTL is how long a response is stored; 0 means 7 days.
	TTL time.Duration
	// MaxSize is the maximum size of a turn in bytes; 0 means 1 MB. A whole conversation may be
	// 32 times as large and have MaxTurns turns.
	MaxSize int
	// Seal encrypts what is stored; nil stores it unencrypted.
	Seal *seal.Ring
	// Memory limits the memory in Redis; nil means default limits. Configure does not change
	// it.
	Memory *capacity.Memory
}

// MaxTurns is the maximum number of responses in a conversation.
const MaxTurns = 1000

// Store stores responses in Redis, in the slot of their org. It is safe for concurrent use.
type Store struct {
	rdb    redisconn.DB
	memory *capacity.Memory
	opts   atomic.Pointer[Options]
}

// New returns a Store that uses rdb.
func New(rdb redisconn.DB, o Options) *Store {
	s := &Store{rdb: rdb, memory: o.Memory}
	if s.memory == nil {
		s.memory = capacity.New(rdb, nil, capacity.Options{}, nil)
	}
	s.Configure(o)
	return s
}

// Configure changes the options for all calls that start from now on.
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

// turnBytes is approximately what Redis needs for a turn in addition to its text.
const turnBytes = 256

// Put stores a response and replaces one with the same id. capacity.IsFull may be true for the
// error.
func (s *Store) Put(ctx context.Context, org, id string, t Turn) error {
	o := s.opts.Load()
	if t.Size() > o.MaxSize {
		return ErrTooLarge
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // escaping would change the texts
	if err := enc.Encode(t); err != nil {
		return fmt.Errorf("conversation: %w", err)
	}
	k := key(org, id)
	bytes := capacity.Bytes{Written: int64(text.Len()) + turnBytes}
	if err := s.memory.Reserve(ctx, org, k, bytes, o.TTL); err != nil {
		return fmt.Errorf("conversation: keep: %w", err)
	}
	if err := s.rdb.Set(ctx, k, o.Seal.Seal(text.Bytes(), org, k), o.TTL).Err(); err != nil {
		if capacity.IsFull(err) { // certainly not written
			_ = s.memory.Release(ctx, k)
		}
		return fmt.Errorf("conversation: keep: %w", err)
	}
	_ = s.memory.Settle(ctx, capacity.Settled{ID: k, Written: bytes.Written, Life: o.TTL}) // still reserved if this fails
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

// maxTurnsOfSize limits a conversation to this many times the maximum turn size.
const maxTurnsOfSize = 32

// Size returns the size of a turn in bytes.
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

// Drop deletes a response. Deleting an unknown one is not an error.
func (s *Store) Drop(ctx context.Context, org, id string) error {
	if err := s.rdb.Unlink(ctx, key(org, id)).Err(); err != nil {
		return fmt.Errorf("conversation: forget: %w", err)
	}
	_ = s.memory.Release(ctx, key(org, id)) // otherwise it expires
	return nil
}
