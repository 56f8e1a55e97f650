package budget

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

func requestLimit(id string, by Subject, s Shape) Limit {
	return Limit{ID: id, Subject: by, Metric: Requests, Shape: s}
}

func perMinute(n int64) Shape { return Shape{Kind: Window, Amount: n, Window: time.Minute} }

// count counts a request and fails the test on an error.
func count(t *testing.T, c *RequestCounter, limits []Limit, call ledger.Call) Counted {
	t.Helper()
	out, err := c.Count(t.Context(), limits, call)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// patient is for tests on machines where Redis may answer late.
var patient = Options{CountTimeout: time.Minute}

// TestRequestsAreCountedTogether: several processes admit the amount of a window once, and the
// capacity returns when the window has passed.
func TestRequestsAreCountedTogether(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		for name, shape := range map[string]Shape{
			"window": perMinute(40),
			"bucket": {Kind: Bucket, Amount: 40, Refill: 40, Per: time.Minute},
		} {
			t.Run(name, func(t *testing.T) {
				f := newFixture(t, rdb, patient)
				g := New(redistest.DB(rdb), patient)
				g.clock.fake = f.now.Load
				limits := []Limit{requestLimit(name, IP, shape)}
				call := ledger.Call{Org: f.call().Org, IP: "10.0.0.1"}
				var admitted atomic.Int64
				var all sync.WaitGroup
				for i := range 100 {
					c := []*RequestCounter{f.Requests, g.Requests}[i%2]
					all.Go(func() {
						out, err := c.Count(t.Context(), limits, call)
						if err != nil || out.Local {
							t.Errorf("got %+v, %v, want it counted in Redis", out, err)
						}
						if !out.Refused {
							admitted.Add(1)
						}
					})
				}
				redistest.Wait(t, all.Wait)
				if got := admitted.Load(); got != 40 {
					t.Errorf("got %d requests admitted, want 40", got)
				}
				e := count(t, New(redistest.DB(rdb), patient).withClock(f).Requests, limits, call).Exceeded()
				if e == nil || e.Binding.LimitID != name || e.Binding.Wait <= 0 || e.Binding.Remaining != 0 {
					t.Errorf("a new process: got %+v, want a refusal with a wait", e)
				}
				call.IP = "10.0.0.2"
				if out := count(t, f.Requests, limits, call); out.Refused || out.Statuses[0].Remaining != 39 {
					t.Errorf("another address: got %+v, want it admitted with 39 left", out)
				}
				f.pass(2 * time.Minute)
				call.IP = "10.0.0.1"
				if out := count(t, New(redistest.DB(rdb), patient).withClock(f).Requests, limits, call); out.Refused {
					t.Errorf("after two minutes: got %+v, want it admitted", out)
				}
			})
		}
	})
}

func (s *Store) withClock(f *fixture) *Store {
	s.clock.fake = f.now.Load
	return s
}

// TestRefusedRequestsCountNowhere: a request that one limit refuses takes nothing from others, and
// a limit in shadow mode refuses nothing.
func TestRefusedRequestsCountNowhere(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, patient)
		shadow := requestLimit("shadow", Org, perMinute(1))
		shadow.Mode = Shadow
		limits := []Limit{requestLimit("wide", Org, perMinute(10)), requestLimit("narrow", User, perMinute(2)), shadow}
		call := ledger.Call{Org: f.call().Org, User: "anna"}
		for i := range 2 {
			if out := count(t, f.Requests, limits, call); out.Refused || out.Statuses[2].Refused != (i == 1) {
				t.Errorf("request %d: got %+v, want it admitted", i, out)
			}
		}
		for range 5 {
			if e := count(t, f.Requests, limits, call).Exceeded(); e == nil || e.Binding.LimitID != "narrow" {
				t.Errorf("over the limit: got %+v, want it refused by narrow", e)
			}
		}
		call.User = "bert"
		out := count(t, f.Requests, limits, call)
		if out.Refused || out.Statuses[0].Used != 3 {
			t.Errorf("another user: got %+v, want the third request in wide", out)
		}
	})
}

// TestCountedOnce: a repetition of the script with the same id counts nothing more.
func TestCountedOnce(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, patient)
		for _, l := range []Limit{
			requestLimit("w", Org, perMinute(1)),
			requestLimit("b", Org, Shape{Kind: Bucket, Amount: 1, Refill: 1, Per: time.Minute}),
		} {
			call := ledger.Call{Org: f.call().Org}
			h, err := f.binder.unheld([]Limit{l}, call)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				f.Requests.seq.Store(7) // so that the next has the same id
				out, err := f.Requests.ask(t.Context(), h)
				if err != nil || out.Refused || out.Statuses[0].Used != 1 {
					t.Errorf("%s, repetition %d: got %+v, %v, want it counted once", l.ID, i, out, err)
				}
			}
			out, err := f.Requests.ask(t.Context(), h)
			if err != nil || !out.Refused {
				t.Errorf("%s, another request: got %+v, %v, want it refused", l.ID, out, err)
			}
		}
	})
}

