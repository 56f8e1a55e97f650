package budget

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
)

// What a limit without time looks like from outside: calls that are held,
// settled or voided, and the sum they take.

type linearIn struct {
	op     string // hold, extend, settle, void, peek
	id     string
	amount int64 // of a hold, an extended hold or a charge
}

type linearOut struct {
	verdict  string // ok, refused, ended
	charged  int64
	replayed bool
	used     int64 // peek
	held     int64
}

type linearCall struct {
	state  byte // h held, s settled, v voided
	amount int64
}

// linearStep is the whole specification: what may be answered, and what then is.
func linearStep(budget int64) func(state, input, output any) (bool, any) {
	return func(state, input, output any) (bool, any) {
		calls, in, out := state.(map[string]linearCall), input.(linearIn), output.(linearOut)
		c := calls[in.id]
		used, held := int64(0), int64(0)
		for _, other := range calls {
			used += other.amount
			if other.state == 'h' {
				held += other.amount
			}
		}
		becomes := func(c linearCall) (bool, any) {
			next := maps.Clone(calls)
			next[in.id] = c
			return true, next
		}
		switch in.op {
		case "peek":
			return out.used == used && out.held == held, calls
		case "hold":
			switch {
			case c.state == 's' || c.state == 'v':
				return out.verdict == "ended", calls
			case c.state == 'h':
				return out.verdict == "ok", calls
			case used+in.amount > budget:
				return out.verdict == "refused", calls
			case out.verdict == "ok":
				return becomes(linearCall{'h', in.amount})
			}
		case "extend":
			more := max(in.amount-c.amount, 0)
			switch {
			case c.state != 'h':
				return out.verdict == "ended", calls
			case more > 0 && used+more > budget:
				return out.verdict == "refused", calls
			case out.verdict == "ok":
				return becomes(linearCall{'h', c.amount + more})
			}
		case "settle":
			if c.state == 's' {
				return out.replayed && out.charged == c.amount, calls
			}
			if !out.replayed && out.charged == in.amount {
				return becomes(linearCall{'s', in.amount})
			}
		case "void":
			if c.state == 's' {
				return true, calls
			}
			return becomes(linearCall{'v', 0})
		}
		return false, calls
	}
}

func linearModel(budget int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return map[string]linearCall{} },
		Step: linearStep(budget),
		Equal: func(a, b any) bool {
			return maps.Equal(a.(map[string]linearCall), b.(map[string]linearCall))
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
}

