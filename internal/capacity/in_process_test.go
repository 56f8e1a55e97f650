package capacity

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// The scripts also run on the in-process store of dev, which has no bound.
func TestCountInProcess(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	m, ctx := New(redistest.DB(rdb), nil, Options{}, nil), t.Context()
	p := &place{m.Count, t, rdb}
	p.try(m.Reserve(ctx, "acme", "a", Bytes{Reserved: 10, Written: 20_000}, time.Hour))
	p.try(m.Reserve(ctx, "acme", "b", Bytes{Written: 5}, time.Hour))
	p.try(m.Settle(ctx, Settled{ID: "a", Written: 20_001, Life: time.Hour}, Settled{ID: "b", Written: 6, Life: time.Hour}))
	p.are(map[string]string{"all": "20007", "o acme": "20007", "written": "20007"})
	p.try(m.ReleaseOrg(ctx, "acme"))
	p.are(map[string]string{})
}
