package ownership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// exchange is a call in a conversation, as seen by the provider.
type exchange struct {
	addition Addition
	own      int64 // what it adds
	seen     int64 // what the provider held when it read the conversation
	total    int64 // the provider's count; Unknown for items
	landed   bool
}

// TestOverlappingCallsCountNoTooLittle: however calls in a conversation overlap, its count is
// never below what the provider holds, and a call that does not overlap corrects it to exactly
// that.
func TestOverlappingCallsCountNoTooLittle(t *testing.T) {
	t.Parallel()
	small := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer small.Close()
	for name, rdb := range map[string]*redis.Client{"redis": redistest.Start(t).Client(), "miniredis": small} {
		s := New(redistest.DB(rdb), nil, nil)
		for seed := range uint64(10) {
			overlap(t, s, fmt.Sprint(name, seed), rand.New(rand.NewPCG(seed, 1)))
		}
	}
}

func overlap(t *testing.T, s *Store, id string, rng *rand.Rand) {
	t.Helper()
	ctx := context.Background()
	var truth int64
	var open []*exchange
	begin := func(step int) {
		x := &exchange{own: rng.Int64N(50), total: Unknown, seen: truth}
		a, err := s.Begin(ctx, "acme", id, fmt.Sprint(step), x.own+rng.Int64N(1000))
		if err != nil {
			t.Fatal(err)
		}
		x.addition, open = a, append(open, x)
	}
	land := func(x *exchange) {
		switch rng.IntN(3) { // 0: items, whose response has no count
		case 1:
			x.total = truth + x.own
		case 2: // with other calls in between
			x.total = x.seen + x.own
		}
		truth, x.landed = truth+x.own, true
	}
	end := func(x *exchange) {
		if !x.landed {
			land(x)
		}
		open = slices.DeleteFunc(open, func(o *exchange) bool { return o == x })
		if err := s.End(ctx, x.addition, x.own, x.total); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 40 {
		switch n := len(open); {
		case n == 0 || n < 4 && rng.IntN(3) == 0:
			begin(step)
		case rng.IntN(2) == 0:
			if x := open[rng.IntN(n)]; !x.landed {
				land(x)
			}
		default:
			end(open[rng.IntN(n)])
		}
		if got := tokens(t, s, id); got < truth {
			t.Fatalf("%s, step %d: got %d tokens, the provider holds %d", id, step, got, truth)
		}
	}
	for len(open) > 0 {
		end(open[0])
	}
	begin(1000)
	x := open[0]
	x.total = truth + x.own
	truth, x.landed = x.total, true
	end(x)
	if got := tokens(t, s, id); got != truth {
		t.Errorf("%s: got %d tokens after a call alone, the provider holds %d", id, got, truth)
	}
}

func tokens(t *testing.T, s *Store, id string) int64 {
	t.Helper()
	n, err := s.Tokens(context.Background(), "acme", id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRepeatedBeginAndEnd: lost replies, and a conversation deleted meanwhile, leave the count
// correct.
func TestRepeatedBeginAndEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rdb := redistest.Start(t).Client()
	s := New(redistest.DB(rdb), nil, nil)
	var a Addition
	var err error
	for range 2 {
		if a, err = s.Begin(ctx, "acme", "conv_1", "call", 100); err != nil {
			t.Fatal(err)
		}
	}
	if got := tokens(t, s, "conv_1"); got != 100 {
		t.Errorf("got %d tokens of a call that began twice, want 100", got)
	}
	for range 2 {
		if err := s.End(ctx, a, 7, Unknown); err != nil {
			t.Fatal(err)
		}
	}
	if got := tokens(t, s, "conv_1"); got != 7 {
		t.Errorf("got %d tokens of a call that ended twice, want 7", got)
	}
	if a, err = s.Begin(ctx, "acme", "conv_1", "other", 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(ctx, "acme", Note{ID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.End(ctx, a, 100, Unknown); err != nil {
		t.Fatal(err)
	}
	if n := rdb.Exists(ctx, tokensKey("acme", "conv_1"), openKey("acme", "conv_1")).Val(); n != 0 {
		t.Errorf("%d keys of a deleted conversation are left", n)
	}
}
