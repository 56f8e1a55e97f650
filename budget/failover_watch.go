package budget

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

// watcher detects that the store changed, after a failover or a restart, and writes again what the
// new one may have lost. It also reads the clocks of the servers.
type watcher struct {
	rdb     redisconn.DB
	settler *settler
	recent  *recentSettles
	loss    *DataLoss
	clocks  *storeClock
	metrics outageMetrics
	log     *slog.Logger
	horizon time.Duration // Options.Horizon

	servers map[string]bool // found in the last step
	again   bool            // the recent settles have to be written again
}

// run checks the identity of the store once a second, and writes the tail again when it changed,
// after a failover or a restart. It is part of Run.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		w.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// step is one round of run.
func (w *watcher) step(ctx context.Context) {
	t, now := w.recent, time.Now()
	found, err := w.identities(ctx)
	if err == nil {
		if w.servers != nil && news(w.servers, found) {
			w.again = true
			t.renewed()
		}
		w.servers = found
		w.again = w.loss.takeFresh(ctx) || w.again
		t.see()
	}
	if w.again && w.replay(ctx) == nil {
		w.again = false
	}
	// Endings answered while the store was unreachable are kept, however long that lasts.
	if err == nil && !w.again {
		t.forget(t.until(now, w.horizon))
	}
}

// news reports whether found contains a server that is not known.
func news(known, found map[string]bool) bool {
	for id := range found {
		if !known[id] {
			return true
		}
	}
	return false
}

// identities returns the identities of the store's primaries. They change after a restart or a
// failover.
func (w *watcher) identities(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	found := map[string]bool{}
	var mu sync.Mutex
	return found, w.rdb.EachPrimary(ctx, func(ctx context.Context, c redisconn.DB) error {
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
func (w *watcher) identity(ctx context.Context, c redisconn.DB) (string, error) {
	pipe := c.Pipeline()
	clock, asked := pipe.Time(ctx), time.Now()
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	if err := pipe.Exec(ctx); err != nil {
		if unavailable(err) {
			return "", err
		}
		return "", nil
	}
	w.readClock(c.Name(), asked, clock.Val())
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
	w.recent.replicated(c.Name(), asked, offset, replica, backlog)
	return id, nil
}

// replayReport is the result of writing the tail again.
type replayReport struct {
	calls, forgotten, tooOld int
	oldest                   time.Time // when the oldest forgotten ending had been answered
}

// replay writes again what the store answered recently.
func (w *watcher) replay(ctx context.Context) error {
	list := w.recent.list()
	m := replayReport{calls: len(list)}
	since := time.Now().Add(tailMargin - w.horizon)
	list = slices.DeleteFunc(list, func(r remembered) bool {
		return r.at.Before(since) // its tombstone may be gone, and then it looks like a new ending
	})
	m.tooOld = m.calls - len(list)
	for len(list) > 0 {
		n := min(len(list), replayFlight)
		if err := w.writeAgain(ctx, list[:n], &m); err != nil {
			return err
		}
		list = list[n:]
	}
	w.recent.mu.Lock()
	w.recent.done, w.recent.last = time.Now(), m
	w.recent.mu.Unlock()
	w.log.Warn("store restarted or replaced, recent settlements written again",
		"calls", m.calls, "forgotten", m.forgotten, "forgotten_since", m.oldest, "too_old", m.tooOld)
	return nil
}

// writeAgain writes a batch of the tail; an error means that the store is unreachable.
func (w *watcher) writeAgain(ctx context.Context, list []remembered, m *replayReport) error {
	once, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	endings := make([]Settle, len(list))
	for i, r := range list {
		endings[i] = r.Settle
	}
	for i, done := range w.settler.all(once, endings) {
		if errors.Is(done.Err, ErrUnavailable) || ctx.Err() != nil {
			return done.Err
		}
		what := result(done)
		w.metrics.replayed.WithLabelValues("tail", what).Inc()
		if what == "new" {
			m.forgotten++
			if m.oldest.IsZero() || list[i].at.Before(m.oldest) {
				m.oldest = list[i].at
			}
		}
	}
	return nil
}

// readClock records the clock of a server and reports a jump.
func (w *watcher) readClock(server string, asked, there time.Time) {
	if jump := w.clocks.read(server, asked, time.Now(), there); jump != 0 {
		w.clockJumped(jump)
	}
}

func (w *watcher) clockJumped(by time.Duration) {
	w.metrics.clockSteps.Inc()
	w.log.Error("redis clock jumped, limits and leases depend on it", "by", by, "skew", w.clocks.skew())
}
