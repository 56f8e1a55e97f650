package budget

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestExactlyTen: a budget for ten calls admits exactly ten of 200 concurrent ones from two
// processes.
func TestExactlyTen(t *testing.T) {
	rdb := shared(t)
	for _, shape := range []Shape{
		hour(10 * 777),
		{Kind: ExactWindow, Amount: 10 * 777, Window: time.Minute},
		{Kind: Bucket, Amount: 10*777 + 776},
		{Kind: Calendar, Amount: 10 * 777, Calendar: "month"},
	} {
		t.Run(string(shape.Kind), func(t *testing.T) {
			f := newFixture(t, rdb, Options{})
			f.clock.fake = nil
			f.now.Store(time.Now().UnixMicro())
			stores := []*Store{f.Store, New(redistest.DB(rdb), Options{})}
			limits := []Limit{costLimit("ten", User, shape), costLimit("wide", Org, hour(1e12))}
			var calls []ledger.Call
			for range 200 {
				calls = append(calls, f.call())
			}
			var admitted, refused atomic.Int64
			var wg sync.WaitGroup
			for i, c := range calls {
				wg.Go(func() {
					s := stores[i%2]
					h, err := s.Hold(t.Context(), Terms{Limits: limits, Call: c, Max: cost(777), Expected: cost(777)})
					var e *ExceededError
					if errors.As(err, &e) {
						refused.Add(1)
						return
					}
					if err != nil {
						t.Errorf("hold: %v", err)
						return
					}
					admitted.Add(1)
					if _, err := s.Settle(t.Context(), h, Settlement{Actual: cost(777)}); err != nil {
						t.Errorf("settle: %v", err)
					}
				})
			}
			redistest.Wait(t, wg.Wait)
			if admitted.Load() != 10 || refused.Load() != 190 {
				t.Fatalf("%d admitted, %d refused, want 10 and 190", admitted.Load(), refused.Load())
			}
			f.used(t.Context(), limits, [2]int64{7770, 0}, [2]int64{7770, 0})
		})
	}
}

// lossy is a connection that sometimes loses an answer: the command was executed, and the client
// sees a dead connection.
type lossy struct {
	net.Conn
	lose func() bool
}

