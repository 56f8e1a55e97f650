package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/lua"
)

// sharedSession is a session as stored in Redis for all proxies. It is encrypted with the
// cookie's value, which Redis does not have, so read access to Redis reveals no key.
type sharedSession struct {
	Key   string    `json:"key"`
	Token string    `json:"token"`
	Began time.Time `json:"began"`
	Used  time.Time `json:"used"`
}

const (
	// shareEvery is how often the last use is written; a session expires at most that much too
	// early.
	shareEvery = time.Minute
	// shareTime limits the wait for Redis; without it, this process uses its own copy.
	shareTime = 500 * time.Millisecond
)

// sessionIndex holds the keys of all sessions by last use, to limit their number.
const sessionIndex = "lg:{console:}:sessions"

var keepSession = lua.Load("session_keep")

// sharedKey returns the Redis key of a session. It contains only the hash of the cookie's
// value. No org id clashes with "console:", because ids have no colon.
func sharedKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "lg:{console:}:session:" + hex.EncodeToString(sum[:])
}

func ring(id string) (*seal.Ring, error) { return seal.NewRing(seal.Key{ID: "session", Secret: id}) }

// share writes the current state of a session for the other proxies.
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
	excess, err := keepSession.Run(ctx, s.rdb, []string{sharedKey(id), sessionIndex},
		now.Unix(), r.Seal(text, sharedKey(id)), int64(sessionLife.Seconds()), maxSessions).StringSlice()
	if err != nil {
		return err
	}
	return s.unshare(ctx, excess...)
}

// unshare deletes sessions for all proxies, by their Redis keys.
func (s *sessions) unshare(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	pipe := s.rdb.TxPipeline()
	pipe.Del(ctx, keys...)
	for _, key := range keys {
		pipe.ZRem(ctx, sessionIndex, key)
	}
	err := pipe.Exec(ctx)
	return err
}

// find returns the session of a cookie, whichever proxy started it, or nil. While Redis does
// not answer, sessions known to this process stay valid.
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
	if redisconn.IsNil(err) {
		s.forget(id) // it was ended at another proxy
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

// minCookie is the minimum length of a session's cookie value.
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

// stale reports whether the last use is not yet known to the other proxies.
func (one *session) stale() bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.used.Sub(one.shared) >= shareEvery
}
