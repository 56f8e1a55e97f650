package outage

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	watchEvery   = time.Second      // between checks of the store's identity
	recentMargin = 30 * time.Second // before the horizon; older endings are not written again
)

// Watcher detects that the store changed, after a failover or a restart, and writes again what the
// new one may have lost. It also reads the clocks of the servers.
type Watcher[E, R any] struct {
	Redis   redisconn.DB
	Write   func(ctx context.Context, endings []E) []Written[R]
	Recent  *Recent[E]
	Loss    *DataLoss
	Clocks  *StoreClock
	Metrics *Metrics
	Log     *slog.Logger
	Horizon time.Duration // for so long the store recognizes a repetition

	servers map[string]bool // found in the last step
	again   bool            // the recent endings have to be written again

	mu   sync.Mutex
	done time.Time // when they were last written again; zero: never
}

// Done returns when the recent endings were last written again; zero: never.
func (w *Watcher[E, R]) Done() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// Run checks the identity of the store once a second, and writes the recent endings again when it
// changed, after a failover or a restart, until ctx ends.
func (w *Watcher[E, R]) Run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.Step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Step is one round of Run.
func (w *Watcher[E, R]) Step(ctx context.Context) {
	t, now := w.Recent, time.Now()
	found, err := w.Servers(ctx)
	if err == nil {
		for id := range found {
			if w.servers != nil && !w.servers[id] {
				w.again = true
				t.renewed()
			}
		}
		w.servers = found
		w.again = w.Loss.takeFresh(ctx) || w.again
	}
	if w.again && w.Replay(ctx) == nil {
		w.again = false
	}
	// Endings answered while the store was unreachable are kept, however long that lasts.
	if err == nil && !w.again {
		t.Forget(t.Until(now, w.Horizon))
	}
}

// Servers returns the identities of the store's primaries. They change after a restart or a
// failover.
func (w *Watcher[E, R]) Servers(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	found := map[string]bool{}
	var mu sync.Mutex
	return found, w.Redis.EachPrimary(ctx, func(ctx context.Context, c redisconn.DB) error {
		id, err := w.identity(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		found[id] = true
		return err
	})
}

// identity returns a server's run id and the id of its replication history, which changes when a
// replica becomes a primary. Servers that do not report these are all considered the same. It also
// reads the server's clock and its replicas.
func (w *Watcher[E, R]) identity(ctx context.Context, c redisconn.DB) (string, error) {
	pipe := c.Pipeline()
	clock, asked := pipe.Time(ctx), time.Now()
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	if err := pipe.Exec(ctx); err != nil {
		if Unreachable(err) {
			return "", err
		}
		return "", nil
	}
	if jump := w.Clocks.Read(c.Name(), asked, time.Now(), clock.Val()); jump != 0 {
		w.clockJumped(jump)
	}
	id, offset, replica, backlog := "", int64(0), int64(-1), false
	for line := range strings.Lines(server.Val() + "\n" + replication.Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "run_id" || name == "master_replid":
			id += value + "/"
		case name == "master_repl_offset":
			offset, _ = strconv.ParseInt(value, 10, 64)
		case name == "repl_backlog_active":
			backlog = value == "1"
		case strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online"):
			_, text, _ := strings.Cut(value, ",offset=")
			text, _, _ = strings.Cut(text, ",")
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				replica = max(replica, n)
			}
		}
	}
	w.Recent.replicated(c.Name(), asked, offset, replica, backlog)
	return id, nil
}

// replayReport is the result of writing the tail again.
type replayReport struct {
	calls, forgotten, tooOld int
	oldest                   time.Time // when the oldest forgotten ending had been answered
}

// Replay writes again what the store answered recently.
func (w *Watcher[E, R]) Replay(ctx context.Context) error {
	list := w.Recent.List()
	m := replayReport{calls: len(list)}
	since := time.Now().Add(recentMargin - w.Horizon)
	list = slices.DeleteFunc(list, func(r Remembered[E]) bool {
		return r.At.Before(since) // its tombstone may be gone, and then it looks like a new ending
	})
	m.tooOld = m.calls - len(list)
	for some := range slices.Chunk(list, flightSize) {
		if err := w.writeAgain(ctx, some, &m); err != nil {
			return err
		}
	}
	w.mu.Lock()
	w.done = time.Now()
	w.mu.Unlock()
	w.Log.Warn("store restarted or replaced, recent settlements written again",
		"calls", m.calls, "forgotten", m.forgotten, "forgotten_since", m.oldest, "too_old", m.tooOld)
	return nil
}

// writeAgain writes a batch of the tail; an error means that the store is unreachable.
func (w *Watcher[E, R]) writeAgain(ctx context.Context, list []Remembered[E], m *replayReport) error {
	once, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	endings := make([]E, len(list))
	for i, r := range list {
		endings[i] = r.Ending
	}
	for i, done := range w.Write(once, endings) {
		if errors.Is(done.Err, ErrUnavailable) || ctx.Err() != nil {
			return done.Err
		}
		what := done.result()
		w.Metrics.replayed.WithLabelValues("tail", what).Inc()
		if what == "new" {
			m.forgotten++
			if m.oldest.IsZero() || list[i].At.Before(m.oldest) {
				m.oldest = list[i].At
			}
		}
	}
	return nil
}

func (w *Watcher[E, R]) clockJumped(by time.Duration) {
	w.Metrics.clockSteps.Inc()
	w.Log.Error("redis clock jumped, limits and leases depend on it", "by", by, "skew", w.Clocks.Skew())
}
