package console

import (
	"context"
	"sync"
	"time"
)

// fresh keeps a value that takes long to get, and gets it anew in the
// background when it is old. Nobody waits for it longer than patience, so a page
// is quick whatever stands behind it. It is safe for concurrent use.
type fresh[T any] struct {
	get func(context.Context) (T, error)
	age time.Duration // older values are got anew

	mu      sync.Mutex
	value   T
	err     error
	at      time.Time     // of value or err; zero: never got
	getting chan struct{} // closed when the getting under way is over; nil: none is
}

const (
	patience = 100 * time.Millisecond
	getTime  = 20 * time.Second
)

// load returns the last value got, and whether there is one. It waits for the
// first one, but no longer than patience.
func (f *fresh[T]) load(ctx context.Context) (value T, known bool, err error) {
	f.mu.Lock()
	if f.getting == nil && time.Since(f.at) > f.age {
		f.getting = make(chan struct{})
		go f.renew(context.WithoutCancel(ctx), f.getting)
	}
	getting, first := f.getting, f.at.IsZero()
	f.mu.Unlock()
	if getting != nil && first {
		wait := time.NewTimer(patience)
		defer wait.Stop()
		select {
		case <-getting:
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value, !f.at.IsZero() && f.err == nil, f.err
}

func (f *fresh[T]) renew(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	value, err := f.get(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err == nil {
		f.value = value
	}
	f.at, f.getting = time.Now(), nil
	close(done)
}
