package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// script formats what a watch yields as one line per event, bytes joined.
func script(t *testing.T, w *Watch) string {
	t.Helper()
	var out []string
	var data string
	flush := func() {
		if data != "" {
			out = append(out, "bytes "+data)
			data = ""
		}
	}
	for {
		e, err := w.Next(t.Context())
		if errors.Is(err, io.EOF) {
			flush()
			return strings.Join(out, ", ")
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case Bytes:
			data += string(e.Data)
			continue
		case Changed:
			flush()
			out = append(out, fmt.Sprintf("%s %d", e.State, e.Attempt))
		case Head:
			out = append(out, fmt.Sprintf("head %d %s", e.Status, e.Header.Get("X-A")))
		case End:
			flush()
			out = append(out, fmt.Sprintf("end %t", e.OK))
		}
	}
}

func TestWatchOrderAndRejoin(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	var want strings.Builder
	e.run(func(ctx context.Context, c *Claim) Verdict {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
		out := c.Output()
		out.Header().Set("X-A", "b")
		out.WriteHeader(201)
		for i := range 300 {
			fmt.Fprintf(out, "%d;", i)
			if i%100 == 50 {
				time.Sleep(30 * time.Millisecond)
			}
		}
		return Verdict{Kind: Done, Status: 201}
	}, WorkerOptions{})
	for i := range 300 {
		fmt.Fprintf(&want, "%d;", i)
	}
	j := e.job("p", "acme", "ann", Interactive, 10)
	j.Stream = true
	w := e.Watch(t.Context(), e.put(j))
	defer w.Close()
	live := script(t, w)
	rest := "running 1, head 201 b, bytes " + want.String() + ", end true, succeeded 1"
	if live != "queued 0, "+rest && live != rest {
		t.Errorf("watched %s", live)
	}
	again := e.Watch(t.Context(), j)
	defer again.Close()
	if got := script(t, again); got != strings.TrimPrefix(rest, "running 1, ") {
		t.Errorf("rejoined %s", got)
	}
	if _, err := e.Body(t.Context(), j); err == nil {
		redistest.Eventually(t, "body forgotten", func() bool {
			_, err := e.Body(t.Context(), j)
			return errors.Is(err, ErrNotFound)
		})
	}
}

func TestWatchOfALaterAttempt(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	e.at(simStart)
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Watch(ctx, j)
	defer w.Close()
	for attempt := range 2 {
		c := e.claimOne("p", j)
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c.Output(), "attempt %d", attempt+1)
		if err := c.Output().flush(ctx); err != nil {
			t.Fatal(err)
		}
		if attempt == 0 {
			c.Output().stop()
			for ev, err := w.Next(ctx); ev.Kind != Bytes; ev, err = w.Next(ctx) {
				if err != nil {
					t.Fatal(err)
				}
			}
			e.lapse("p", simStart+time.Minute)
			continue
		}
		if err := c.conclude(ctx, Verdict{Kind: Done}); err != nil {
			t.Fatal(err)
		}
	}
	if got := script(t, w); got != "head 200 , bytes attempt 2, end true, succeeded 2" {
		t.Errorf("watched %s", got)
	}
}

func TestOutputIsCapped(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxOutput: 10}, Pool{ID: "p"})
	c := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Output().Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Output().Write([]byte("0")); !errors.Is(err, ErrOutputFull) {
		t.Errorf("write beyond the cap: %v", err)
	}
	c.Output().stop()
}

// A repeated append, as after a lost reply, adds nothing.
func TestAppendIsIdempotent(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	batch := []entry{{1, headEntry(200, nil)}, {2, bytesEntry([]byte("a"))}}
	for range 2 {
		if err := e.contents.appendOutput(ctx, attemptRef{"", "job_x", 1}, time.Minute, batch); err != nil {
			t.Fatal(err)
		}
	}
	batch = append(batch, entry{3, bytesEntry([]byte("b"))}) // the first two were applied
	if err := e.contents.appendOutput(ctx, attemptRef{"", "job_x", 1}, time.Minute, batch); err != nil {
		t.Fatal(err)
	}
	if n, err := e.rdb.XLen(ctx, outKey("job_x", 1)).Result(); err != nil || n != 3 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// An output with more entries than one look reads arrives complete, before the end.
func TestWatchOfALongOutput(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	ctx := t.Context()
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	c := e.claimOne("p", j)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var batch []entry
	for i := range 600 {
		batch = append(batch, entry{int64(i + 1), bytesEntry([]byte("x"))})
	}
	if err := e.contents.appendOutput(ctx, attemptRef{j.Org, j.ID, 1}, time.Minute, batch); err != nil {
		t.Fatal(err)
	}
	if err := c.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
		t.Fatal(err)
	}
	w := e.Watch(ctx, j)
	defer w.Close()
	if got := script(t, w); got != "bytes "+strings.Repeat("x", 600)+", succeeded 1" {
		t.Errorf("watched %d characters: %.60s", len(got), got)
	}
}

// A watch with a deadline ends then, but not before it has returned the available events.
func TestNextBefore(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.put(e.job("p", "acme", "ann", Async, 10))
	w := e.Follow(j)
	defer w.Close()
	if event, err := w.NextBefore(t.Context(), time.Now().Add(time.Minute)); err != nil || event.State != Queued {
		t.Fatalf("got %+v, %v; want the queued job", event, err)
	}
	for _, until := range []time.Time{time.Now().Add(50 * time.Millisecond), time.Now().Add(-time.Second)} {
		if event, err := w.NextBefore(t.Context(), until); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %+v, %v; want that the deadline has passed", event, err)
		}
	}
	if _, err := e.Cancel(t.Context(), "acme", j.ID); err != nil {
		t.Fatal(err)
	}
	if event, err := w.NextBefore(t.Context(), time.Now().Add(time.Minute)); err != nil || event.State != Cancelled {
		t.Fatalf("got %+v, %v; want the cancelled job", event, err)
	}
}
