package ownership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
)

// Kind says what a thing with a life of its own is.
type Kind string

// The kinds of things.
const (
	Conversation Kind = "conversation"
	File         Kind = "file"
	Upload       Kind = "upload"
	UploadPart   Kind = "upload_part" // of an Upload
	VectorStore  Kind = "vector_store"
	Container    Kind = "container"
	Completion   Kind = "chat.completion" // one that was to be stored
)

// life is how long a note stays; 0 is until it is dropped, as the thing does.
func (k Kind) life() time.Duration {
	switch k {
	case Conversation, File, VectorStore:
		return 0
	}
	return TTL
}

// MostKept is how many things of one kind an org may have; of what is private, a user.
const MostKept = 100_000

// ErrTooMany says that an org has [MostKept] things of a kind.
var ErrTooMany = errors.New("ownership: the org has too many of these")

// ErrNoRoom says that the org has its share of Redis's memory.
var ErrNoRoom = errors.New("ownership: the org has no room for one more")

// Private reports whether a thing is for the user who made it alone: what people wrote is
// not their colleagues' to read.
func (k Kind) Private() bool { return k == Conversation || k == Completion }

// listKey is the list of an org's things of a kind, or of a user's.
func listKey(org, user string, k Kind) string {
	list := "lg:{" + org + "}:owned-list:" + string(k)
	if k.Private() {
		list += ":" + user
	}
	return list
}

// forever is how long what has no end counts in memory, unless it is forgotten before.
const forever = 10 * 365 * 24 * time.Hour

// thingBytes is about what Redis needs for a thing and its place in a list, with a key and
// text of usual length.
const thingBytes = 3 * noteBytes

// Room reports whether the org, or the user of what is private, may have one more of a
// kind; else it is ErrTooMany or ErrNoRoom.
func (s *Store) Room(ctx context.Context, org, user string, k Kind) error {
	n, err := s.rdb.ZCard(ctx, listKey(org, user, k)).Result()
	if err != nil {
		return fmt.Errorf("ownership: %w", err)
	}
	if n >= MostKept {
		return ErrTooMany
	}
	probe := listKey(org, user, k) + ":" + rand.Text()
	err = s.memory.Reserve(ctx, org, probe, capacity.Bytes{Reserved: thingBytes}, time.Minute)
	if capacity.IsFull(err) {
		return ErrNoRoom
	}
	if err != nil {
		return err
	}
	return s.memory.Release(ctx, probe)
}

// Keep notes a thing that has a Kind, and lists it. When it returns nil, every process
// knows the thing.
func (s *Store) Keep(ctx context.Context, org string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	life := n.Kind.life()
	life = cmp.Or(life, forever)
	err = s.memory.Reserve(ctx, org, key(org, n.ID), capacity.Bytes{Written: int64(len(text)) + thingBytes}, life)
	if err != nil && !capacity.IsFull(err) { // it is there already: Room refuses the next one
		return err
	}
	pipe := s.rdb.TxPipeline()
	pipe.Set(ctx, key(org, n.ID), text, n.Kind.life())
	list := listKey(org, n.User, n.Kind)
	pipe.ZAdd(ctx, list, redis.Z{Score: float64(n.Made), Member: n.ID})
	if life := n.Kind.life(); life > 0 {
		pipe.ZRemRangeByScore(ctx, list, "-inf", strconv.FormatInt(n.Made-life.Microseconds(), 10))
		pipe.Expire(ctx, list, life)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("ownership: %w", err)
	}
	return nil
}

// Change writes another state of a note that is there. One that was dropped meanwhile
// stays so.
func (s *Store) Change(ctx context.Context, org string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	err = s.rdb.SetArgs(ctx, key(org, n.ID), text, redis.SetArgs{Mode: "XX", KeepTTL: true}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("ownership: %w", err)
	}
	return nil
}

// Forget drops a note and takes it off its list.
func (s *Store) Forget(ctx context.Context, org string, n Note) error {
	if err := s.rdb.ZRem(ctx, listKey(org, n.User, n.Kind), n.ID).Err(); err != nil {
		return fmt.Errorf("ownership: %w", err)
	}
	return s.Drop(ctx, org, n.ID)
}

// Page says which part of a list is wanted: those after one id or before another, in the
// list's order, which is the newest first unless Oldest is set.
type Page struct {
	After, Before string
	Oldest        bool
	Limit         int
}

// ErrNoSuch says that a Page begins or ends at a thing the list does not have.
var ErrNoSuch = errors.New("ownership: the list has no such thing")

// List returns a part of what an org has of a kind, of what is private a user, and
// whether there is more.
func (s *Store) List(ctx context.Context, org, user string, k Kind, p Page) (list []Note, more bool, err error) {
	first, backwards := int64(0), false
	at, oldest := p.After, p.Oldest
	if at == "" && p.Before != "" { // the last ones before it: the first ones behind it the other way round
		at = p.Before
		oldest = !oldest
		backwards = true
	}
	if at != "" {
		rank := s.rdb.ZRevRank
		if oldest {
			rank = s.rdb.ZRank
		}
		i, err := rank(ctx, listKey(org, user, k), at).Result()
		if errors.Is(err, redis.Nil) {
			return nil, false, ErrNoSuch
		}
		if err != nil {
			return nil, false, fmt.Errorf("ownership: %w", err)
		}
		first = i + 1
	}
	ids, err := s.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: listKey(org, user, k), Start: first, Stop: first + int64(p.Limit), Rev: !oldest,
	}).Result()
	if err != nil {
		return nil, false, fmt.Errorf("ownership: %w", err)
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
	found, err := s.look(ctx, org, ids)
	for _, id := range ids {
		if n, ok := found[id]; ok {
			list = append(list, n)
		}
	}
	return list, more, err
}

func claimKey(org, what string) string { return "lg:{" + org + "}:owned-claim:" + what }

// Claim reports whether the caller is the first to ask for this within a time.
func (s *Store) Claim(ctx context.Context, org, what string, life time.Duration) (bool, error) {
	err := s.rdb.SetArgs(ctx, claimKey(org, what), "1", redis.SetArgs{Mode: "NX", TTL: life}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ownership: %w", err)
	}
	return true, nil
}

// Renew makes a claim last for a time from now, while what was claimed is being done.
func (s *Store) Renew(ctx context.Context, org, what string, life time.Duration) error {
	if err := s.rdb.Expire(ctx, claimKey(org, what), life).Err(); err != nil {
		return fmt.Errorf("ownership: %w", err)
	}
	return nil
}
