package redisconn

import (
	"runtime"
	"sync"
	"time"
)

// batchRest is how long a Batcher's goroutine waits for more items before it exits.
const batchRest = 50 * time.Millisecond

// gatherMost is how often Gather yields to other goroutines.
const gatherMost = 4

// Batcher collects what many goroutines add at about the same time into batches, which are
// processed one after another: what is added while one is in progress goes into the next. So a
// thousand callers need one connection instead of the whole pool, and Redis one read and one
// write. A single item is processed without delay. A busy Batcher keeps its goroutine, whose
// stack has grown to what a round trip needs. It is safe for concurrent use.
type Batcher[T any] struct {
	most  int // batch size
	carry func([]T)

	mu      sync.Mutex
	waiting []T
	kick    chan struct{} // nil if no goroutine is running
}

// NewBatcher returns a Batcher that passes up to most items at a time to carry.
func NewBatcher[T any](most int, carry func([]T)) *Batcher[T] {
	return &Batcher[T]{most: most, carry: carry}
}

// Add adds an item, which will be processed soon.
func (b *Batcher[T]) Add(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, x)
	if b.kick == nil {
		b.kick = make(chan struct{}, 1)
		go b.run(b.kick)
		return
	}
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// run processes batches until nothing has been added for batchRest.
func (b *Batcher[T]) run(kick <-chan struct{}) {
	rest := time.NewTimer(batchRest)
	defer rest.Stop()
	for {
		for {
			Gather(b.waits)
			batch := b.next()
			if len(batch) == 0 {
				break
			}
			b.carry(batch)
		}
		rest.Reset(batchRest)
		select {
		case <-kick:
		case <-rest.C:
			if b.end() {
				return
			}
		}
	}
}

// Gather yields to runnable goroutines until no more of them come to wait, and returns how many
// are waiting. Work done for several callers wakes them together, and sending a call for the
// first alone would make the others wait for it.
func Gather(waiting func() int) int {
	n := 0
	for range gatherMost {
		more := waiting()
		if more == n {
			break
		}
		n = more
		runtime.Gosched()
	}
	return n
}

func (b *Batcher[T]) waits() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

func (b *Batcher[T]) next() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.most)
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	if len(b.waiting) == 0 {
		b.waiting = nil
	}
	return batch
}

// end reports whether the goroutine may exit because nothing is waiting.
func (b *Batcher[T]) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		return false
	}
	b.kick = nil
	return true
}
