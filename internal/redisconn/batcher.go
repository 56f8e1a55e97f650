package redisconn

import (
	"runtime"
	"sync"
	"time"
)

// batchRest is how long the goroutine of a Batcher waits for more before it ends.
const batchRest = 50 * time.Millisecond

// gatherMost is how often those who are about to come are let run.
const gatherMost = 4

// Batcher gathers what many bring at the same moment into batches, carried one after
// another: what comes while one is under way shares the next. So a thousand
// callers need one connection and not the whole pool, and Redis one read and
// one write. Who comes alone waits for nobody. A busy one keeps its goroutine,
// whose stack has grown to what a round trip takes. It is safe for concurrent use.
type Batcher[T any] struct {
	most  int // of a batch
	carry func([]T)

	mu      sync.Mutex
	waiting []T
	kick    chan struct{} // nil while there is no goroutine
}

// NewBatcher returns one that has at most so many carried at a time.
func NewBatcher[T any](most int, carry func([]T)) *Batcher[T] {
	return &Batcher[T]{most: most, carry: carry}
}

// Add brings something; it is carried soon.
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

// run carries until nothing has come for batchRest.
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

// Gather lets the goroutines run that can, until no more of them have come to wait,
// and returns how many do: what is done for several at a time wakes them together,
// and a call for the first alone would make the others wait for it.
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

// end reports whether the goroutine may go: nothing waits.
func (b *Batcher[T]) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		return false
	}
	b.kick = nil
	return true
}
