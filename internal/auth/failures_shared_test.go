package auth_test

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestSharedFailures: the limiters of several processes allow together what one allows, and a new
// one knows of all failures. No limiter asks Redis about a blocked address again and again.
func TestSharedFailures(t *testing.T) {
	server := redistest.Start(t)
	limiter := func() *auth.FailureLimiter {
		o := budget.Options{CountTimeout: time.Minute}
		return auth.NewSharedFailureLimiter(budget.New(server.DB(), o).Requests, 64)
	}
	began := time.Now()
	allowed := 0
	ip := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)) }
	for i := range 80 { // the third is a restarted process
		if i%20 == 0 {
			l := limiter()
			for j := range 20 {
				if l.Attempt(t.Context(), ip(i+j), time.Now()) {
					allowed++
				}
			}
		}
	}
	if most := 21 + int(time.Since(began)/time.Second); allowed < 20 || allowed > most {
		t.Errorf("got %d attempts allowed in four processes, want 20 to %d", allowed, most)
	}
	l := limiter()
	if !l.Attempt(t.Context(), netip.MustParseAddr("2001:db8:0:1::1"), time.Now()) {
		t.Error("another network: got it blocked")
	}
	many := 0
	for i := range 300 {
		if l.Attempt(t.Context(), netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i)), time.Now()) {
			many++
		}
	}
	most := 201 + 10*int(time.Since(began)/time.Second+1)
	if many > most {
		t.Errorf("many networks: got %d attempts allowed, want at most %d", many, most)
	}
	kept, err := server.Client().DBSize(t.Context()).Result()
	if err != nil || int(kept) > most+2 {
		t.Errorf("got %d keys in Redis, %v; want at most %d", kept, err, most+2)
	}
}

// TestConcurrentFailures: what Redis has counted is allowed, also if it refuses another attempt at the
// same time.
func TestConcurrentFailures(t *testing.T) {
	server := redistest.Start(t)
	var limiters [2]*auth.FailureLimiter
	for i := range limiters {
		limiters[i] = auth.NewSharedFailureLimiter(budget.New(server.DB(), budget.Options{CountTimeout: time.Minute}).Requests, 64)
	}
	for network := range 8 { // all addresses together have 200
		ip := netip.MustParseAddr(fmt.Sprintf("2001:db8:2:%x::1", network))
		var allowed atomic.Int64
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				if limiters[i%2].Attempt(t.Context(), ip, time.Now()) {
					allowed.Add(1)
				}
			})
		}
		redistest.Wait(t, all.Wait)
		if n := allowed.Load(); n < 20 {
			t.Errorf("network %d: got %d attempts allowed, want 20 or more", network, n)
		}
	}
}

// TestFailuresWithoutRedis: without Redis each process limits on its own, from what it has counted
// before.
func TestFailuresWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	l := auth.NewSharedFailureLimiter(budget.New(server.DB(), budget.Options{}).Requests, 64)
	ip, at := netip.MustParseAddr("10.0.0.1"), time.Now()
	allowed := 0
	for i := range 50 {
		if i == 10 {
			server.Kill()
		}
		if l.Attempt(t.Context(), ip, at) {
			allowed++
		}
	}
	if allowed != 20 {
		t.Errorf("got %d attempts allowed, want 20", allowed)
	}
	if !l.Blocked(ip, at) || l.Blocked(ip, at.Add(time.Second)) {
		t.Error("got it blocked for another time than one second")
	}
}
