package budget

import (
	"fmt"
	"maps"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestJoinedScriptsDoTheSame holds and settles at random, in large batches: joined runs reply and
// write exactly what single scripts do.
func TestJoinedScriptsDoTheSame(t *testing.T) {
	joined, single := shared(t), shared(t)
	together := map[string]int{}
	for seed := range uint64(randtest.Rounds(3, 300)) {
		w := newTwins(t, joined, single, seed)
		for range 10 {
			w.holds()
			w.others()
			w.settles()
			w.compare()
			w.pass(time.Duration(w.rng.Int64N(int64([]time.Duration{time.Millisecond, time.Second, time.Minute, 4 * time.Hour}[w.rng.IntN(4)]))))
		}
		for name, n := range w.together {
			together[name] += n
		}
	}
	if together["hold"] < 100 || together["settle"] < 100 {
		t.Fatalf("too few scripts were carried out by joined runs: %v", together)
	}
}

// TestJoinedBuckets is the same for a bucket that is charged so often that its dips are merged.
func TestJoinedBuckets(t *testing.T) {
	joined, single := shared(t), shared(t)
	for seed := range uint64(2) {
		w := newTwins(t, joined, single, seed)
		w.most, w.orgs = 4, w.orgs[:1]
		w.limits = []Limit{{ID: "org", Subject: Org, Metric: Cost, Shape: Shape{
			Kind: Bucket, Amount: 1e6, Refill: []int64{1003, 100_003}[seed], Per: time.Second,
		}}}
		for range 3 {
			for range 35 {
				w.holds()
				w.pass(time.Duration(w.rng.Int64N(int64(40 * time.Millisecond))))
			}
			w.settles()
			w.compare()
		}
		if w.together["hold"] < 50 {
			t.Fatalf("too few holds were carried out by joined runs: %v", w.together)
		}
	}
}

// flight returns one hold for each of the users.
func (w *twins) flight(users ...string) (list []*Hold, cmds []redisconn.Reply) {
	for _, user := range users {
		c := w.call()
		c.User = user
		h, err := w.binder.prepare(&Terms{Limits: w.limits, Call: c, Max: cost(10), Expected: cost(10)})
		if err != nil {
			w.t.Fatal(err)
		}
		list, cmds = append(list, h), append(cmds, w.holdRequestOf(h))
	}
	return list, cmds
}

// TestJoinedHoldsProlongTheirKeys: joined holds extend the lifetime of their keys.
func TestJoinedHoldsProlongTheirKeys(t *testing.T) {
	w := newTwins(t, shared(t), shared(t), 1)
	for range 2 {
		_, cmds := w.flight("ann", "bob")
		w.fly(cmds)
		for _, name := range []string{"holds", "leases"} {
			if ttl := w.joined.PTTL(t.Context(), ledger.Key(w.org, name)).Val(); ttl < 30*24*time.Hour {
				t.Errorf("%s lives %s", name, ttl)
			}
			w.joined.PExpire(t.Context(), ledger.Key(w.org, name), 12*time.Hour)
		}
	}
}

// TestJoinedWithABrokenKey: when scripts cannot read the key of one user, only that user's call
// fails, as it would on its own.
func TestJoinedWithABrokenKey(t *testing.T) {
	w := newTwins(t, shared(t), shared(t), 1)
	w.limits = w.limits[:1]
	list, cmds := w.flight("ann", "bob", "cat", "bob")
	for _, rdb := range []*redis.Client{w.joined, w.single} {
		if err := rdb.Set(t.Context(), ledger.Key(w.org, list[1].states[0].Key), "no hash", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.fly(cmds)
	w.compare()
	for i, cmd := range cmds {
		broken := list[i].Call.User == "bob"
		if failed := redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE"); failed != broken {
			t.Errorf("hold of %s: %v", list[i].Call.User, cmd.Err())
		}
	}
}

// TestJoinedWithoutMemory: when Redis accepts no writes, nothing is held, not even in part.
func TestJoinedWithoutMemory(t *testing.T) {
	w := newTwins(t, shared(t), shared(t), 1)
	w.limits = w.limits[:1] // a window that all of a user's calls have left is wiped by the next
	_, cmds := w.flight("ann", "bob", "cat")
	w.fly(cmds)
	w.pass(time.Hour)
	before := w.everything(w.joined)
	if err := w.joined.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, cmds = w.flight("ann", "bob", "cat")
	f := Join(redistest.DB(w.joined))(cmds)
	for again := true; again; {
		pipe := redistest.DB(w.joined).Pipeline()
		again = f(t.Context(), pipe)
		_ = pipe.Exec(t.Context())
	}
	for _, cmd := range cmds {
		if !redis.HasErrorPrefix(cmd.Err(), "OOM") {
			t.Errorf("hold without memory: %v", cmd.Err())
		}
	}
	if err := w.joined.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if after := w.everything(w.joined); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

// bucketLife matches the expiry of a bucket's key. It is set further ahead than needed and then
// kept for a while to save writes, so it differs between the servers.
var bucketLife = regexp.MustCompile(`(_:\S+:\d+),\d+;`)

// valueOf prints the value of a key without the ids of stream entries, which are server times, and
// without bucketLife.
func valueOf(cmd redis.Cmder) string {
	switch c := cmd.(type) {
	case *redis.MapStringStringCmd:
		return bucketLife.ReplaceAllString(fmt.Sprint(c.Val()), "$1;")
	case *redis.ZSliceCmd:
		return fmt.Sprint(c.Val())
	case *redis.XMessageSliceCmd:
		var entries []any
		for _, e := range c.Val() {
			entries = append(entries, e.Values)
		}
		return fmt.Sprint(entries...)
	case *redis.StringSliceCmd:
		return fmt.Sprint(c.Val())
	default:
		return cmd.(*redis.StringCmd).Val()
	}
}
