// Package ownership remembers what a provider keeps for an org, by id: responses and
// the items of their output, conversations, files, vector stores and containers.
// All orgs share the provider's account, so an id proves nothing; only what is
// noted here may be used, by its own org.
//
// Notes of responses are written soon after they were made, by no request that
// waits for them, and live [TTL] long. What could not be written, or finds no room
// in the org's share of Redis's memory, is as if it had never been: its id is
// refused later. Notes of things with a [Kind] are written before their id is
// shown, and listed; see [Store.Keep]. No text of any request or answer is kept.
package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
)

// TTL is how long a provider keeps responses, and we what is noted of them.
const TTL = 30 * 24 * time.Hour

// Note says whose a thing is and where it is kept.
type Note struct {
	// ID is what callers know it by. Not stored with the note.
	ID string `json:"-"`
	// User made it.
	User string `json:"u"`
	// Provider keeps it, made by Model as the caller named it.
	Provider string `json:"p"`
	Model    string `json:"m,omitempty"`
	// Upstream is the provider's id for it; empty for the same.
	Upstream string `json:"i,omitempty"`
	// Response is the id of the response an item belongs to.
	Response string `json:"r,omitempty"`
	// Here says that no provider keeps it but we do, together with its text.
	Here bool `json:"h,omitempty"`
	// Total is how many tokens a response holds, those it was made from
	// included; Output how many it put out. Never below the truth.
	Total  int64 `json:"t,omitempty"`
	Output int64 `json:"o,omitempty"`

	// Kind says what it is; "" is a response or an item of one.
	Kind Kind `json:"k,omitempty"`
	// Of is the id of the thing that this one is a part of.
	Of string `json:"of,omitempty"`
	// Bytes is the size of a file, or what a vector store takes as far as it is known.
	Bytes int64 `json:"b,omitempty"`
	// Name is the name of a file, Purpose what it is for.
	Name    string `json:"na,omitempty"`
	Purpose string `json:"pu,omitempty"`
	// Made is when it was noted, in Unix microseconds: lists are in its order.
	Made int64 `json:"c,omitempty"`
	// Created is when the provider says that it was made, in Unix seconds.
	Created int64 `json:"cr,omitempty"`
	// Until is when a file expires, in Unix seconds; 0: it does not.
	Until int64 `json:"x,omitempty"`
	// Paid is until when its storage or session has been charged, in Unix seconds.
	Paid int64 `json:"d,omitempty"`
	// Unit is the catalogue's entry that a session is charged by.
	Unit string `json:"e,omitempty"`
}

// At is the provider's id for the thing.
func (n Note) At() string {
	if n.Upstream != "" {
		return n.Upstream
	}
	return n.ID
}

// Store keeps notes in Redis, in the slot of their org. It is safe for
// concurrent use.
type Store struct {
	rdb    redis.UniversalClient
	memory *capacity.Memory
	log    *slog.Logger

	mu      sync.Mutex
	pending map[string]pending // by key, not written yet
	flying  bool
	writing sync.WaitGroup
}

// pending is a note of an org that is not written yet.
type pending struct {
	org  string
	note Note
}

// New returns a Store over rdb. Memory admits notes; nil: one of its own.
func New(rdb redis.UniversalClient, memory *capacity.Memory, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if memory == nil {
		memory = capacity.New(rdb, nil, capacity.Options{}, nil)
	}
	return &Store{rdb: rdb, memory: memory, log: log, pending: make(map[string]pending)}
}

func key(org, id string) string { return "lg:{" + org + "}:owned:" + id }

// Put notes things of an org. It returns at once; a later note of the same
// thing replaces an earlier one.
func (s *Store) Put(ctx context.Context, org string, notes ...Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notes {
		s.pending[key(org, n.ID)] = pending{org, n}
	}
	if len(s.pending) > 0 && !s.flying {
		s.flying = true
		ctx = context.WithoutCancel(ctx)
		s.writing.Go(func() { s.fly(ctx) })
	}
}

const (
	writeTimeout = time.Second
	writeTries   = 3
	most         = 256 // notes in one write
)