// TestNewRefillOfRequests: a bucket with a new refill drains at it from the next request on.
func TestNewRefillOfRequests(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		f := newFixture(t, rdb, patient)
		call := ledger.Call{Org: f.call().Org}
		slow := []Limit{requestLimit("b", Org, Shape{Kind: Bucket, Amount: 10, Refill: 1, Per: time.Hour})}
		fast := []Limit{requestLimit("b", Org, Shape{Kind: Bucket, Amount: 10, Refill: 1, Per: time.Second})}
		for range 5 {
			count(t, f.Requests, slow, call)
		}
		count(t, f.Requests, fast, call)
		f.pass(3 * time.Second)
		if out := count(t, f.Requests, fast, call); out.Statuses[0].Used != 4 {
			t.Errorf("three seconds after six requests: got %+v, want 4 used", out)
		}
	})
}

// TestFloodsStayInTheProcess: while an address is over its limit, its requests do not reach Redis.
func TestFloodsStayInTheProcess(t *testing.T) {
	rdb := redistest.Start(t).Client()
	var sent atomic.Int64
	rdb.AddHook(sends{&sent})
	c := New(redistest.DB(rdb), Options{CountTimeout: time.Minute}).Requests
	limits := []Limit{requestLimit("l", IP, Shape{Kind: Window, Amount: 1, Window: 24 * time.Hour})}
	call := ledger.Call{Org: "flood", IP: "10.0.0.1"}
	count(t, c, limits, call)
	began := time.Now()
	for range 2000 {
		if !count(t, c, limits, call).Refused {
			t.Fatal("got a request admitted over the limit")
		}
	}
	most := int64(time.Since(began)/fullFor) + 6 // loading the script takes some
	if got := sent.Load(); got > most {
		t.Errorf("got %d commands for 2000 refused requests, want at most %d", got, most)
	}
	for i := range mostFull + 10 {
		c.remember(&Hold{Call: call, limits: limits, states: []state{{Key: fmt.Sprint(i)}}},
			Counted{Refused: true, Statuses: []Status{{Refused: true, Wait: time.Hour}}}, time.Now())
	}
	if len(c.full) > mostFull {
		t.Errorf("got %d refusals remembered, want at most %d", len(c.full), mostFull)
	}
}

// sends counts commands.
type sends struct{ n *atomic.Int64 }

func (s sends) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.n.Add(1)
		return next(ctx, cmd)
	}
}

func (s sends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRequestsWithoutRedis: without Redis each process counts on its own, and refuses at the amount.
func TestRequestsWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	c := New(server.DB(), Options{CountTimeout: time.Minute}).Requests
	limits := []Limit{requestLimit("l", IP, perMinute(3))}
	call := ledger.Call{Org: "ip:10.0.0.1", IP: "10.0.0.1"}
	if out := count(t, c, limits, call); out.Local {
		t.Errorf("with Redis: got %+v, want it counted there", out)
	}
	server.Kill()
	admitted := 0
	for range 10 {
		out := count(t, c, limits, call)
		if !out.Local {
			t.Errorf("without Redis: got %+v, want it counted alone", out)
		}
		if !out.Refused {
			admitted++
		} else if e := out.Exceeded(); e.Binding.Wait <= 0 || e.Binding.LimitID != "l" {
			t.Errorf("without Redis: got %+v, want a refusal with a wait", e)
		}
	}
	if admitted != 3 {
		t.Errorf("without Redis: got %d requests admitted, want 3", admitted)
	}
	server.Restart()
	redistest.Eventually(t, "counted in Redis again", func() bool {
		return !count(t, c, limits, ledger.Call{Org: "ip:10.0.0.2", IP: "10.0.0.2"}).Local
	})
}

// TestOnlyRequestsAreCounted: other limits are an error of the program.
func TestOnlyRequestsAreCounted(t *testing.T) {
	c := New(redistest.Start(t).DB(), patient).Requests
	for _, l := range []Limit{
		{ID: "cost", Subject: Org, Metric: Cost, Shape: perMinute(1)},
		{ID: "exact", Subject: Org, Metric: Requests, Shape: Shape{Kind: ExactWindow, Amount: 1, Window: time.Minute}},
	} {
		if _, err := c.Count(t.Context(), []Limit{l}, ledger.Call{Org: "acme"}); err == nil {
			t.Errorf("%s: got no error, want one", l.ID)
		}
	}
}

// TestAddressesOfANetwork: a limit per address counts a network of IPv6 as one, also in Only.
func TestAddressesOfANetwork(t *testing.T) {
	l := Limit{Subject: IP, IPv6Prefix: 64}
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"::ffff:10.0.0.1", "10.0.0.1", true},
	} {
		if got := l.Same(ledger.Call{IP: tc.a}, ledger.Call{IP: tc.b}); got != tc.want {
			t.Errorf("%s and %s: got same %v, want %v", tc.a, tc.b, got, tc.want)
		}
		own := l
		own.Only = tc.a
		if got := own.Counts(ledger.Call{IP: tc.b}); got != tc.want {
			t.Errorf("only %s: got it counting %s %v, want %v", tc.a, tc.b, got, tc.want)
		}
		own.IPv6Prefix = 0
		if own.Same(ledger.Call{IP: "2001:db8::1"}, ledger.Call{IP: "2001:db8::2"}) {
			t.Error("without a prefix: got two addresses counted as one")
		}
	}
}
