package spool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget hands out a number of bytes to orgs. An org gets more only while what it holds is
// no more than what is left then. So one org that takes all it can get leaves about half,
// and however many do, there is room for the next one. It is safe for concurrent use.
type Budget struct {
	setting string // that names the total
	total   int64
	refused atomic.Int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64 // by org
	waiters []*waiter        // in order of arrival
	waiting map[string]int   // of them, by org
}

// waiter waits for bytes.
type waiter struct {
	org   string
	n     int64
	ready chan struct{} // closed once they are granted
}

// maxWaiting bounds the waiters of an org.
const maxWaiting = 256

// FullError says that a budget had no room within the time to wait for it.
type FullError struct {
	// Setting is the name of the budget's field in the configuration.
	Setting string
	// Total is the whole budget in bytes.
	Total int64
}

func (e *FullError) Error() string {
	return fmt.Sprintf("no room within %s (%d bytes in all, of which one org gets a part)", e.Setting, e.Total)
}

func newBudget(setting string, total int64) *Budget {
	return &Budget{
		setting: setting, total: total, free: total,
		held: make(map[string]int64), waiting: make(map[string]int),
	}
}

// Take takes n bytes for an org, and waits for them no longer than patience. The error is
// a *FullError or that of ctx. What is taken has to be given back with Give.
func (b *Budget) Take(ctx context.Context, org string, n int64, patience time.Duration) error {
	if b.try(org, n) {
		return nil
	}
	w := b.enqueue(org, n, patience)
	if w == nil {
		return b.refuse()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		if b.withdraw(w) {
			return b.refuse()
		}
	case <-ctx.Done():
		if b.withdraw(w) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// enqueue returns a waiter, nil when there is no use in waiting.
func (b *Budget) enqueue(org string, n int64, patience time.Duration) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.total || patience <= 0 || b.waiting[org] >= maxWaiting {
		return nil
	}
	w := &waiter{org: org, n: n, ready: make(chan struct{})}
	if b.fits(org, n) { // given back since
		b.grant(org, n)
		close(w.ready)
		return w
	}
	b.waiters = append(b.waiters, w)
	b.waiting[org]++
	return w
}

// Try is Take that does not wait.
func (b *Budget) Try(org string, n int64) bool {
	ok := b.try(org, n)
	if !ok {
		_ = b.refuse()
	}
	return ok
}

func (b *Budget) try(org string, n int64) bool {
	if n <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(org, n) {
		return false
	}
	b.grant(org, n)
	return true
}

// Give returns bytes of an org.
func (b *Budget) Give(org string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.held[org] -= n
	if b.held[org] <= 0 {
		delete(b.held, org)
	}
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool {
		if !b.fits(w.org, w.n) {
			return false
		}
		b.grant(w.org, w.n)
		b.left(w.org)
		close(w.ready)
		return true
	})
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

// Waiting is how many wait for bytes.
func (b *Budget) Waiting() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.waiters))
}

// Refused is how often there was no room.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// fits reports whether an org may have n bytes more. One that has nothing gets all that is
// free.
func (b *Budget) fits(org string, n int64) bool {
	return b.held[org] <= b.free-n
}

func (b *Budget) grant(org string, n int64) {
	b.free -= n
	b.held[org] += n
}

// withdraw reports whether a waiter has not been granted its bytes, and never will be.
func (b *Budget) withdraw(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.waiters, w)
	if at < 0 {
		return false
	}
	b.waiters = slices.Delete(b.waiters, at, at+1)
	b.left(w.org)
	return true
}

func (b *Budget) left(org string) {
	b.waiting[org]--
	if b.waiting[org] == 0 {
		delete(b.waiting, org)
	}
}

func (b *Budget) refuse() error {
	b.refused.Add(1)
	return &FullError{Setting: b.setting, Total: b.total}
}
