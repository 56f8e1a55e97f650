package spool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget distributes a number of bytes among orgs. An org gets more only if what it already
// holds is at most what would then be free. So one org that takes all it can leaves about half,
// and however many do, there is room for the next one. It is safe for concurrent use.
type Budget struct {
	setting string // name of the setting of the total
	total   int64
	refused atomic.Int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64 // by org
	waiters []*waiter        // in order of arrival
	waiting map[string]int   // number of waiters by org
}

// waiter waits for bytes.
type waiter struct {
	org   string
	n     int64
	ready chan struct{} // closed once granted
}

// maxWaiting limits the waiters per org.
const maxWaiting = 256

// FullError means that a budget had no room within the waiting time.
type FullError struct {
	// Setting is the name of the budget's setting in the configuration.
	Setting string
	// Total is the size of the budget in bytes.
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

// Take takes n bytes for an org, and waits for them no longer than patience. The error is a
// *FullError or from ctx. The bytes must be returned with Give.
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

// enqueue adds a waiter; it returns nil if waiting is pointless.
func (b *Budget) enqueue(org string, n int64, patience time.Duration) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.total || patience <= 0 || b.waiting[org] >= maxWaiting {
		return nil
	}
	w := &waiter{org: org, n: n, ready: make(chan struct{})}
	if b.fits(org, n) { // some were returned meanwhile
		b.grant(org, n)
		close(w.ready)
		return w
	}
	b.waiters = append(b.waiters, w)
	b.waiting[org]++
	return w
}

// Try is Take without waiting.
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

// Used returns how many bytes are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

// Waiting returns the number of waiters.
func (b *Budget) Waiting() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.waiters))
}

// Refused returns how often there was no room.
func (b *Budget) Refused() int64 { return b.refused.Load() }

// fits reports whether an org may have n more bytes. An org that holds nothing may have
// everything that is free.
func (b *Budget) fits(org string, n int64) bool {
	return b.held[org] <= b.free-n
}

func (b *Budget) grant(org string, n int64) {
	b.free -= n
	b.held[org] += n
}

// withdraw removes a waiter that has not been granted its bytes. It returns false if they were
// granted.
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
