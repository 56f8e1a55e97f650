package console

import (
	"context"
	"sync"
	"time"
)

// fresh keeps a value that takes long to get, and gets it again in the
// background when it is old. A page waits for it no longer than patience, and
// shows with it when it was read. It is safe for concurrent use.
type fresh[T any] struct {
	get func(context.Context) (T, error)
	age time.Duration // older values are got again, and those stale times as old are not shown

	mu      sync.Mutex
	value   T
	err     error
	at      time.Time     // of value or err; zero: never got
	getting chan struct{} // closed when the getting under way is over; nil: none is
}

const (
	patience = 100 * time.Millisecond
	getTime  = 20 * time.Second
	stale    = 10
)

// load returns the last value got, and when that was; zero: there is none, or it is
// too old to be shown. It waits for a newer one, but no longer than patience.
func (f *fresh[T]) load(ctx context.Context) (value T, at time.Time, err error) {
	f.mu.Lock()
	if f.getting == nil && time.Since(f.at) > f.age {
		f.getting = make(chan struct{})
		go f.renew(context.WithoutCancel(ctx), f.getting)
	}
	getting := f.getting
	f.mu.Unlock()
	if getting != nil {
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
	if f.err != nil || time.Since(f.at) > stale*f.age {
		return value, time.Time{}, f.err
	}
	return f.value, f.at, nil
}

func (f *fresh[T]) renew(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	value, err := f.get(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if err == nil {
		f.value = value
	}
	f.at, f.getting = time.Now(), nil
	close(done)
}
