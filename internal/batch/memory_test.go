package batch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// tight gives the rig's Redis `room` bytes for records. The returned function reads the
// memory in use.
func (r *rig) tight(room int64) (used func() int64) {
	r.t.Helper()
	used = func() int64 {
		var n int64
		info := r.rdb.InfoMap(r.t.Context(), "memory").Val()["Memory"]
		if _, err := fmt.Sscan(info["used_memory"], &n); err != nil {
			r.t.Fatal(err)
		}
		return n
	}
	if err := r.rdb.ConfigSet(r.t.Context(), "maxmemory", fmt.Sprint((used()+room)*100/80)).Err(); err != nil {
		r.t.Fatal(err)
	}
	return used
}

func (r *rig) count() *capacity.Memory {
	return capacity.New(redistest.DB(r.rdb), nil, capacity.Options{}, nil)
}

// TestRecordsKeepToTheShareOfTheirOrg checks that what one org's batches and their problems
// take in Redis leaves room for another's.
func TestRecordsKeepToTheShareOfTheirOrg(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOrg("other")
	f := r.upload(strings.Repeat("{}\n", maxProblems))
	stop := r.runner(r.options())
	r.ended(r.create(f, wire.Embeddings).ID) // so that Redis has what it needs for any batch
	stop()
	const room, most = 2 << 20, 2000
	used := r.tight(room)
	r.store.Bound(Bounds{Memory: r.count()})
	before := used()
	metadata := map[string]string{"a": strings.Repeat("x", 8000)}
	var full *capacity.FullError
	for range most {
		_, err := r.store.Create(t.Context(), Request{Owner: Owner{Org: "acme", User: "alice"}, File: f, Endpoint: wire.Embeddings, Metadata: metadata})
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if full == nil || !full.Org {
		t.Errorf("got %v, want a refusal for the org's share", full)
	}
	r.runner(r.options())
	redistest.Eventually(t, "all have failed", func() bool { return r.rdb.ZCard(t.Context(), openKey).Val() == 0 })
	if grown := used() - before; grown > room {
		t.Errorf("the batches of one org take %d bytes of %d", grown, room)
	}
	r.createFor("other", "{}")
}

// TestForgottenBatchesGiveTheirBytesBack checks that the share of an org regains what its
// forgotten batches took.
func TestForgottenBatchesGiveTheirBytesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store.Bound(Bounds{Kept: 1, Memory: r.count()})
	bad := r.upload("{}")
	r.runner(r.options())
	sum := func() string { return r.rdb.HGet(t.Context(), "lg:{capacity}:sums", "o acme").Val() }
	first := ""
	for i := range 3 {
		r.create(bad, wire.ChatCompletions)
		redistest.Eventually(t, "one is kept", func() bool {
			return r.rdb.ZCard(t.Context(), openKey).Val() == 0 && r.rdb.ZCard(t.Context(), keptKey("acme")).Val() == 1
		})
		if i == 0 {
			first = sum()
		}
	}
	if got := sum(); first == "" || got != first {
		t.Errorf("%q bytes are counted, after the first batch %q", got, first)
	}
}
