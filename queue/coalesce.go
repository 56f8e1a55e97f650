package queue

import (
	"runtime"
	"sync"
	"time"
)

// lineRest is how long the goroutine of a line waits for more before it ends.
const lineRest = 50 * time.Millisecond

// gatherMost is how often those who are about to come are let run.
const gatherMost = 4

// coalescer gathers what many bring at the same moment into loads, carried one after
// another: what comes while one is under way shares the next. So a thousand
// callers need one connection and not the whole pool, and Redis one read and
// one write. Who comes alone waits for nobody. A busy line keeps its goroutine,
// whose stack has grown to what a round trip takes.
type coalescer[T any] struct {
	most  int // of a load
	carry func([]T)

	mu      sync.Mutex
	waiting []T
	kick    chan struct{} // nil while there is no goroutine
}

// add brings something; it is carried soon.
func (l *coalescer[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, x)
	if l.kick == nil {
		l.kick = make(chan struct{}, 1)
		go l.run(l.kick)
		return
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run carries until nothing has come for lineRest.
func (l *coalescer[T]) run(kick <-chan struct{}) {
	rest := time.NewTimer(lineRest)
	defer rest.Stop()
	for {
		for {
			gather(l.waits)
			load := l.next()
			if len(load) == 0 {
				break
			}
			l.carry(load)
		}
		rest.Reset(lineRest)
		select {
		case <-kick:
		case <-rest.C:
			if l.end() {
				return
			}
		}
	}
}

// gather lets the goroutines run that can, until no more of them have come to wait,
// and returns how many do: what is done for several at a time wakes them together,
// and a call for the first alone would make the others wait for it.
func gather(waiting func() int) int {
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

func (l *coalescer[T]) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

func (l *coalescer[T]) next() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), l.most)
	load := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return load
}

// end reports whether the goroutine may go: nothing waits.
func (l *coalescer[T]) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	l.kick = nil
	return true
}