// fly writes until nothing is pending.
func (s *Store) fly(ctx context.Context) {
	failures := 0
	for {
		batch := s.batch()
		if len(batch) == 0 {
			return
		}
		err := s.write(ctx, batch)
		failures++
		if err == nil {
			failures = 0
		}
		if err == nil || failures == writeTries {
			s.written(batch)
		}
		if failures == writeTries {
			failures = 0
			s.log.Warn("what a provider keeps for an org is not noted; it cannot be referred to", "things", len(batch), "err",
				err)
		}
	}
}

func (s *Store) batch() map[string]pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := make(map[string]pending, min(len(s.pending), most))
	for k, n := range s.pending {
		if len(batch) == most {
			break
		}
		batch[k] = n
	}
	s.flying = len(batch) > 0
	return batch
}

// noteBytes is about what Redis needs for a note beside its key and text.
const noteBytes = 192

// write writes the notes of each org that has room for them.
func (s *Store) write(ctx context.Context, batch map[string]pending) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	texts, sums := map[string][]byte{}, map[string]capacity.Settled{}
	for k, p := range batch {
		text, err := json.Marshal(p.note)
		if err != nil {
			return err
		}
		texts[k] = text
		n := sums[p.org].Written + int64(len(k)+len(text)) + noteBytes
		sums[p.org] = capacity.Settled{ID: k, Written: n, Life: TTL}
	}
	err := s.admit(ctx, sums)
	if err == nil {
		err = s.set(ctx, batch, texts, sums)
	}
	if err != nil { // all of it is written again, or never
		ids := make([]string, 0, len(sums))
		for _, n := range sums {
			ids = append(ids, n.ID)
		}
		_ = s.memory.Release(ctx, ids...)
		return err
	}
	_ = s.memory.Settle(ctx, slices.Collect(maps.Values(sums))...) // they count all the same
	return nil
}

// admit reserves what each org's notes take, and leaves out the orgs that have no room.
func (s *Store) admit(ctx context.Context, sums map[string]capacity.Settled) error {
	for org, n := range sums {
		err := s.memory.Reserve(ctx, org, n.ID, capacity.Bytes{Written: n.Written}, n.Life)
		if capacity.IsFull(err) {
			delete(sums, org)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) set(ctx context.Context, batch map[string]pending, texts map[string][]byte,
	sums map[string]capacity.Settled,
) error {
	pipe := s.rdb.Pipeline()
	for k, p := range batch {
		if _, ok := sums[p.org]; ok {
			pipe.Set(ctx, k, texts[k], p.note.Kind.life())
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// written forgets what is written, unless it was noted anew meanwhile.
func (s *Store) written(batch map[string]pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, p := range batch {
		if s.pending[k] == p {
			delete(s.pending, k)
		}
	}
}

// again is how long a look for what is not there yet waits before its second
// and last try: another process may be about to write it.
const again = 50 * time.Millisecond

// Find returns the notes of those ids that are the org's. Ids of other orgs and
// ids nobody has take equally long.
func (s *Store) Find(ctx context.Context, org string, ids ...string) (map[string]Note, error) {
	found, err := s.look(ctx, org, ids)
	if err != nil || len(found) == len(ids) {
		return found, err
	}
	select {
	case <-time.After(again):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.look(ctx, org, ids)
}

func (s *Store) look(ctx context.Context, org string, ids []string) (map[string]Note, error) {
	found := make(map[string]Note, len(ids))
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = key(org, id)
	}
	values, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("ownership: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range ids {
		p, ok := s.pending[keys[i]]
		n := p.note
		if !ok {
			text, is := values[i].(string)
			if !is {
				continue
			}
			if err := json.Unmarshal([]byte(text), &n); err != nil {
				return nil, fmt.Errorf("ownership: note of %q: %w", id, err)
			}
		}
		n.ID = id
		found[id] = n
	}
	return found, nil
}

// Drop forgets a thing that the provider keeps no more.
func (s *Store) Drop(ctx context.Context, org, id string) error {
	s.mu.Lock()
	delete(s.pending, key(org, id))
	s.mu.Unlock()
	if err := s.rdb.Del(ctx, key(org, id), tokensKey(org, id), openKey(org, id)).Err(); err != nil {
		return fmt.Errorf("ownership: %w", err)
	}
	return s.memory.Release(ctx, key(org, id))
}

// Close waits until everything is written, or ctx ends.
func (s *Store) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.writing.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("ownership: notes are left unwritten")
	}
}