// linearRun has eight clients work on the same few calls and returns what they
// saw. Each client asks as a process of its own.
func linearRun(t *testing.T, rdb *redis.Client, sc scripts, shape Shape, seed uint64, nonAtomic bool) []porcupine.Operation {
	t.Helper()
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	limits := []Limit{costLimit("limit", Org, shape)}
	calls := make([]Call, 6)
	for i := range calls {
		calls[i] = Call{ID: idAt(time.Now(), i), Org: f.org}
	}
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for client := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(client)))
		s := New(rdb, Options{})
		s.scripts = sc
		wg.Go(func() {
			holds := map[string]*Hold{}
			for range 12 {
				c := calls[rng.IntN(len(calls))]
				in := linearIn{op: "hold", id: c.ID, amount: 40}
				if holds[c.ID] != nil {
					in.op = []string{"hold", "extend", "settle", "settle", "void", "peek"}[rng.IntN(6)]
				}
				began := time.Now().UnixNano()
				out, in := linearDo(ctx, t, s, limits, c, holds, in, rng, nonAtomic)
				op := porcupine.Operation{ClientId: client, Input: in, Call: began, Output: out, Return: time.Now().UnixNano()}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

// linearDo carries out one operation and says what was asked and answered.
func linearDo(ctx context.Context, t *testing.T, s *Store, limits []Limit, c Call, holds map[string]*Hold, in linearIn, rng *rand.Rand, nonAtomic bool) (linearOut, linearIn) {
	h := holds[c.ID]
	var err error
	out := linearOut{verdict: "ok"}
	switch in.op {
	case "hold":
		if nonAtomic {
			var list []Status
			if list, err = s.Peek(ctx, limits, c); err == nil && list[0].Remaining < in.amount {
				return linearOut{verdict: "refused"}, in
			}
			limits = slices.Clone(limits)
			limits[0].Mode = Shadow // holds whatever the limit says
		}
		if h, err = s.Hold(ctx, limits, c, cost(in.amount), cost(in.amount)); err == nil {
			holds[c.ID] = h
		}
	case "extend":
		in.amount = int64(h.Max.Cost) + 15
		_, err = s.Extend(ctx, h, cost(15))
	case "settle":
		in.amount = rng.Int64N(60)
		var r Receipt
		r, err = s.Settle(ctx, h, Settlement{Actual: cost(in.amount)})
		out.charged, out.replayed = int64(r.Charged), r.Replayed
	case "void":
		err = s.Void(ctx, h)
	case "peek":
		var list []Status
		if list, err = s.Peek(ctx, limits, c); err == nil {
			out.used, out.held = list[0].Used, list[0].Held
		}
	}
	var refused *ExceededError
	switch {
	case errors.As(err, &refused):
		out.verdict = "refused"
	case errors.Is(err, ErrEnded):
		out.verdict = "ended"
	case err != nil:
		t.Errorf("%s: %v", in.op, err)
	}
	return out, in
}

const linearBudget = 130

var linearShapes = []Shape{hour(linearBudget), {Kind: Bucket, Amount: linearBudget}}

// Whatever order eight clients' operations took effect in, there is one in which
// each was answered as if it were alone.
func TestLinearizable(t *testing.T) {
	rdb := shared(t)
	rounds := 100
	if long {
		rounds = 20_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, shape := range linearShapes {
		t.Run(string(shape.Kind), func(t *testing.T) {
			verdicts := map[string]int{}
			for i := range rounds {
				history := linearRun(t, rdb, loaded, shape, seed+uint64(i), false)
				for _, op := range history {
					verdicts[op.Input.(linearIn).op+" "+op.Output.(linearOut).verdict]++
				}
				result, info := porcupine.CheckOperationsVerbose(linearModel(linearBudget), history, 20*time.Second)
				if result != porcupine.Ok {
					file := t.ArtifactDir() + "/history.html"
					_ = porcupine.VisualizePath(linearModel(linearBudget), info, file)
					t.Fatalf("round %d: %s; see %s (go test -artifacts keeps it)", i, result, file)
				}
			}
			for _, verdict := range strings.Fields("ok refused ended") {
				if verdicts["hold "+verdict] == 0 {
					t.Errorf("no hold was %s: %v", verdict, verdicts)
				}
			}
			t.Log(verdicts)
		})
	}
}

// The same check notices scripts that forget one thing, and a check of the limit
// that is not one with the hold.
func TestLinearizableNotices(t *testing.T) {
	rdb := shared(t)
	for _, mistake := range []struct{ name, old, new string }{
		{"a repeated hold counts again", "if call('HSETNX', K[1], id, record .. '|' .. A[6]) == 0 then", "if call('HSET', K[1], id, record .. '|' .. A[6]) == 9 then"},
		{"a repeated settle charges again", "if tomb and tomb:sub(1, 1) == 'S' then", "if false then"},
		{"a hold after its end", "if call('HEXISTS', K[3], id) == 1 then return 'done,' .. at end", ""},
		{"peek, then hold", "", ""},
	} {
		for _, shape := range linearShapes {
			t.Run(mistake.name+"/"+string(shape.Kind), func(t *testing.T) {
				sc := loaded
				if mistake.old != "" {
					sc = broken(t, mistake.old, mistake.new)
				}
				for i := range 200 {
					history := linearRun(t, rdb, sc, shape, uint64(i), mistake.old == "")
					if porcupine.CheckOperationsTimeout(linearModel(linearBudget), history, 20*time.Second) == porcupine.Illegal {
						t.Logf("noticed in round %d", i)
						return
					}
				}
				t.Error("not noticed")
			})
		}
	}
}
