package lua_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/redistest"
)

// answers fills the response cache of an org, so that it evicts.
func (w *watch) answers(rdb redis.UniversalClient) {
	ctx, stored := w.t.Context(), cache.New(redistest.DB(rdb), cache.Options{})
	in := cache.Bound{Life: time.Minute, MaxBytes: 3000}
	a := cache.Answer{Status: http.StatusOK, Body: []byte(strings.Repeat("x", 1000))}
	for _, id := range []string{"1f", "2f", "3f", "4f"} {
		w.try(stored.Put(ctx, "acme", id, a, in))
	}
	if first, err := stored.Get(ctx, "acme", "1f"); first != nil || err != nil {
		w.t.Errorf("got %+v, %v of the first answer; want it evicted", first, err)
	}
}
