package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/llmguard/llmguard/top"
)

const (
	watchEvery = 500 * time.Millisecond
	plainEvery = 10 * time.Second // between lines in a pipe that say nothing new but numbers
	watchTries = 60               // failed looks in a row
)

// progress shows how far a batch is.
type progress interface {
	show(b openai.Batch, c cost)
	close()
}

// watch follows a batch to its end; the error says that it did not complete. A
// server that is away is waited for.
func (b *batches) watch(ctx context.Context, w io.Writer, id string) error {
	var p progress = &plainProgress{w: w, began: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p = newBars(w)
	}
	defer p.close()
	for failures := 0; ; {
		batch, cost, err := b.get(ctx, id)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the batch goes on: llmguard batch status --watch %s", top.Printable(id))
		case err != nil:
			if failures++; failures == watchTries {
				return err
			}
		default:
			failures = 0
			p.show(batch, cost)
		}
		if err == nil && ended(batch.Status) {
			if batch.Status == "completed" {
				return nil
			}
			b.describe(w, batch, cost)
			return fmt.Errorf("the batch is %s", top.Printable(batch.Status))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

// plainProgress writes a line when the status changes, and now and then.
type plainProgress struct {
	w      io.Writer
	began  time.Time
	first  int // requests done when it began
	begun  bool
	status string
	last   time.Time
}

func (p *plainProgress) show(b openai.Batch, c cost) {
	n := b.RequestCounts
	done := n.Completed + n.Failed
	if !p.begun {
		p.first, p.begun = done, true
	}
	if b.Status == p.status && time.Since(p.last) < plainEvery {
		return
	}
	p.status, p.last = b.Status, time.Now()
	text := ""
	if rate := float64(done-p.first) / time.Since(p.began).Seconds(); rate > 0 && done < n.Total {
		text = fmt.Sprintf(", %.1f/s, %s to go", rate, (time.Duration(float64(n.Total-done)/rate) * time.Second).Round(time.Second))
	}
	fmt.Fprintf(p.w, "%s %d/%d, %d failed%s, $%s of at most $%s\n", top.Printable(b.Status), done, n.Total, n.Failed, text, top.Printable(c.Charged), top.Printable(c.Estimated))
}

func (p *plainProgress) close() {}

// bars is a progress bar on a terminal.
type bars struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	seen     atomic.Pointer[seen] // by the goroutine that draws
	last     time.Time
}

type seen struct {
	batch openai.Batch
	cost  cost
}

func newBars(w io.Writer) *bars {
	p := &bars{progress: mpb.New(mpb.WithOutput(w), mpb.WithWidth(40)), last: time.Now()}
	p.seen.Store(&seen{})
	text := func(say func(*seen) string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return say(p.seen.Load()) }, decor.WCSyncSpaceR)
	}
	p.bar = p.progress.AddBar(0,
		mpb.PrependDecorators(text(func(s *seen) string { return top.Printable(s.batch.Status) }), decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(
			decor.EwmaSpeed(0, "%.1f/s ", 30), decor.EwmaETA(decor.ET_STYLE_GO, 30),
			text(func(s *seen) string {
				return fmt.Sprintf(" %d failed, $%s", s.batch.RequestCounts.Failed, top.Printable(s.cost.Charged))
			}),
		))
	return p
}

func (p *bars) show(b openai.Batch, c cost) {
	p.seen.Store(&seen{b, c})
	n, now := b.RequestCounts, time.Now()
	p.bar.SetTotal(int64(max(n.Total, 1)), false)
	p.bar.EwmaSetCurrent(int64(n.Completed+n.Failed), now.Sub(p.last))
	p.last = now
}

func (p *bars) close() {
	p.bar.Abort(false)
	p.progress.Wait()
}
