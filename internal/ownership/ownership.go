// Package ownership records what a provider stores for an org, by id: responses and their
// output items, conversations, files, vector stores and containers. All orgs share the
// provider's account, so knowing an id proves nothing; an org may use only what is recorded
// here as its own.
//
// Notes of responses are written shortly after the response, without delaying any request, and
// live for [TTL]. If a note cannot be written, or exceeds the org's share of Redis memory, its
// id is rejected later. Notes of other objects are written before their id is shown, and are
// listed; see [Store.Keep]. No text of any request or response is stored.
package ownership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/wire"
)

// TTL is how long a provider stores responses, and we their notes.
const TTL = 30 * 24 * time.Hour

// Note records who owns an object and where it is stored.
type Note struct {
	// ID is the id known to callers. It is not stored with the note.
	ID string `json:"-"`
	// User created it.
	User string `json:"u"`
	// Provider stores it. Model created it, under the name used by the caller.
	Provider string `json:"p"`
	Model    string `json:"m,omitempty"`
	// Upstream is the provider's id for it; empty if it is the same.
	Upstream string `json:"i,omitempty"`
	// Response is the id of the response that an item belongs to.
	Response string `json:"r,omitempty"`
	// Here means that we store it and its text, instead of a provider.
	Here bool `json:"h,omitempty"`
	// Total is how many tokens a response holds, including those it was created from, and
	// Output how many it generated. Neither is too low.
	Total  int64 `json:"t,omitempty"`
	Output int64 `json:"o,omitempty"`

	// Born distinguishes the user from an earlier one with its id.
	Born string `json:"ub,omitempty"`

	// Kind is the kind of a listed object; "" for a response or an item of one. See [Note.Is].
	Kind wire.ObjectKind `json:"k,omitempty"`
	// Of is the id of the object that this is a part of.
	Of string `json:"of,omitempty"`
	// Bytes is the size of a file, or the known size of a vector store.
	Bytes int64 `json:"b,omitempty"`
	// Name is the name of a file, Purpose its purpose.
	Name    string `json:"na,omitempty"`
	Purpose string `json:"pu,omitempty"`
	// Made is when it was recorded, in Unix microseconds; lists are sorted by it.
	Made int64 `json:"c,omitempty"`
	// Created is the creation time reported by the provider, in Unix seconds.
	Created int64 `json:"cr,omitempty"`
	// Until is when a file expires, in Unix seconds; 0: never.
	Until int64 `json:"x,omitempty"`
	// Paid is until when its storage or session has been charged, in Unix seconds.
	Paid int64 `json:"d,omitempty"`
	// Unit is the catalogue entry that a session is charged by.
	Unit string `json:"e,omitempty"`
}

// At returns the provider's id for the object.
func (n Note) At() string { return cmp.Or(n.Upstream, n.ID) }

// Is returns the kind of the object.
func (n Note) Is() wire.ObjectKind {
	if n.Kind == "" && n.Response != "" {
		return wire.ObjectItem
	}
	return cmp.Or(n.Kind, wire.ObjectResponse)
}

// Store stores notes in Redis, in the slot of their org. It is safe for concurrent use.
type Store struct {
	rdb    redisconn.DB
	memory *capacity.Memory
	log    *slog.Logger

	mu      sync.Mutex
	pending map[string]pending // by key, not yet written
	flying  bool
	writing sync.WaitGroup
}

// pending is a note that has not been written.
type pending struct {
	org  string
	note Note
}

// New returns a Store that uses rdb. memory limits the memory of notes; if it is nil, New
// creates one.
func New(rdb redisconn.DB, memory *capacity.Memory, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if memory == nil {
		memory = capacity.New(rdb, nil, capacity.Options{}, nil)
	}
	return &Store{rdb: rdb, memory: memory, log: log, pending: make(map[string]pending)}
}

func key(org, id string) string { return "lg:{" + org + "}:owned:" + id }

// Put records objects of an org. It returns immediately; a later note of the same object replaces
// an earlier one.
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
	most         = 256 // notes per write
)

// fly writes until nothing is pending.
func (s *Store) fly(ctx context.Context) {
	for org, batch := s.batch(); len(batch) > 0; org, batch = s.batch() {
		err := s.write(ctx, org, batch)
		for tries := 1; err != nil && tries < writeTries; tries++ {
			err = s.write(ctx, org, batch)
		}
		if err != nil {
			s.log.Warn("objects at a provider not recorded, they cannot be referenced", "things", len(batch), "err", err)
		}
		s.mu.Lock()
		for k, n := range batch {
			if s.pending[k].note == n { // it was not replaced meanwhile
				delete(s.pending, k)
			}
		}
		s.mu.Unlock()
	}
}

// batch returns pending notes of one org.
func (s *Store) batch() (org string, batch map[string]Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = make(map[string]Note, min(len(s.pending), most))
	for k, p := range s.pending {
		org = cmp.Or(org, p.org)
		if p.org == org {
			batch[k] = p.note
		}
		if len(batch) == most {
			break
		}
	}
	s.flying = len(batch) > 0
	return org, batch
}

// noteBytes is approximately what Redis needs for a note in addition to its key and text.
const noteBytes = 192

// write writes notes of an org, unless it has no room for them.
func (s *Store) write(ctx context.Context, org string, batch map[string]Note) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	sum := capacity.Settled{Life: TTL}
	pipe := s.rdb.Pipeline()
	for k, n := range batch {
		text, err := json.Marshal(n)
		if err != nil {
			return err
		}
		pipe.Set(ctx, k, text, TTL)
		sum.ID = k
		sum.Written += int64(len(k)+len(text)) + noteBytes
	}
	err := s.memory.Reserve(ctx, org, sum.ID, capacity.Bytes{Written: sum.Written}, TTL)
	if capacity.IsFull(err) {
		return nil
	}
	if err == nil {
		err = pipe.Exec(ctx)
	}
	if err != nil { // all of it is either written again or given up
		_ = s.memory.Release(ctx, sum.ID)
		return wrap(err)
	}
	_ = s.memory.Settle(ctx, sum) // if this fails, it stays reserved
	return nil
}

// wrap says whose error it is; nil stays nil.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ownership: %w", err)
}

// again is the pause before the second and last lookup of a missing note, because another
// process may be about to write it.
const again = 50 * time.Millisecond

// Find returns the notes of the ids that belong to the org. Other orgs' ids and unknown ids
// take equally long.
func (s *Store) Find(ctx context.Context, org string, ids ...string) (map[string]Note, error) {
	found, err := s.Look(ctx, org, ids...)
	if err != nil || len(found) == len(ids) {
		return found, err
	}
	select {
	case <-time.After(again):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Look(ctx, org, ids...)
}

// Look is Find for ids that were shown to a caller a while ago: it does not wait for notes being written.
func (s *Store) Look(ctx context.Context, org string, ids ...string) (map[string]Note, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found := make(map[string]Note, len(ids))
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = key(org, id)
	}
	values, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, wrap(err)
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

// Close waits until everything is written, or ctx is done.
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
