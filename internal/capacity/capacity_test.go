package capacity

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// mib is large enough to make Redis's own memory insignificant.
const mib = 1 << 20

// place is a count on its own Redis, with a clock set by the test.
type place struct {
	Count
	t   *testing.T
	rdb *redis.Client
}

func newPlace(t *testing.T) *place {
	t.Helper()
	rdb := redistest.Start(t).Client()
	c := CountAt(redistest.DB(rdb), "lg:{capacity}", "lg:{capacity}:sums")
	c.clock = "1000000"
	return &place{c, t, rdb}
}

// at sets the time, in hours.
func (p *place) at(hours int) { p.clock = strconv.FormatInt(int64(hours)*3600e6+1e6, 10) }

func (p *place) try(errs ...error) {
	p.t.Helper()
	for _, err := range errs {
		if err != nil {
			p.t.Error(err)
		}
	}
}

// are checks the sums.
func (p *place) are(want map[string]string) {
	p.t.Helper()
	got := p.rdb.HGetAll(p.t.Context(), p.keys[2]).Val()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("sums %v, want %v", got, want)
	}
}

// The fewer orgs take all they get, the more they leave to others: one alone takes half, two
// take a third each, and a new org always gets something.
func TestOrgGetsAShareOfWhatOthersLeave(t *testing.T) {
	p := newPlace(t)
	take := func(org string) (n int) {
		for ; n < 1000; n++ {
			err := p.Reserve(t.Context(), Reservation{org, fmt.Sprint(org, n), Bytes{Reserved: 1}, time.Hour}, Bound{Most: 120, Other: 20, Share: 50})
			var full *FullError
			if errors.As(err, &full) && full.Org && full.Free == 0 {
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	for org, want := range []int{50, 25, 12, 6} {
		if got := take(fmt.Sprint("org", org)); got != want {
			t.Errorf("org %d got %d, want %d", org, got, want)
		}
	}
	var full *FullError
	err := p.Reserve(t.Context(), Reservation{"new", "x", Bytes{Reserved: 8}, time.Hour}, Bound{Most: 120, Other: 20, Share: 100})
	if !errors.As(err, &full) || full.Org || full.Free != 7 {
		t.Errorf("more than there is for anybody: %v", err)
	}
}

// Repeated reservations count once, and what ends is removed from the sums.
func TestCountFollowsItsEntries(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	in := Bound{Most: 1000, Share: 100}
	for range 2 {
		p.try(p.Reserve(ctx, Reservation{"acme", "a", Bytes{Reserved: 300, Written: 100}, 2 * time.Hour}, in))
		p.try(p.Reserve(ctx, Reservation{"zeta", "b", Bytes{Written: 20}, 5 * time.Hour}, in))
	}
	p.are(map[string]string{"all": "420", "o acme": "400", "o zeta": "20", "written": "120"})
	p.try(p.Reserve(ctx, Reservation{"acme", "a", Bytes{Reserved: 500, Written: AsBefore}, time.Hour}, in))
	p.are(map[string]string{"all": "620", "o acme": "600", "o zeta": "20", "written": "120"})
	for range 2 {
		p.try(p.Settle(ctx, Settled{ID: "a", Written: 150, Life: time.Hour}, Settled{ID: "nobody", Written: 5, Life: time.Hour}))
	}
	p.are(map[string]string{"all": "170", "o acme": "150", "o zeta": "20", "written": "170"})
	if n := p.rdb.HLen(ctx, p.keys[0]).Val(); n != 2 {
		t.Errorf("%d entries, want one of small ones by the hour and one", n)
	}
	p.at(3)
	p.try(p.Expire(ctx))
	p.are(map[string]string{"all": "20", "o zeta": "20", "written": "20"})
	for range 2 {
		p.try(p.Release(ctx, "b"))
	}
	p.are(map[string]string{})
	if n := p.rdb.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys are left of nothing", n)
	}
}

// The keys live longer than the last of their entries, whatever was written after it, and then
// expire.
func TestCountOutlivesItsEntries(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	in := Bound{}
	p.clock = ""
	p.try(p.Reserve(ctx, Reservation{"acme", "long", Bytes{Written: 1}, 48 * time.Hour}, in), p.Reserve(ctx, Reservation{"acme", "short", Bytes{Written: 1}, time.Minute}, in))
	p.try(p.Settle(ctx, Settled{ID: "short", Written: 1, Life: time.Minute}))
	for _, key := range p.keys {
		if ttl := p.rdb.TTL(ctx, key).Val(); ttl < 48*time.Hour || ttl > 50*time.Hour {
			t.Errorf("%s lives for %s, the last entry for 48h", key, ttl)
		}
	}
}

// full gives Redis less memory than it uses.
func full(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
}

// Full memory rejects reservations but not settlements.
func TestFullMemoryTakesEnds(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	in := Bound{}
	for _, id := range []string{"a", "b", "c"} {
		p.try(p.Reserve(ctx, Reservation{"acme", id, Bytes{Reserved: 20_000, Written: 20_000}, time.Hour}, in))
	}
	full(t, p.rdb)
	err := p.Reserve(ctx, Reservation{"acme", "d", Bytes{Written: 1}, time.Hour}, in)
	if !IsFull(err) {
		t.Errorf("more in a full memory: %v", err)
	}
	pipe := p.rdb.TxPipeline()
	pipe.Set(ctx, "k", "v", 0)
	if _, err := pipe.Exec(ctx); !IsFull(err) {
		t.Errorf("a transaction in a full memory: %v", err)
	}
	p.try(p.Reserve(ctx, Reservation{"acme", "a", Bytes{Written: AsBefore}, time.Hour}, in))
	p.try(p.Settle(ctx, Settled{ID: "b", Written: 20_001, Life: time.Hour}), p.Release(ctx, "c"))
	p.are(map[string]string{"all": "40001", "o acme": "40001", "written": "40001"})
}

// Redis's own figures limit what is admitted: other data counts, and if the count is lost, so
// does everything.
func TestBoundIsOfRedisItself(t *testing.T) {
	rdb := redistest.Start(t, redistest.WithArgs("--maxmemory", "64mb")).Client()
	ctx := t.Context()
	m := New(redistest.DB(rdb), nil, Options{MemoryShare: 50, OrgShare: 100}, nil)
	put := func(id string) error {
		m.Configure(Options{MemoryShare: 50, OrgShare: 100}) // makes it query Redis again
		err := m.Reserve(ctx, "acme", id, Bytes{Written: 8 * mib}, time.Hour)
		if err == nil {
			err = rdb.Set(ctx, id, make([]byte, 8*mib), 0).Err()
		}
		return err
	}
	for _, id := range []string{"a", "b"} {
		if err := put(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.Set(ctx, "ledger", make([]byte, 8*mib), 0).Err(); err != nil {
		t.Fatal(err)
	}
	var refused *FullError
	if err := put("c"); !errors.As(err, &refused) || refused.Org || refused.Share != 50 {
		t.Errorf("8 MiB beside 24 of 32: %v", err)
	}
	rdb.Del(ctx, m.keys...)
	if err := put("c"); !errors.As(err, &refused) {
		t.Errorf("the same without the count: %v", err)
	}
}

// Without maxmemory the machine's memory is the bound; a server that reports neither has none.
func TestBoundWithoutMaxmemory(t *testing.T) {
	for text, want := range map[string]node{
		"used_memory:5\r\nmaxmemory:0\r\ntotal_system_memory:100\r\n":  {5, 100},
		"used_memory:5\r\nmaxmemory:50\r\ntotal_system_memory:100\r\n": {5, 50},
		"": {},
	} {
		cmd := redis.NewStringCmd(t.Context())
		cmd.SetVal(text)
		if got, err := memoryOf(cmd); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	if got := boundOf([]node{{5, 0}}, 0, 80); got.Most != 0 {
		t.Errorf("bound %+v, want none", got)
	}
	if got := boundOf([]node{{500, 1000}, {900, 1000}}, 0, 80); got.Most-got.Other > 0 {
		t.Errorf("one node of two is full: %+v, want no room", got)
	}
}
