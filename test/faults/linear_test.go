package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

// linear runs histories of eight clients that work on the same few calls.
type linear struct {
	t         *testing.T
	rdb       *redis.Client
	scripts   budget.Scripts // nil: the real ones
	limit     budget.Limit
	nonAtomic bool // clients check the limit before they hold
}

func newLinear(t *testing.T, shape budget.Shape) *linear {
	return &linear{t: t, rdb: redistest.Start(t).Client(), limit: costLimit("limit", budget.Org, shape)}
}

// run returns the clients' operations and results. Each client acts as a separate process.
func (l *linear) run(org string, seed uint64) []porcupine.Operation {
	l.t.Helper()
	calls := make([]ledger.Call, 6)
	for i := range calls {
		calls[i] = ledger.Call{ID: callID(time.Now(), i), Org: org}
	}
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for client := range 8 {
		c := &linearClient{
			linear: l, store: budget.New(redistest.DB(l.rdb), budget.Options{Scripts: l.scripts}),
			rng: rand.New(rand.NewPCG(seed, uint64(client))), holds: map[string]*budget.Hold{},
		}
		wg.Go(func() {
			for range 12 {
				call := calls[c.rng.IntN(len(calls))]
				began := time.Now().UnixNano()
				in, out := c.one(call)
				op := porcupine.Operation{ClientId: client, Input: in, Call: began, Output: out, Return: time.Now().UnixNano()}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	redistest.Wait(l.t, wg.Wait)
	return history
}

type linearClient struct {
	*linear
	store *budget.Store
	rng   *rand.Rand
	holds map[string]*budget.Hold
}

// one runs one operation and returns its input and output.
func (c *linearClient) one(call ledger.Call) (linearIn, linearOut) {
	in, out, h := linearIn{op: "hold", id: call.ID, amount: 40}, linearOut{verdict: "ok"}, c.holds[call.ID]
	if h != nil {
		in.op = []string{"hold", "extend", "settle", "settle", "void", "peek"}[c.rng.IntN(6)]
	}
	ctx := c.t.Context()
	var err error
	switch in.op {
	case "hold":
		err = c.hold(ctx, call, in.amount)
	case "extend":
		in.amount = int64(h.Max.Cost) + 15
		_, err = c.store.Extend(ctx, h, cost(15))
	case "settle":
		in.amount = c.rng.Int64N(60)
		var r budget.Receipt
		r, err = c.store.Settle(ctx, h, budget.Settlement{Actual: cost(in.amount)})
		out.charged, out.replayed = int64(r.Charged), r.Replayed
	case "void":
		err = c.store.Void(ctx, h)
	case "peek":
		var list []budget.Status
		list, err = c.store.Peek(ctx, []budget.Limit{c.limit}, call)
		if err == nil {
			out.used, out.held = list[0].Used, list[0].Held
		}
	}
	var refused *budget.ExceededError
	switch {
	case errors.As(err, &refused), errors.Is(err, errSeenFull):
		out.verdict = "refused"
	case errors.Is(err, budget.ErrEnded):
		out.verdict = "ended"
	case err != nil:
		c.t.Errorf("%s: %v", in.op, err)
	}
	return in, out
}

// errSeenFull is returned by a client that checks first and finds the limit full.
var errSeenFull = errors.New("the limit has no room")

func (c *linearClient) hold(ctx context.Context, call ledger.Call, n int64) error {
	limits := []budget.Limit{c.limit}
	if c.nonAtomic {
		list, err := c.store.Peek(ctx, limits, call)
		if err != nil {
			return err
		}
		if list[0].Remaining < n {
			return errSeenFull
		}
		limits[0].Mode = budget.Shadow // hold regardless of the limit
	}
	h, err := c.store.Hold(ctx, budget.Terms{Limits: limits, Call: call, Max: cost(n), Expected: cost(n)})
	if err == nil {
		c.holds[call.ID] = h
	}
	return err
}

const linearBudget = 130

var linearShapes = []budget.Shape{hour(linearBudget), {Kind: budget.Bucket, Amount: linearBudget}}

// However the operations of eight clients are interleaved, there is a sequential order that
// explains every reply.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	seed := randtest.Seed(t)
	for _, shape := range linearShapes {
		t.Run(string(shape.Kind), func(t *testing.T) {
			l := newLinear(t, shape)
			verdicts := map[string]int{}
			for i := range randtest.Rounds(40, 20_000) {
				history := l.run(fmt.Sprintf("org%d", i), seed+uint64(i))
				for _, op := range history {
					verdicts[op.Input.(linearIn).op+" "+op.Output.(linearOut).verdict]++
				}
				result, info := porcupine.CheckOperationsVerbose(linearModel(linearBudget), history, 0)
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

// The same check detects scripts with one omission, and a check of the limit that is not atomic
// with the hold.
func TestLinearizableNotices(t *testing.T) {
	t.Parallel()
	for _, mistake := range []struct{ name, old, new string }{
		{"a repeated hold counts again", "elseif open[i] then", "elseif false then"},
		{"a repeated settle charges again", "if tomb and tomb:sub(1, 1) == 'S' then", "if false then"},
		{"a hold after its end", "if ended[i] then", "if false then"},
		{"peek, then hold", "", ""},
	} {
		for _, shape := range linearShapes {
			t.Run(mistake.name+"/"+string(shape.Kind), func(t *testing.T) {
				l := newLinear(t, shape)
				l.nonAtomic = mistake.old == ""
				changed := &rewritten{Scripts: redistest.DB(l.rdb), old: mistake.old, new: mistake.new}
				if !l.nonAtomic {
					l.scripts = changed
				}
				noticed := false
				for i := 0; i < 200 && !noticed; i++ {
					history := l.run(fmt.Sprintf("org%d", i), uint64(i))
					noticed = porcupine.CheckOperationsTimeout(linearModel(linearBudget), history, time.Minute) == porcupine.Illegal
				}
				if !noticed {
					t.Error("not noticed in 200 rounds")
				}
				if !l.nonAtomic && !changed.found.Load() {
					t.Errorf("no script has %q", mistake.old)
				}
			})
		}
	}
}

// rewritten runs scripts with a part of their text replaced.
type rewritten struct {
	budget.Scripts
	old, new string
	hashes   sync.Map // original hash -> hash of the modified text
	found    atomic.Bool
}

// Eval runs the modified text.
func (r *rewritten) Eval(ctx context.Context, script string, keys []string, args ...any) redisconn.Reply {
	if strings.Contains(script, r.old) {
		r.found.Store(true)
	}
	text := strings.ReplaceAll(script, r.old, r.new)
	r.hashes.Store(redisconn.NewScript(script).Hash(), redisconn.NewScript(text).Hash())
	return r.Scripts.Eval(ctx, text, keys, args...)
}

// EvalSha runs the modified text of a script that it has seen.
func (r *rewritten) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	hash, seen := r.hashes.Load(sha1)
	if !seen {
		cmd := r.Command(ctx, "evalsha", sha1)
		cmd.SetErr(noScript{})
		return cmd
	}
	return r.Scripts.EvalSha(ctx, hash.(string), keys, args...)
}

// Process runs the modified text of a command's script.
func (r *rewritten) Process(ctx context.Context, cmd redisconn.Reply) error {
	args := slices.Clone(cmd.Args())
	switch args[0] {
	case "eval":
		script := args[1].(string)
		args[1] = strings.ReplaceAll(script, r.old, r.new)
		if args[1] != script {
			r.found.Store(true)
		}
		r.hashes.Store(redisconn.NewScript(script).Hash(), redisconn.NewScript(args[1].(string)).Hash())
	case "evalsha":
		hash, seen := r.hashes.Load(args[1])
		if !seen {
			cmd.SetErr(noScript{})
			return noScript{}
		}
		args[1] = hash
	}
	own := r.Command(ctx, args...)
	err := r.Scripts.Process(ctx, own)
	cmd.SetErr(err)
	if err == nil {
		cmd.SetVal(own.Val())
	}
	return err
}

// noScript is the error of a Redis that does not know a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script" }
func (noScript) RedisError()   {}
