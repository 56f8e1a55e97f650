package cache

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

// shelf is a cache of one org on its own Redis, with a clock set by the test.
type shelf struct {
	*Store
	t   *testing.T
	rdb redis.UniversalClient
}

func newShelf(t *testing.T, rdb redis.UniversalClient) *shelf {
	return &shelf{New(redistest.DB(rdb), Options{}), t, rdb}
}

// at sets the time, in seconds from now.
func (s *shelf) at(seconds int) {
	s.clock = strconv.FormatInt(time.Now().Add(time.Duration(seconds)*time.Second).UnixMicro(), 10)
}

// put stores a body of some bytes; in addition it needs about 350.
func (s *shelf) put(id string, size int, in Bound) error {
	return s.Put(s.t.Context(), "acme", id, answerOf(strings.Repeat("x", size)), in)
}

// has checks which answers are stored, and that exactly their bytes are counted.
func (s *shelf) has(what string, ids ...string) {
	s.t.Helper()
	ctx := s.t.Context()
	var all []string
	var bytes int64
	for _, key := range s.keysOf("lg:{acme}:cache:*") {
		id := strings.TrimPrefix(key, "lg:{acme}:cache:")
		if id == "entries" || id == "ends" || id == "sums" || id == "order" {
			continue
		}
		all = append(all, id)
		bytes += s.rdb.StrLen(ctx, key).Val() + recordBytes
	}
	if len(all) != len(ids) {
		s.t.Errorf("%s: got answers %q, want %q", what, all, ids)
	}
	for _, id := range ids {
		if a, err := s.Get(ctx, "acme", id); a == nil || err != nil {
			s.t.Errorf("%s: got %+v, %v of answer %s; want it", what, a, err, id)
		}
	}
	for field, key := range map[string]string{"all": "lg:{acme}:cache:sums", "o acme": "lg:{capacity}:sums"} {
		if got, _ := s.rdb.HGet(ctx, key, field).Int64(); got != bytes {
			s.t.Errorf("%s: %s counts %d bytes, want %d", what, key, got, bytes)
		}
	}
	for _, list := range []string{"ends", "order"} {
		if got := s.rdb.ZCard(ctx, "lg:{acme}:cache:"+list).Val(); got != int64(len(ids)) {
			s.t.Errorf("%s: got %d answers in %s, want %d", what, got, list, len(ids))
		}
	}
}

// keysOf lists keys of all nodes.
func (s *shelf) keysOf(pattern string) (keys []string) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return s.rdb.Keys(s.t.Context(), pattern).Val()
	}
	var mu sync.Mutex
	_ = cluster.ForEachMaster(s.t.Context(), func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, node.Keys(ctx, pattern).Val()...)
		return nil
	})
	return keys
}

func (s *shelf) try(errs ...error) {
	s.t.Helper()
	for _, err := range errs {
		if err != nil {
			s.t.Error(err)
		}
	}
}

// TestEvict: at the org's bound, a new answer replaces the oldest ones, by when they were stored,
// and no others.
func TestEvict(t *testing.T) {
	s := newShelf(t, redistest.Start(t).Client())
	evictInOrder(s)
	other := answerOf("hi")
	s.try(s.Put(t.Context(), "other", "1", other, Bound{Life: time.Hour, MaxBytes: 1000}))
	s.try(s.put("8", 3000, Bound{Life: time.Hour, MaxBytes: 5000}))
	if a, err := s.Get(t.Context(), "other", "1"); a == nil || err != nil {
		t.Errorf("got %+v, %v of another org's answer; want it", a, err)
	}
	if got := testutil.ToFloat64(s.metrics.requests.WithLabelValues("evicted")); got != 5 {
		t.Errorf("got %v answers counted as evicted, want 5", got)
	}
}

// TestEvictOnACluster: the keys of an eviction are in the slot of the org.
func TestEvictOnACluster(t *testing.T) {
	evictInOrder(newShelf(t, redistest.StartCluster(t, 3, 0).Client()))
}

