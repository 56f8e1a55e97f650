package calibration

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

const (
	batchWork   = 1000 // microseconds per script, the longest that it delays a hold
	batchTries  = 3    // rounds until a batch is dropped
	batchLife   = time.Hour
	readEntries = 500 // per HMGET
	maxN        = 2000

	// fullEvery is the number of rounds after which everything is read again, so that what
	// Redis has dropped is dropped here, too.
	fullEvery = 60
	// overlap covers entries written in the same millisecond as the last read.
	overlap = time.Second
)

var calibrate = lua.Load("calibrate")

// key returns a Redis key; all keys are in one slot.
func key(name string) string { return "lg:{calib}:" + name }

// batches are the pending writes, in order. A batch keeps its number until it is known to be
// written or is dropped; Redis ignores numbers that it has seen.
type batches struct {
	process string // random
	number  int64
	open    []batch
	tries   int // of the first one
}

type batch struct {
	number  int64
	table   *table
	updates []update
}

// add splits updates into batches.
func (b *batches) add(t *table, updates []update) {
	for len(updates) > 0 {
		n, work := 0, 0
		for n < len(updates) && work < batchWork {
			work += updates[n].work
			n++
		}
		b.number++
		b.open = append(b.open, batch{b.number, t, updates[:n]})
		updates = updates[n:]
	}
}

// Sync writes the observations, reads what all processes have learned, and puts it into use.
// Run calls it; it is exported for commands and tests. After an error the same observations are
// tried again by the next Sync, and counted once.
func (c *Calibration) Sync(ctx context.Context) error {
	c.syncing.Lock()
	defer c.syncing.Unlock()
	err := c.write(ctx)
	if err == nil {
		err = c.read(ctx)
	}
	if err != nil {
		c.metrics.errors.Inc()
	}
	return err
}

func (c *Calibration) write(ctx context.Context) error {
	b := &c.batches
	if len(b.open) == 0 { // otherwise pending keeps collecting, within its bounds
		inputs, outputs := c.pending.take()
		b.add(&c.inputs, inputs)
		b.add(&c.outputs, outputs)
	}
	for len(b.open) > 0 {
		if err := c.send(ctx, b.open[0]); err != nil {
			b.tries++
			if b.tries == batchTries {
				b.open, b.tries = b.open[1:], 0
			}
			return fmt.Errorf("calibration: write: %w", err)
		}
		b.open, b.tries = b.open[1:], 0
	}
	return nil
}

func (c *Calibration) send(ctx context.Context, b batch) error {
	keys := []string{key(b.table.name), key(b.table.name + ":recent"), key("batch:" + c.batches.process)}
	args := []any{
		c.now(), b.number, batchLife.Milliseconds(), c.opts.Life.Milliseconds(), b.table.most, maxN,
	}
	for _, u := range b.updates {
		args = append(args, u.entry, u.text)
	}
	return calibrate.Run(ctx, c.rdb, keys, args...).Err()
}

// table is this process's copy of one kind of entry.
type table struct {
	name   string
	most   int
	known  map[string]entry
	seen   int64 // ms; newest update read
	rounds int
}

// read refreshes both tables and puts them into use.
func (c *Calibration) read(ctx context.Context) error {
	changed := false
	for _, t := range []*table{&c.inputs, &c.outputs} {
		more, err := t.read(ctx, c.rdb)
		if err != nil {
			return fmt.Errorf("calibration: read: %w", err)
		}
		changed = changed || more
	}
	if changed {
		s := newSnapshot(c.inputs.known, c.outputs.known, c.opts.Cap)
		c.state.Store(s)
		c.pending.show(c.metrics, s, c.opts.Cap)
	}
	return nil
}

// read reads the entries updated since the last time, or all, and reports whether there were
// any.
func (t *table) read(ctx context.Context, rdb redisconn.DB) (bool, error) {
	from, into := "-inf", map[string]entry{}
	changed := t.known == nil || t.rounds >= fullEvery
	if !changed {
		from, into = strconv.FormatInt(t.seen-overlap.Milliseconds(), 10), t.known
		t.known = nil // until this succeeds, because a partial read would not count as a change later
	}
	since := redisconn.Between{Min: from, Max: "+inf"}
	recent, err := rdb.ZRangeByScoreWithScores(ctx, key(t.name+":recent"), since).Result()
	if err != nil {
		return false, err
	}
	seen := t.seen
	for len(recent) > 0 {
		n := min(len(recent), readEntries)
		names := make([]string, n)
		for i, z := range recent[:n] {
			names[i] = z.Member
			seen = max(seen, int64(z.Score))
		}
		values, err := rdb.HMGet(ctx, key(t.name), names...).Result()
		if err != nil {
			return false, err
		}
		for i, v := range values {
			text, _ := v.(string)
			if e, ok := parseEntry(text); ok && into[names[i]].text != text {
				into[names[i]] = e
				changed = true
			}
		}
		recent = recent[n:]
	}
	t.seen, t.known = seen, into
	t.rounds++
	if t.rounds > fullEvery {
		t.rounds = 1
	}
	return changed, nil
}
