package outage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	// EpochKey marks the data of the store. If it is gone, or newer than the one this process
	// knows, the data were lost: FLUSHALL, a lost volume, a restart without persistence. On a
	// cluster it covers only the shard it is on.
	EpochKey = "lg:epoch"
	// MarkName is an org's key that records the loss of data its limits suffered: the Unix us of
	// that epoch, or 0. Scripts compare it with what Go believes.
	MarkName = "epoch"
	// MarkLife is how long both keys last after their last use.
	MarkLife = 400 * 24 * time.Hour

	epochLost     = "lost"     // limits stay closed for the length of their window
	epochAccepted = "accepted" // an operator let them count from zero
)

// newEpoch uses the store's clock, so that the epoch does not look older than one created earlier
// by another process.
func (d *DataLoss) newEpoch(ctx context.Context) (epoch, error) {
	now, err := d.o.Time(ctx)
	if err != nil {
		return epoch{}, Fault("look for a loss of data", err)
	}
	return epoch{id: strconv.FormatInt(now.UnixMicro(), 10) + "." + rand.Text(), created: now.UnixMicro()}, nil
}

// currentEpoch returns the store's epoch, creating one if there is none.
func (d *DataLoss) currentEpoch(ctx context.Context) (epoch, error) {
	for range 2 {
		text, err := d.o.Redis.GetEx(ctx, EpochKey, MarkLife).Result()
		if err == nil {
			return parseEpoch(text), nil
		}
		if !redisconn.IsNil(err) {
			return epoch{}, Fault("look for a loss of data", err)
		}
		e, err := d.newEpoch(ctx)
		if err != nil {
			return epoch{}, err
		}
		made, err := d.o.Redis.SetNX(ctx, EpochKey, e.String(), MarkLife).Result()
		if err != nil {
			return epoch{}, Fault("look for a loss of data", err)
		}
		if made {
			return e, nil
		}
	}
	return epoch{}, fmt.Errorf("%w: the epoch of its data comes and goes", ErrUnavailable)
}

// DataLoss detects that the store lost its data, and closes the limits affected.
type DataLoss struct {
	o LossOptions

	turn  chan struct{} // held while this process checks
	began time.Time     // when the last successful check began; guarded by turn

	mu    sync.Mutex
	seen  epoch            // as this process last saw it
	at    time.Time        // when that was
	fresh bool             // a loss was found that the watcher does not know of yet
	marks map[string]int64 // of places that suffered a loss
}

// LossOptions configure a DataLoss.
type LossOptions struct {
	Redis   redisconn.DB
	Time    func(context.Context) (time.Time, error) // the store's
	Key     func(place, name string) string
	Places  func(ctx context.Context, org string, each func(place string) error) error // every place of an org
	Log     *slog.Logger
	Metrics *Metrics
	Accept  bool   // limits count from zero after a loss, instead of being closed
	File    string // where to keep the epoch between runs of the process; empty: nowhere
}

// NewDataLoss returns a DataLoss that knows the epoch in the file, if any.
func NewDataLoss(o LossOptions) *DataLoss {
	d := &DataLoss{o: o, turn: make(chan struct{}, 1), marks: map[string]int64{}}
	if text, err := os.ReadFile(o.File); err == nil {
		d.seen = parseEpoch(strings.TrimSpace(string(text)))
	}
	return d
}

// Look compares the store's epoch with the one this process knows, and marks a loss of data that no
// process has marked yet.
func (d *DataLoss) Look(ctx context.Context) error {
	asked := time.Now()
	select { // two concurrent checks could each trust the other's epoch
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return Fault("look for a loss of data", ctx.Err())
	}
	defer func() { <-d.turn }()
	if d.began.After(asked) {
		return nil // concurrent callers share a check
	}
	began := time.Now()
	e, err := d.currentEpoch(ctx)
	if err != nil {
		return err
	}
	lost := e.replaces(d.known())
	if lost && e.state == "" {
		if e.created == 0 { // a process of an older version created it
			e, err = d.newEpoch(ctx)
			if err != nil {
				return err
			}
		}
		e.state = epochLost
		if d.o.Accept {
			e.state = epochAccepted
		}
		if err := d.o.Redis.Set(ctx, EpochKey, e.String(), MarkLife).Err(); err != nil {
			return Fault("mark a loss of data", err)
		}
	}
	d.saw(e, lost)
	d.began = began
	return nil
}

// known returns the epoch that this process knows.
func (d *DataLoss) known() epoch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// saw records the store's epoch, and reports a loss.
func (d *DataLoss) saw(e epoch, lost bool) {
	d.mu.Lock()
	changed := d.seen.id != e.id
	d.seen, d.at, d.fresh = e, time.Now(), d.fresh || lost
	d.mu.Unlock()
	if changed && d.o.File != "" {
		if err := writeWhole(d.o.File, e.id+"\n"); err != nil {
			d.o.Log.Warn("store epoch not saved, data loss during a restart would go unnoticed", "err", err)
		}
	}
	if !lost {
		return
	}
	d.o.Metrics.emptied.Inc()
	after := "limits stay closed for the length of their window; reopen them with: llmguard limits reopen"
	if e.state == epochAccepted {
		after = "limits count from zero"
	}
	d.o.Log.Error("redis lost its data: limits, holds, ledger and jobs are gone", "after", after)
}

