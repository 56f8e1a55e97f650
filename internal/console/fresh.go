package console

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// fresh caches a value that is slow to get, and refreshes it in the background when it is old.
// A page waits for it for at most patience, and shows how old it is. It is safe for concurrent
// use.
type fresh[T any] struct {
	get func(context.Context) (T, error)
	age time.Duration // older values are refreshed; beyond stale times this age they are not returned

	mu      sync.Mutex
	value   T
	err     error
	at      time.Time     // of value or err; zero: never fetched
	took    time.Duration // to fetch it
	getting chan struct{} // closed when the current fetch ends; nil: none
}

const (
	patience = 100 * time.Millisecond
	getTime  = 20 * time.Second
	stale    = 10
)

// load returns the last value and when it was fetched. The time is zero if there is no value,
// or if it is too old to be shown. load waits for a newer value for at most patience.
func (f *fresh[T]) load(ctx context.Context) (value T, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.wait(ctx)
}

// errUnread means that there is no value yet.
var errUnread = errors.New("the value could not be read in time")

// wait is load that waits until ctx ends.
func (f *fresh[T]) wait(ctx context.Context) (value T, at time.Time, err error) {
	f.mu.Lock()
	if f.getting == nil && time.Since(f.at) > f.life() {
		f.getting = make(chan struct{})
		go f.renew(context.WithoutCancel(ctx), f.getting)
	}
	getting := f.getting
	f.mu.Unlock()
	if getting != nil {
		select {
		case <-getting:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || time.Since(f.at) > stale*f.life() {
		return value, time.Time{}, f.err
	}
	return f.value, f.at, nil
}

// forget discards the value, after a change that may make it wrong.
func (f *fresh[T]) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.getting = time.Time{}, nil
}

func (f *fresh[T]) renew(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, getTime)
	defer cancel()
	began := time.Now()
	value, err := f.fetch(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(done)
	if f.getting != done { // forgotten meanwhile
		return
	}
	f.err = err
	if err == nil {
		f.value = value
	}
	f.at, f.getting = time.Now(), nil
	f.took = f.at.Sub(began)
}

// fetch is get, with a panic as an error: a page must not end a process that serves callers.
func (f *fresh[T]) fetch(ctx context.Context) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f.get(ctx)
}

// life is the age at which the value is fetched again: what takes long must not keep Redis busy. f.mu is held.
func (f *fresh[T]) life() time.Duration { return max(f.age, 10*f.took) }
