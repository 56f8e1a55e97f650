// Package idempotency finds the call that a repeated request belongs to: by an idempotency key,
// or by the place in the queue that an earlier, identical request of the same caller has left.
// It handles only hashes and ids, no bodies and no responses, and it does not know whether a
// job still exists; the caller must check.
//
// A place can be taken once. If the reply that names it is lost, the repeated request is a new
// one.
package idempotency

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	openScript   = lua.Load("key_open")
	changeScript = lua.Load("key_change")
	keepScript   = lua.Load("place_keep")
	takeScript   = lua.Load("place_take")
)

// ErrOther is returned for a key that was used with a different request.
var ErrOther = errors.New("idempotency: the key belongs to another request")

// ErrLost means that a key has passed to another holder, because ours did not renew it for a
// lease.
var ErrLost = errors.New("idempotency: the key has another holder")

// HeldError rejects a key whose request is still in progress.
type HeldError struct {
	// Left is the rest of the holder's lease, which the holder renews.
	Left time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("idempotency: the key's request is under way (lease %s)", e.Left)
}

// Options configure a Store.
type Options struct {
	// Logger defaults to slog.Default().
	Log *slog.Logger
	// Lease is how long a key remains held without renewal; it is renewed three times as often.
	// 0 means 30 s.
	Lease time.Duration
}

// Store stores keys and places in Redis, in the slot of their org. It is safe for concurrent
// use. Errors of Redis are returned wrapped.
type Store struct {
	rdb   redisconn.DB
	log   *slog.Logger
	lease time.Duration
	every time.Duration // between renewals

	mu   sync.Mutex
	held map[*Key]struct{}
}

// New returns a Store that uses rdb. Call Run to renew the leases of held keys.
func New(rdb redisconn.DB, o Options) *Store {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	return &Store{rdb: rdb, log: o.Log, lease: o.Lease, every: o.Lease / 3, held: make(map[*Key]struct{})}
}

// Fingerprint is the fingerprint of a request, or of the scope of a key.
type Fingerprint string

// FingerprintOf hashes parts. Different lists of parts have different fingerprints.
func FingerprintOf(parts ...[]byte) Fingerprint {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return Fingerprint(hex.EncodeToString(h.Sum(nil)))
}

func placeKey(org string, p Fingerprint) string { return "lg:{" + org + "}:place:" + string(p) }
func recordKey(org string, p Fingerprint) string {
	return "lg:{" + org + "}:once:" + string(p)
}

// Keep keeps the place of a job, for d, for the next request with this fingerprint. Places of
// identical requests are kept separately.
func (s *Store) Keep(ctx context.Context, org string, p Fingerprint, job string, d time.Duration) error {
	return s.run(ctx, keepScript, placeKey(org, p), job, d.Microseconds()).Err()
}

// Take takes one of the reserved places and returns its job, or "" if there is none.
func (s *Store) Take(ctx context.Context, org string, p Fingerprint) (string, error) {
	job, err := s.run(ctx, takeScript, placeKey(org, p)).Text()
	if err != nil {
		return "", fmt.Errorf("idempotency: take: %w", err)
	}
	return job, nil
}

func (s *Store) run(ctx context.Context, script *redisconn.Script, key string, args ...any) redisconn.Reply {
	return script.Run(ctx, s.rdb, []string{key}, append([]any{""}, args...)...)
}

// Found is what a key already refers to; at most one field is set.
type Found struct {
	Job    string // the job of its request, to which no caller is connected
	Answer string // the id of its stored response
}

// Key is an idempotency key held by one request. Exactly one of Free, Leave and Done must be
// called; if the process dies, the key is released after a lease. It is not safe for concurrent
// use.
type Key struct {
	s      *Store
	record string
	holder string
}

// Open takes the key for a request. scope distinguishes the key from all others of the org,
// body is the fingerprint of everything that defines the request, and holder is an id of this
// request alone. If a response is found, the Key is nil. The error is ErrOther, a *HeldError or
// from Redis.
func (s *Store) Open(ctx context.Context, org string, scope, body Fingerprint, holder string) (*Key, Found, error) {
	k := &Key{s: s, record: recordKey(org, scope), holder: holder}
	reply, err := s.run(ctx, openScript, k.record, string(body), holder, s.lease.Microseconds()).Text()
	if err != nil {
		return nil, Found{}, fmt.Errorf("idempotency: open: %w", err)
	}
	word, rest, _ := strings.Cut(reply, " ")
	found := Found{}
	switch word {
	case "other":
		return nil, found, ErrOther
	case "held":
		left, _ := time.ParseDuration(rest + "us")
		return nil, found, &HeldError{Left: left}
	case "answer":
		return nil, Found{Answer: rest}, nil
	case "job":
		found.Job = rest
	}
	s.mu.Lock()
	s.held[k] = struct{}{}
	s.mu.Unlock()
	return k, found, nil
}

// Bind binds the key to the job that its request becomes, before the job exists, for as long as
// the job can exist.
func (k *Key) Bind(ctx context.Context, job string, ttl time.Duration) error {
	return k.change(ctx, "bind", job, ttl)
}

// Free deletes the key, because its request failed and the next one may start again.
func (k *Key) Free(ctx context.Context) error { return k.end(ctx, "free", "", 0) }

// Leave leaves a bound key to whoever repeats the request.
func (k *Key) Leave(ctx context.Context) error { return k.end(ctx, "leave", "", 0) }

// Done records the id under which the response is stored, for ttl.
func (k *Key) Done(ctx context.Context, answer string, ttl time.Duration) error {
	return k.end(ctx, "done", answer, ttl)
}

// Undo frees a key that Done gave an answer to, if it still has that one.
func (k *Key) Undo(ctx context.Context, answer string) error { return k.change(ctx, "undo", answer, 0) }

func (k *Key) end(ctx context.Context, what, id string, ttl time.Duration) error {
	k.s.mu.Lock()
	delete(k.s.held, k)
	k.s.mu.Unlock()
	return k.change(ctx, what, id, ttl)
}

func (k *Key) change(ctx context.Context, what string, arg any, ttl time.Duration) error {
	reply, err := k.s.run(ctx, changeScript, k.record, k.holder, what, arg, ttl.Milliseconds()).Text()
	if err != nil {
		return fmt.Errorf("idempotency: %s: %w", what, err)
	}
	if reply != "ok" {
		return ErrLost
	}
	return nil
}

// Run renews the leases of keys held by this process until ctx is done; then it returns nil. It
// survives Redis outages.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.renew(ctx)
		}
	}
}

func (s *Store) renew(ctx context.Context) {
	s.mu.Lock()
	held := make([]*Key, 0, len(s.held))
	for k := range s.held {
		held = append(held, k)
	}
	s.mu.Unlock()
	for _, k := range held {
		if err := k.change(ctx, "renew", s.lease.Microseconds(), 0); err != nil {
			s.log.DebugContext(ctx, "idempotency key not renewed, will retry", "err", err)
		}
	}
}