// writeWhole replaces a file with one that contains text.
func writeWhole(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // other processes write it too
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// takeFresh reports a loss of the store's data, once.
func (d *DataLoss) takeFresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	if d.Look(ctx) != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := d.fresh
	d.fresh = false
	return fresh
}

// Mark returns the loss that, as far as this process knows, the limits in a place suffered.
func (d *DataLoss) Mark(place string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.marks[place]
}

func (d *DataLoss) setMark(place string, mark int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mark > 0 {
		d.marks[place] = mark
	} else {
		delete(d.marks, place)
	}
}

// SettleMark resolves the mark that a script found: none (below 0), or a different one than this
// process believed. A place without a mark is new, or its data were lost.
func (d *DataLoss) SettleMark(ctx context.Context, place string, mark int64) error {
	if err := d.Look(ctx); err != nil {
		return err
	}
	if mark < 0 {
		name := d.o.Key(place, MarkName)
		pipe := d.o.Redis.Pipeline()
		pipe.SetNX(ctx, name, d.known().lostAt(), MarkLife)
		now := pipe.Get(ctx, name)
		if err := pipe.Exec(ctx); err != nil {
			return Fault("mark org", err)
		}
		var err error
		mark, err = now.Int64()
		if err != nil {
			return fmt.Errorf("budget: mark of org %s: %w", place, err)
		}
	}
	d.setMark(place, mark)
	return nil
}

// Read loads the mark of a place and the epoch from the store, unless this process has just seen that
// nothing is lost.
func (d *DataLoss) Read(ctx context.Context, place string) error {
	d.mu.Lock()
	sound := time.Since(d.at) < 3*watchEvery && d.seen.lostAt() == 0
	d.mu.Unlock()
	if sound {
		return nil
	}
	pipe := d.o.Redis.Pipeline()
	found, mark := pipe.Get(ctx, EpochKey), pipe.Get(ctx, d.o.Key(place, MarkName))
	if err := pipe.Exec(ctx); err != nil && !redisconn.IsNil(err) {
		return Fault("read loss of data", err)
	}
	e := parseEpoch(found.Val())
	if d.known().id == "" {
		d.mu.Lock()
		d.seen = e
		d.mu.Unlock()
	}
	at, err := mark.Int64()
	if err != nil { // what the first hold will write
		at = e.lostAt()
	}
	d.setMark(place, at)
	return nil
}

// Found returns when the store was last found to have lost its data, in us; 0: never, or an operator accepted the
// loss.
func (d *DataLoss) Found() int64 { return d.known().lostAt() }

// LostAt returns the loss of data that closes the limits in a place, in us; 0 if there is none, or if an
// operator let them count from zero.
func (d *DataLoss) LostAt(place string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.marks[place]; at == d.seen.lostAt() {
		return at
	}
	return 0
}

// At returns when the store was found to have lost its data, if that closes limits; zero if it has
// not, or if an operator accepted the loss.
func (d *DataLoss) At(ctx context.Context) (time.Time, error) {
	text, err := d.o.Redis.Get(ctx, EpochKey).Result()
	if err != nil && !redisconn.IsNil(err) {
		return time.Time{}, Fault("read loss of data", err)
	}
	if at := parseEpoch(text).lostAt(); at > 0 {
		return time.UnixMicro(at), nil
	}
	return time.Time{}, nil
}

// Reopen lets the limits of an org that were closed after a loss of data count from zero.
func (d *DataLoss) Reopen(ctx context.Context, org string) error {
	return d.o.Places(ctx, org, func(place string) error {
		if err := d.o.Redis.Set(ctx, d.o.Key(place, MarkName), 0, MarkLife).Err(); err != nil {
			return Fault("reopen", err)
		}
		d.setMark(place, 0)
		return nil
	})
}

// ReopenAll lets the limits of all orgs and the spend caps that were closed after a loss of data
// count from zero. All processes follow within two seconds.
func (d *DataLoss) ReopenAll(ctx context.Context) error {
	text, err := d.o.Redis.Get(ctx, EpochKey).Result()
	if err != nil && !redisconn.IsNil(err) {
		return Fault("reopen", err)
	}
	e := parseEpoch(text)
	if e.lostAt() == 0 {
		return nil
	}
	e.state = epochAccepted
	if err := d.o.Redis.Set(ctx, EpochKey, e.String(), MarkLife).Err(); err != nil {
		return Fault("reopen", err)
	}
	d.saw(e, false)
	return nil
}
