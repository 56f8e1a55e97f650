package queue

import (
	"sync"
	"time"
)

// lineRest is how long the goroutine of a line waits for more before it ends.
const lineRest = 50 * time.Millisecond

// line gathers what many bring at the same moment into loads, carried one after
// another: what comes while one is under way shares the next. So a thousand
// callers need one connection and not the whole pool, and Redis one read and
// one write. Who comes alone waits for nobody. A busy line keeps its goroutine,
// whose stack has grown to what a round trip takes.
type line[T any] struct {
	most  int // of a load
	carry func([]T)

	mu      sync.Mutex
	waiting []T
	kick    chan struct{} // nil while there is no goroutine
}

// add brings something; it is carried soon.
func (l *line[T]) add(x T) {
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
func (l *line[T]) run(kick <-chan struct{}) {
	rest := time.NewTimer(lineRest)
	defer rest.Stop()
	for {
		for load := l.next(); len(load) > 0; load = l.next() {
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

func (l *line[T]) next() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), l.most)
	load := l.waiting[:n:n]
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	return load
}

// end reports whether the goroutine may go: nothing waits.
func (l *line[T]) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	l.kick = nil
	return true
}