// evictInOrder evicts three answers, and ends with 2, 5 and 6.
func evictInOrder(s *shelf) {
	s.t.Helper()
	in := Bound{Life: time.Hour, MaxBytes: 5000}
	for i, id := range []string{"1", "2", "3"} {
		s.at(i)
		if id == "2" { // ends before those that are older
			s.try(s.put(id, 1000, Bound{Life: time.Minute, MaxBytes: 5000}))
			continue
		}
		s.try(s.put(id, 1000, in))
	}
	s.has("below the bound", "1", "2", "3")
	s.at(4)
	s.try(s.put("4", 1000, in))
	s.has("one evicted", "2", "3", "4")
	s.at(5)
	s.try(s.put("2", 1100, in)) // stored again: it is the newest now
	s.has("replaced", "2", "3", "4")
	s.at(6)
	s.try(s.put("5", 1500, in))
	s.has("the next evicted", "2", "4", "5")
	s.at(7)
	s.try(s.put("6", 1000, in), s.put("6", 1000, in))
	s.has("a repetition", "2", "5", "6")
	if err := s.put("7", 5000, in); !capacity.IsFull(err) {
		s.t.Errorf("got %v for an answer larger than the bound, want that there is no room", err)
	}
	s.has("refused", "2", "5", "6")
}

// TestEvictBounded: one store evicts at most 100 answers. If that does not make room, it evicts
// none, unless the bound was lowered.
func TestEvictBounded(t *testing.T) {
	s := newShelf(t, redistest.Start(t).Client())
	in := Bound{Life: time.Hour}
	for i := range 150 {
		s.at(i)
		s.try(s.put(fmt.Sprint(1000+i), 10, in))
	}
	used, err := s.rdb.HGet(t.Context(), "lg:{acme}:cache:sums", "all").Int64()
	s.try(err)
	left := func(want int64) {
		t.Helper()
		got := s.rdb.ZCard(t.Context(), "lg:{acme}:cache:order").Val()
		if all := int64(len(s.keysOf("lg:{acme}:cache:1???"))); got != want || all != want {
			t.Errorf("got %d answers in order and %d stored, want %d", got, all, want)
		}
	}
	s.at(200)
	in.MaxBytes = used
	if err := s.put("big", int(used/150*101), in); !capacity.IsFull(err) {
		t.Errorf("got %v for an answer as large as 101 others, want that there is no room", err)
	}
	left(150)
	in.MaxBytes = used / 150 * 20
	if err := s.put("9000", 10, in); !capacity.IsFull(err) {
		t.Errorf("got %v with a lowered bound, want that there is no room", err)
	}
	left(50)
	s.try(s.put("1999", 10, in))
	left(20)
}

// TestEvictExpired: answers that expired take no room, and nothing is left of them.
func TestEvictExpired(t *testing.T) {
	s := newShelf(t, redistest.Start(t).Client())
	in := Bound{Life: time.Second, MaxBytes: 5000}
	for _, id := range []string{"1", "2", "3"} {
		s.try(s.put(id, 1000, in))
	}
	redistest.Eventually(t, "the answers expired", func() bool { return len(s.keysOf("lg:{acme}:cache:?")) == 0 })
	in.Life = time.Hour
	s.try(s.put("4", 1000, in))
	s.rdb.HDel(t.Context(), "lg:{capacity}:sums", "o acme") // counted until its own entries expire
	if got := s.rdb.ZRange(t.Context(), "lg:{acme}:cache:order", 0, -1).Val(); fmt.Sprint(got) != "[4]" {
		t.Errorf("got %q in order, want 4", got)
	}
	if got := testutil.ToFloat64(s.metrics.requests.WithLabelValues("evicted")); got != 0 {
		t.Errorf("got %v answers counted as evicted, want none", got)
	}
	for _, key := range []string{"entries", "ends", "sums", "order"} {
		if ttl := s.rdb.TTL(t.Context(), "lg:{acme}:cache:"+key).Val(); ttl < time.Hour || ttl > 3*time.Hour {
			t.Errorf("%s lives for %s, want an hour beyond the last answer", key, ttl)
		}
	}
}

// TestEvictTogether: processes that store at the same time keep the bound, and count exactly.
func TestEvictTogether(t *testing.T) {
	s := newShelf(t, redistest.Start(t).Client())
	in := Bound{Life: time.Hour, MaxBytes: 20_000}
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for k := range 20 {
				if err := s.put(fmt.Sprint("a", i, "-", k), 1000, in); err != nil && !capacity.IsFull(err) {
					t.Error(err)
				}
			}
		})
	}
	redistest.Wait(t, writers.Wait)
	var ids []string
	for _, key := range s.keysOf("lg:{acme}:cache:a*") {
		ids = append(ids, strings.TrimPrefix(key, "lg:{acme}:cache:"))
	}
	s.has("in the end", ids...)
	if got, _ := s.rdb.HGet(t.Context(), "lg:{acme}:cache:sums", "all").Int64(); got > 20_000 || got < 18_000 {
		t.Errorf("got %d bytes, want nearly 20000", got)
	}
}
