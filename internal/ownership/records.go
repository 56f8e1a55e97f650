package ownership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/wire"
)

// life returns how long a note is stored; 0 means until it is deleted together with the object.
func life(n Note) time.Duration {
	if n.Is().Object().Lasting {
		return 0
	}
	return TTL
}

// MostKept is how many objects of one kind an org may have, or for private kinds, a user.
const MostKept = 100_000

// ErrTooMany means that an org has [MostKept] objects of a kind.
var ErrTooMany = errors.New("ownership: the org has too many of these")

// ErrNoRoom means that the org has used up its share of Redis memory.
var ErrNoRoom = errors.New("ownership: the org has no room for one more")

// listKey returns the key of the list of an org's, or a user's, objects of a kind.
func listKey(org, user string, k wire.ObjectKind) string {
	list := "lg:{" + org + "}:owned-list:" + string(k)
	if k.Object().Private {
		list += ":" + user
	}
	return list
}

// forever is the lifetime in the memory accounting of what does not expire; deletion ends it
// earlier.
const forever = 10 * 365 * 24 * time.Hour

// objectBytes is approximately what Redis needs for an object and its list entry, with a key and
// text of usual length.
const objectBytes = 3 * noteBytes

// Room returns ErrTooMany or ErrNoRoom unless the org, or for private kinds the user, may have
// one more of a kind.
func (s *Store) Room(ctx context.Context, org, user string, k wire.ObjectKind) error {
	n, err := s.rdb.ZCard(ctx, listKey(org, user, k)).Result()
	if err != nil {
		return wrap(err)
	}
	if n >= MostKept {
		return ErrTooMany
	}
	probe := listKey(org, user, k) + ":" + rand.Text()
	err = s.memory.Reserve(ctx, org, probe, capacity.Bytes{Reserved: objectBytes}, time.Minute)
	if capacity.IsFull(err) {
		return ErrNoRoom
	}
	if err != nil {
		return err
	}
	return s.memory.Release(ctx, probe)
}

// Keep records and lists an object, which must have a Kind. When it returns nil, every process knows the
// object.
func (s *Store) Keep(ctx context.Context, org string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	bytes, life := capacity.Bytes{Written: int64(len(text)) + objectBytes}, life(n)
	err = s.memory.Reserve(ctx, org, key(org, n.ID), bytes, cmp.Or(life, forever))
	if err != nil && !capacity.IsFull(err) { // the provider has it already; Room rejects the next one
		return err
	}
	pipe := s.rdb.TxPipeline()
	pipe.Set(ctx, key(org, n.ID), text, life)
	list := listKey(org, n.User, n.Kind)
	pipe.ZAdd(ctx, list, redisconn.Z{Score: float64(n.Made), Member: n.ID})
	if life > 0 {
		pipe.ZRemRangeByScore(ctx, list, "-inf", strconv.FormatInt(n.Made-life.Microseconds(), 10))
		pipe.Expire(ctx, list, life)
	}
	return wrap(pipe.Exec(ctx))
}

// Change updates an existing note. If the note was deleted meanwhile, it stays deleted.
func (s *Store) Change(ctx context.Context, org string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return wrap(s.rdb.SetXX(ctx, key(org, n.ID), text, redisconn.KeepTTL).Err())
}

// Forget deletes the note of an object that the provider no longer stores.
func (s *Store) Forget(ctx context.Context, org string, n Note) error {
	s.mu.Lock()
	delete(s.pending, key(org, n.ID))
	s.mu.Unlock()
	pipe := s.rdb.TxPipeline()
	if n.Kind != "" { // others are not listed
		pipe.ZRem(ctx, listKey(org, n.User, n.Kind), n.ID)
	}
	pipe.Del(ctx, key(org, n.ID), tokensKey(org, n.ID), openKey(org, n.ID))
	if err := pipe.Exec(ctx); err != nil {
		return wrap(err)
	}
	return s.memory.Release(ctx, key(org, n.ID))
}

// Page selects part of a list: what comes after one id or before another, newest first unless
// Oldest is set.
type Page struct {
	After, Before string
	Oldest        bool
	Limit         int
}

// ErrNoSuch means that a Page refers to an id that is not in the list.
var ErrNoSuch = errors.New("ownership: the list has no such object")

// List returns a page of an org's objects of a kind, or for private kinds of a user's, and
// whether there are more.
func (s *Store) List(ctx context.Context, org, user string, k wire.ObjectKind,
	p Page,
) (list []Note, more bool, err error) {
	first, backwards := int64(0), false
	at, oldest := p.After, p.Oldest
	if at == "" && p.Before != "" { // the last ones before an id are the first ones after it in reverse order
		at = p.Before
		oldest = !oldest
		backwards = true
	}
	span, rank := s.rdb.ZRevRange, s.rdb.ZRevRank
	if oldest {
		span, rank = s.rdb.ZRange, s.rdb.ZRank
	}
	if at != "" {
		i, err := rank(ctx, listKey(org, user, k), at).Result()
		if redisconn.IsNil(err) {
			return nil, false, ErrNoSuch
		}
		if err != nil {
			return nil, false, wrap(err)
		}
		first = i + 1
	}
	ids, err := span(ctx, listKey(org, user, k), first, first+int64(p.Limit)).Result()
	if err != nil {
		return nil, false, wrap(err)
	}
	more = len(ids) > p.Limit
	if more {
		ids = ids[:p.Limit]
	}
	if backwards {
		slices.Reverse(ids)
	}
	if len(ids) == 0 {
		return nil, false, nil
	}
	found, err := s.Look(ctx, org, ids...)
	for _, id := range ids {
		if n, ok := found[id]; ok {
			list = append(list, n)
		}
	}
	return list, more, err
}

func claimKey(org, what string) string { return "lg:{" + org + "}:owned-claim:" + what }

// Claim reports whether the caller is the first to claim this within life.
func (s *Store) Claim(ctx context.Context, org, what string, life time.Duration) (bool, error) {
	first, err := s.rdb.SetNX(ctx, claimKey(org, what), "1", life).Result()
	return first, wrap(err)
}

// Renew extends a claim from now, while the claimed work is being done.
func (s *Store) Renew(ctx context.Context, org, what string, life time.Duration) error {
	return wrap(s.rdb.Expire(ctx, claimKey(org, what), life).Err())
}
