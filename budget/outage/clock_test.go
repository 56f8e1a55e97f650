package outage

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestStoreClockJumps: a jump of Redis's clock in either direction is counted and logged; a
// constant difference, a slow answer and changes of our own wall clock are not jumps.
func TestStoreClockJumps(t *testing.T) {
	var log bytes.Buffer
	w := Watcher[int, int]{Clocks: NewStoreClock(), Metrics: NewMetrics(nil), Log: slog.New(slog.NewTextHandler(&log, nil))}
	at := w.Clocks.start
	for i, step := range []struct {
		pass, rtt, ahead time.Duration // since the last reading, of this one, and by which Redis is ahead
		jumps            float64
		skew             time.Duration
	}{
		{time.Second, 2 * time.Millisecond, time.Minute, 0, time.Minute},
		{time.Second, 2 * time.Millisecond, time.Minute + 400*time.Millisecond, 0, time.Minute + 400*time.Millisecond},
		{time.Hour, 3 * time.Second, time.Minute + time.Second, 0, time.Minute + time.Second},
		{time.Second, 2 * time.Millisecond, time.Minute, 0, time.Minute},
		{time.Second, 2 * time.Millisecond, 6 * time.Minute, 1, 6 * time.Minute},
		{time.Second, 2 * time.Millisecond, time.Minute, 2, time.Minute},
		{time.Second, 2 * time.Millisecond, -time.Minute, 3, -time.Minute},
	} {
		at = at.Add(step.pass)
		there := at.Add(step.rtt / 2).Add(step.ahead).Round(0)
		if jump := w.Clocks.Read("a", at, at.Add(step.rtt), there); jump != 0 {
			w.clockJumped(jump)
		}
		if n := testutil.ToFloat64(w.Metrics.clockSteps); n != step.jumps {
			t.Errorf("look %d: %v jumps, want %v", i, n, step.jumps)
		}
		if skew := w.Clocks.Skew(); (skew - step.skew).Abs() > step.rtt {
			t.Errorf("look %d: skew %s, want %s", i, skew, step.skew)
		}
		at = at.Add(step.rtt)
	}
	if n := strings.Count(log.String(), "redis clock jumped"); n != 3 {
		t.Errorf("%d lines in %s", n, log.String())
	}
}

func TestClockSkew(t *testing.T) {
	asked := time.Unix(1e9, 0)
	answered := asked.Add(3 * time.Second) // a slow answer is not skew
	for there, want := range map[time.Duration]time.Duration{
		-5 * time.Second: -5 * time.Second, 0: 0, 2 * time.Second: 0, 3 * time.Second: 0, 10 * time.Second: 7 * time.Second,
	} {
		if got := ClockSkew(asked, answered, asked.Add(there)); got != want {
			t.Errorf("at %s: %s, want %s", there, got, want)
		}
	}
}
