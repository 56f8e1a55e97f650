package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/journal"
)

const (
	replayPause   = time.Second     // between attempts to write kept endings
	replayTimeout = 3 * time.Second // of one attempt
	flightSize    = 256             // endings written in one batch
	stuckRest     = time.Minute     // before retrying a kept ending that the store refused
)

// Store is what endings are written to.
type Store[E, R any] interface {
	// Decode returns a kept ending. began returns the instant before which the store cannot have received
	// it, given when the kept hold began.
	Decode(data []byte, began func(at time.Time) time.Time) (E, error)
	// Reachable returns an error for each ending whose server does not accept a write that changes nothing.
	Reachable(ctx context.Context, endings []E) []error
	// Write ends the holds. The result has one element per ending, in their order.
	Write(ctx context.Context, endings []E) []Written[R]
}

// Written is what became of an ending that was sent to the store.
type Written[R any] struct {
	Receipt R
	Known   bool // the store had it
	Err     error
	Late    bool // Err says that the store listed it, because it cannot be distinguished from a repetition
}

// result returns the metric label for a replayed ending.
func (w Written[R]) result() string {
	switch {
	case w.Err != nil:
		return "listed"
	case w.Known:
		return "known"
	default:
		return "new"
	}
}

// Kept is an ending as the journal keeps it.
type Kept[R any] struct {
	ID   string // of the hold, with its org
	Data []byte
	// Admitted: the call was admitted without the store. Asked is then when the store may first have
	// received this ending; zero: never.
	Admitted bool
	Asked    time.Time
	Written  func(R) // called when this process has written it; nil: nobody asks
}

// DeferredOptions configure a Deferred.
type DeferredOptions[E, R any] struct {
	Store   Store[E, R]
	Journal *journal.Journal // nil: in memory only
	Now     func() time.Time // the store's
	Metrics *Metrics
	Log     *slog.Logger
}

// Deferred keeps endings that the store could not accept, and writes them when it is back. It is safe for
// concurrent use.
type Deferred[E, R any] struct {
	o         DeferredOptions[E, R]
	memory    *journal.Journal // what the durable journal does not accept
	replaying sync.Mutex       // one Replay at a time

	mu      sync.Mutex
	written map[string]func(R)   // called when an ending is written
	open    map[string]bool      // admitted without the store, by this process
	stuck   map[string]time.Time // refused by the store; when to try again
	asked   map[string]time.Time // admitted without the store and ended here; see since
}

// NewDeferred returns a Deferred with what earlier processes left in the journal.
func NewDeferred[E, R any](o DeferredOptions[E, R]) *Deferred[E, R] {
	memory, _ := journal.Open("", journal.Options{}) // cannot fail: it opens no file
	if o.Journal == nil {
		o.Journal = memory
	}
	return &Deferred[E, R]{
		o: o, memory: memory, written: map[string]func(R){}, open: map[string]bool{}, stuck: map[string]time.Time{},
		asked: map[string]time.Time{},
	}
}

// Keep writes endings to the journal, or to memory if the journal fails.
func (d *Deferred[E, R]) Keep(ctx context.Context, kept []Kept[R]) error {
	d.expect(kept)
	records := make([]journal.Record, len(kept))
	for i, k := range kept {
		records[i] = journal.Record{ID: k.ID, Data: k.Data}
	}
	err := d.o.Journal.PutAll(ctx, records)
	if err != nil && d.o.Journal.Durable() {
		d.o.Log.Error("journal write failed, settlements kept in memory only", "calls", len(records), "err", err)
		for _, r := range records { // an admission in the journal must not be charged now that its ending is known
			d.o.Journal.Delete(r.ID)
		}
		err = d.memory.PutAll(ctx, records)
	}
	if err != nil {
		return fmt.Errorf("budget: keep ending: %w", err)
	}
	for _, r := range records {
		d.close(r.ID)
	}
	d.o.Metrics.kept.Add(float64(len(records)))
	return nil
}

// Admit writes the admission of a call to the journal: it is charged in full if this process dies. Ended has
// to follow, or Keep.
func (d *Deferred[E, R]) Admit(ctx context.Context, id string, data []byte) error {
	if !d.o.Journal.Durable() {
		return errors.New("there is no journal on disk")
	}
	d.mu.Lock()
	d.open[id] = true // so that it is not written meanwhile
	d.mu.Unlock()
	err := d.o.Journal.PutAll(ctx, []journal.Record{{ID: id, Data: data}})
	if err != nil { // it may have been written anyway
		d.Ended(id)
	}
	return err
}

// Ended records that the store has the end of a call that was admitted without it.
func (d *Deferred[E, R]) Ended(id string) {
	d.o.Journal.Delete(id)
	d.close(id)
}

// Records returns what earlier processes and this one left in the journal.
func (d *Deferred[E, R]) Records() []journal.Record { return d.o.Journal.Records() }

// Replay writes kept endings to the store and returns how many are left. Run does it regularly; a
// process that shuts down calls it once more.
func (d *Deferred[E, R]) Replay(ctx context.Context) (left int, err error) {
	d.replaying.Lock()
	defer d.replaying.Unlock()
	for _, j := range d.journals() {
		err = errors.Join(err, d.replayFrom(ctx, j))
	}
	left, _ = d.Kept()
	return left, err
}

