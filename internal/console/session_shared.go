package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/storage/seal"
)

// sharedSession is a session as Redis keeps it for all proxies. It is sealed with the
// cookie's value, which Redis does not have: whoever reads Redis learns no key.
type sharedSession struct {
	Key   string    `json:"key"`
	Token string    `json:"token"`
	Began time.Time `json:"began"`
	Used  time.Time `json:"used"`
}

const (
	// shareEvery is how often a use is written; a session ends that much early at most.
	shareEvery = time.Minute
	// shareTime bounds the wait for Redis; without it, this process's own copy counts.
	shareTime = 500 * time.Millisecond
)

// sessionIndex has the keys of all sessions by when they were last used, to bound them.
const sessionIndex = "lg:{console:}:sessions"

// sharedKey is where a session is. The cookie's value is not part of it, only its hash.
// No org can be called console:, with a colon.
func sharedKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "lg:{console:}:session:" + hex.EncodeToString(sum[:])
}

func ring(id string) (*seal.Ring, error) { return seal.NewRing(seal.Key{ID: "session", Secret: id}) }

// share lets the other proxies know a session as it is now.
func (s *sessions) share(ctx context.Context, id string, one *session) error {
	if s.rdb == nil {
		return nil
	}
	one.mu.Lock()
	text, err := json.Marshal(sharedSession{one.key, one.Token, one.began, one.used})
	one.shared = one.used
	one.mu.Unlock()
	if err != nil {
		return err
	}
	r, err := ring(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	now := s.now()
	pipe := s.rdb.TxPipeline()
	pipe.Set(ctx, sharedKey(id), r.Seal(text, sharedKey(id)), sessionLife)
	pipe.ZAdd(ctx, sessionIndex, redis.Z{Score: float64(now.Unix()), Member: sharedKey(id)})
	pipe.ZRemRangeByScore(ctx, sessionIndex, "-inf", strconv.FormatInt(now.Add(-sessionLife).Unix(), 10))
	pipe.Expire(ctx, sessionIndex, sessionLife)
	excess := pipe.ZRange(ctx, sessionIndex, 0, -maxSessions-1)
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	return s.unshare(ctx, excess.Val()...)
}

// unshare ends sessions for all proxies, by their keys.
func (s *sessions) unshare(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := s.rdb.TxPipeline()
	pipe.Del(ctx, keys...)
	for _, key := range keys {
		pipe.ZRem(ctx, sessionIndex, key)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// find returns the session of a cookie, of whichever proxy began it; nil for none.
// While Redis does not answer, those stay that this process knows.
func (s *sessions) find(ctx context.Context, id string) *session {
	s.mu.Lock()
	one := s.all[id]
	s.mu.Unlock()
	if s.rdb == nil || len(id) < minCookie {
		return one
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	sealed, err := s.rdb.Get(ctx, sharedKey(id)).Bytes()
	if errors.Is(err, redis.Nil) {
		s.forget(id) // it ended at another proxy
		return nil
	}
	var shared sharedSession
	if err == nil {
		err = open(id, sealed, &shared)
	}
	if err != nil {
		return one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one = s.all[id]
	if one == nil {
		one = &session{key: shared.Key, Token: shared.Token, began: shared.Began}
		s.sweep(s.now())
		s.all[id] = one
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if shared.Used.After(one.used) {
		one.used, one.shared = shared.Used, shared.Used
	}
	return one
}

// minCookie is the length from which a cookie's value may be that of a session.
const minCookie = 40

func open(id string, sealed []byte, shared *sharedSession) error {
	r, err := ring(id)
	if err != nil {
		return err
	}
	text, err := r.Open(sealed, sharedKey(id))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, shared)
}

// stale reports whether a use is not yet known to the other proxies.
func (one *session) stale() bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.used.Sub(one.shared) >= shareEvery
}
