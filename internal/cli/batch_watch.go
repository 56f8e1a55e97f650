package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/top"
)

const (
	watchEvery = 500 * time.Millisecond
	plainEvery = 10 * time.Second // between lines in a pipe that say nothing new but numbers
	watchTries = 60               // failed looks in a row
)

// watch follows a batch to its end; the error says that it did not complete. A
// server that is away is waited for.
func (b *batches) watch(ctx context.Context, w io.Writer, id string) error {
	p := newProgress(w)
	defer p.close()
	for failures := 0; ; {
		batch, cost, err := b.get(ctx, id)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the batch goes on: llmguard batch status --watch %s", top.Printable(id))
		case err != nil:
			failures++
			if failures == watchTries {
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
			p.close()
			b.describe(w, batch, cost)
			return fmt.Errorf("the batch is %s", top.Printable(batch.Status))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

// progress shows how far a batch is: on a terminal in one line that is written
// anew, else in a line whenever the status changes, and now and then.
type progress struct {
	w      io.Writer
	width  func() int // of the terminal; nil: w is none
	began  time.Time
	first  int // requests done when it began
	begun  bool
	status string
	last   time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, began: time.Now()}
	f, ok := w.(*os.File)
	if ok && term.IsTerminal(f.Fd()) {
		p.width = func() int { return terminalWidth(f) }
	}
	return p
}

func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(f.Fd())
	if err != nil || width == 0 {
		return 80
	}
	return width
}

func (p *progress) show(b openai.Batch, c cost) {
	n := b.RequestCounts
	done := n.Completed + n.Failed
	if !p.begun {
		p.first, p.begun = done, true
	}
	if p.width == nil && b.Status == p.status && time.Since(p.last) < plainEvery {
		return
	}
	p.status, p.last = b.Status, time.Now()
	line := fmt.Sprintf("%s %d/%d, %d failed%s, $%s of at most $%s", top.Printable(b.Status), done, n.Total, n.Failed,
		p.pace(done, n.Total), top.Printable(c.Charged), top.Printable(c.Estimated))
	if p.width == nil {
		fmt.Fprintln(p.w, line)
		return
	}
	line = ansi.Truncate(line, p.width()-1, "") // a line that wraps could not be written anew
	fmt.Fprint(p.w, "\r"+ansi.EraseLineRight+line)
}

// pace says how fast requests end, and when the last one may.
func (p *progress) pace(done, total int) string {
	rate := float64(done-p.first) / time.Since(p.began).Seconds()
	if rate <= 0 || done >= total {
		return ""
	}
	left := budget.Lasting(float64(total-done) / rate)
	return fmt.Sprintf(", %.1f/s, %s to go", rate, budget.LastingText(left))
}

// close ends the line on a terminal, so that it stays.
func (p *progress) close() {
	if p.width != nil && p.begun {
		fmt.Fprintln(p.w)
		p.begun = false
	}
}