func (d *Deferred[E, R]) journals() []*journal.Journal {
	if d.o.Journal == d.memory {
		return []*journal.Journal{d.memory}
	}
	return []*journal.Journal{d.o.Journal, d.memory}
}

// Kept returns the number and size in bytes of the endings waiting for the store, including calls
// that were admitted without it.
func (d *Deferred[E, R]) Kept() (records int, bytes int64) {
	for _, j := range d.journals() {
		n, size := j.Size()
		records, bytes = records+n, bytes+size
	}
	return records, bytes
}

// replayFrom writes the endings of one journal until the store is found unreachable.
func (d *Deferred[E, R]) replayFrom(ctx context.Context, j *journal.Journal) error {
	for some := range slices.Chunk(d.ripe(j.Records()), flightSize) {
		if err := d.replayFlight(ctx, j, some); err != nil {
			return err
		}
	}
	return nil
}

// replayFlight writes a batch of endings. It deletes those that the store answers; an error means
// that the store is unreachable.
func (d *Deferred[E, R]) replayFlight(ctx context.Context, j *journal.Journal, records []journal.Record) error {
	endings := make([]E, 0, len(records))
	ids := make([]string, 0, len(records))
	began := d.o.Now()
	for _, r := range records {
		e, err := d.o.Store.Decode(r.Data, func(at time.Time) time.Time { return d.since(r.ID, at, began) })
		if err != nil {
			d.rest(r.ID)
			d.o.Log.Error("journal record unreadable, it will not be charged", "id", r.ID)
			continue
		}
		endings, ids = append(endings, e), append(ids, r.ID)
	}
	once, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	endings, ids, away := d.reachable(once, endings, ids)
	for i, done := range d.o.Store.Write(once, endings) {
		switch {
		case done.Err == nil || done.Late:
			j.Delete(ids[i])
			d.replayed(ids[i], done)
		case errors.Is(done.Err, ErrUnavailable):
			away = done.Err
			d.ask(ids[i], began)
		default:
			d.rest(ids[i])
			d.o.Log.Error("store refused a settlement, will retry", "id", ids[i], "err", done.Err)
		}
	}
	return away
}

// reachable returns the endings whose servers accept writes. Nothing is sent to an unreachable server, so
// that no write arrives without an answer.
func (d *Deferred[E, R]) reachable(
	ctx context.Context, all []E, allIDs []string,
) (endings []E, ids []string, away error) {
	for i, err := range d.o.Store.Reachable(ctx, all) {
		if err != nil {
			away = err
			continue
		}
		endings, ids = append(endings, all[i]), append(ids, allIDs[i])
	}
	return endings, ids, away
}

// replayed reports an ending that the store has now.
func (d *Deferred[E, R]) replayed(id string, done Written[R]) {
	d.mu.Lock()
	written := d.written[id]
	delete(d.written, id)
	delete(d.stuck, id)
	delete(d.asked, id)
	d.mu.Unlock()
	d.o.Metrics.replayed.WithLabelValues("journal", done.result()).Inc()
	if done.Err != nil {
		d.o.Log.Error("settlement too late to detect a repeat, see llmguard usage reconcile", "id", id)
	} else if written != nil {
		written(done.Receipt)
	}
}

// ripe selects what may be written now: not open calls, and not what the store refused a moment
// ago.
func (d *Deferred[E, R]) ripe(records []journal.Record) []journal.Record {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(records, func(r journal.Record) bool {
		return d.open[r.ID] || now.Before(d.stuck[r.ID])
	})
}

func (d *Deferred[E, R]) expect(kept []Kept[R]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range kept {
		if k.Admitted {
			d.asked[k.ID] = k.Asked
		}
		if k.Written != nil {
			d.written[k.ID] = k.Written
		}
	}
}

// since returns the instant before which the store cannot have received the ending. The store
// recognizes repetitions for the horizon only, so an older ending may already be charged: by a
// settle whose answer was lost, or by the process that expired the hold. A call that was admitted
// without the store has no hold, so its ending is as new as the first attempt of this process that
// may have arrived. Nothing is known about attempts of other processes.
func (d *Deferred[E, R]) since(id string, began, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, own := d.asked[id]
	switch {
	case !own:
		return began
	case first.IsZero():
		return now
	default:
		return first
	}
}

// ask records a failed attempt that may have arrived anyway.
func (d *Deferred[E, R]) ask(id string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, own := d.asked[id]; own && first.IsZero() {
		d.asked[id] = at
	}
}

func (d *Deferred[E, R]) close(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}

func (d *Deferred[E, R]) rest(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck[id] = time.Now().Add(stuckRest)
}

// Run replays kept endings until ctx ends.
func (d *Deferred[E, R]) Run(ctx context.Context) {
	tick := time.NewTicker(replayPause)
	defer tick.Stop()
	away := false
	for {
		if left, err := d.Replay(ctx); err == nil && away {
			d.o.Log.Info("stored settlements written", "left", left)
			away = false
		} else if err != nil && !away && ctx.Err() == nil {
			d.o.Log.Warn("settlements not accepted by redis, will retry", "calls", left, "err", err)
			away = true
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