func (c *lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.lose() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestLostAnswers: with every third answer lost, go-redis repeats commands and gives up some.
// Nothing may be counted twice or stay held.
func TestLostAnswers(t *testing.T) {
	server := redistest.Start(t)
	var on atomic.Bool
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(3, 4))
	lose := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return on.Load() && rng.IntN(3) == 0
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: 2, MinRetryBackoff: -1, PoolSize: 2,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &lossy{conn, lose}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	limits := []Limit{costLimit("win", User, hour(1e9)), costLimit("org", Org, Shape{Kind: Bucket, Amount: 1e9})}
	f.used(ctx, limits, [2]int64{}, [2]int64{})

	on.Store(true)
	want, settled, lost := int64(0), int64(0), 0
	insist := func(do func() error) {
		t.Helper()
		for range 100 {
			err := do()
			if err == nil {
				return
			}
			if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			lost++
		}
		t.Fatal("gave up")
	}
	for i := range 150 {
		c := f.call()
		h, err := f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)})
		if errors.Is(err, ErrUnavailable) {
			lost++
			insist(func() error { return f.VoidLost(ctx, c) })
			if _, err = f.Hold(ctx, Terms{Limits: limits, Call: c, Max: cost(100), Expected: cost(100)}); !errors.Is(err, ErrEnded) && !errors.Is(err, ErrUnavailable) {
				t.Fatalf("hold after its void: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%5 == 0 {
			insist(func() error { _, err := f.Extend(ctx, h, cost(50)); return err })
		}
		if i%7 == 0 {
			insist(func() error { return f.Void(ctx, h) })
			continue
		}
		n := int64(i % 160)
		insist(func() error {
			r, err := f.Settle(ctx, h, Settlement{Actual: cost(n)})
			if err == nil && int64(r.Charged) != n {
				t.Fatalf("charged %d, want %d", r.Charged, n)
			}
			return err
		})
		want += n
		settled++
	}
	on.Store(false)
	if lost == 0 {
		t.Fatal("no answer was lost")
	}
	f.used(ctx, limits, [2]int64{want, 0}, [2]int64{want, 0})
	var sum, entries int64
	if err := f.Ledger.Entries(ctx, f.org, time.Time{}, time.Time{}, func(e ledger.Entry) error {
		sum, entries = sum+int64(e.Cost), entries+1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if sum != want || entries != settled {
		t.Fatalf("ledger has %d in %d entries, want %d in %d", sum, entries, want, settled)
	}
}

// TestMemoryFull: when memory is full, new holds are refused, and open ones persist, grow and can
// end.
func TestMemoryFull(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--maxmemory", "4mb"))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	f := newFixture(t, rdb, Options{Lease: time.Minute})
	limits := []Limit{
		costLimit("win", User, hour(1e9)), costLimit("org", Org, Shape{Kind: Bucket, Amount: 1e9}),
		costLimit("exact", User, Shape{Kind: ExactWindow, Amount: 1e9, Window: time.Minute}),
		costLimit("cal", User, Shape{Kind: Calendar, Amount: 1e9, Calendar: "day"}),
		{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 1e6}},
	}
	var holds []*Hold
	filler := make([]byte, 20_000)
	for i := 0; ; i++ {
		h, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(100), Expected: cost(100)})
		if errors.Is(err, ErrUnavailable) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
		_ = rdb.Append(ctx, "filler", string(filler)).Err()
	}
	// Client buffers count as memory too, so continue until it stays full.
	for full := 0; full < 20; full++ {
		if err := rdb.Append(ctx, "filler", string(filler[:2000])).Err(); err == nil {
			full = 0
		}
	}
	if _, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(100), Expected: cost(100)}); !errors.Is(err, ErrFull) || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("hold with memory full: %v", err)
	}
	before, err := f.Peek(ctx, limits, f.call())
	if err != nil || before[0].Used != int64(100*len(holds)) {
		t.Fatalf("a refused hold left a trace: %+v, %v", before, err)
	}
	if _, err := f.Extend(ctx, holds[0], cost(5)); err != nil {
		t.Fatalf("extend with memory full: %v", err)
	}
	f.pass(30 * time.Second)
	if err := f.leases.renewDue(ctx); err != nil {
		t.Fatalf("renewal with memory full: %v", err)
	}
	ends := rdb.ZRangeWithScores(ctx, ledger.Key(f.org, "leases"), 0, 0).Val()
	if int64(ends[0].Score) != f.now.Load()+f.opts.Lease.Microseconds() {
		t.Fatalf("with memory full the first lease ends at %v", ends[0])
	}
	want := int64(0)
	for i, h := range holds {
		switch i % 3 {
		case 0:
			if err := f.Void(ctx, h); err != nil {
				t.Fatalf("void with memory full: %v", err)
			}
		case 1:
			f.settle(ctx, h, 40)
			want += 40
		default:
			want += 100
		}
	}
	f.pass(2 * time.Minute) // the rest expires
	n, err := f.Expiry.Sweep(ctx, f.org)
	if err != nil || n != len(holds)/3 {
		t.Fatalf("sweep with memory full: %d of %d, %v", n, len(holds)/3, err)
	}
	f.used(ctx, limits[:2], [2]int64{want, 0}, [2]int64{want, 0})
	f.used(ctx, limits[3:], [2]int64{want, 0}, [2]int64{0, 0})
}

// TestScriptFlush: the scripts are loaded again when Redis has forgotten them.
func TestScriptFlush(t *testing.T) {
	rdb := shared(t)
	ctx := t.Context()
	f := newFixture(t, rdb, Options{})
	limits := []Limit{costLimit("win", User, hour(1000))}
	for range 3 {
		h := f.hold(ctx, limits, 10)
		if err := rdb.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		f.settle(ctx, h, 10)
	}
	f.used(ctx, limits, [2]int64{30, 0})
}

// TestUnavailable: a store that does not answer leads to ErrUnavailable within the deadline.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	dead := redistest.Start(t)
	dead.Kill()
	for name, addr := range map[string]string{"silent": silent.Addr().String(), "dead": dead.Addr} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{ // only the deadline ends a wait
				Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: time.Hour, WriteTimeout: time.Hour, MaxRetries: -1,
			})
			t.Cleanup(func() { _ = rdb.Close() })
			f := newFixture(t, rdb, Options{})
			limits := []Limit{costLimit("win", User, hour(1000))}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			held := make(chan error, 1)
			go func() {
				_, err := f.Hold(ctx, Terms{Limits: limits, Call: f.call(), Max: cost(1), Expected: cost(1)})
				held <- err
			}()
			select {
			case err := <-held:
				if !errors.Is(err, ErrUnavailable) {
					t.Fatalf("hold: %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a hold outlives its deadline of 200 ms")
			}
			if err := f.VoidLost(ctx, f.call()); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("void: %v", err)
			}
		})
	}
	f := newFixture(t, shared(t), Options{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Hold(gone, Terms{Call: f.call(), Max: cost(1), Expected: cost(1)}); errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Fatalf("hold of a caller that left: %v", err)
	}
}
