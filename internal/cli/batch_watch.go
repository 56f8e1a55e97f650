package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

const (
	watchEvery = 500 * time.Millisecond
	plainEvery = 10 * time.Second // between lines in a pipe when only the counts change
	watchTries = 60               // consecutive failures before giving up
)

// watch polls a batch until it ends, and returns an error unless it completed. It retries while
// the server is unreachable or busy.
func (b *batches) watch(ctx context.Context, w io.Writer, id string) error {
	p := newProgress(w)
	defer p.close()
	for failures := 0; ; {
		batch, cost, err := b.get(ctx, id)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the batch is still running; follow it with: llmguard batch status --watch %s", escape.Text(id))
		case err != nil:
			failures++
			if failures == watchTries || isRefusal(err) {
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
			return fmt.Errorf("the batch is %s", escape.Text(batch.Status))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

// isRefusal reports whether the server has rejected a request, so that repeating it does not help: a wrong key, an
// unknown batch.
func isRefusal(err error) bool {
	answer, ok := errors.AsType[*openai.APIError](err)
	return ok && answer.HTTPStatusCode >= 400 && answer.HTTPStatusCode < 500 &&
		answer.HTTPStatusCode != http.StatusTooManyRequests && answer.HTTPStatusCode != http.StatusRequestTimeout
}

// progress prints the progress of a batch. On a terminal it rewrites one line; otherwise it
// prints a line when the status changes, and every plainEvery.
type progress struct {
	w      io.Writer
	width  func() int // terminal width; nil if w is not a terminal
	began  time.Time
	first  int // requests already done at the start
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
	line := fmt.Sprintf("%s %d/%d, %d failed%s, $%s of at most $%s", escape.Text(b.Status), done, n.Total, n.Failed,
		p.pace(done, n.Total), escape.Text(c.Charged), escape.Text(c.Estimated))
	if p.width == nil {
		fmt.Fprintln(p.w, line)
		return
	}
	line = ansi.Truncate(line, p.width()-1, "") // a wrapped line could not be rewritten
	fmt.Fprint(p.w, "\r"+ansi.EraseLineRight+line)
}

// pace returns the completion rate and the estimated time left.
func (p *progress) pace(done, total int) string {
	rate := float64(done-p.first) / time.Since(p.began).Seconds()
	if rate <= 0 || done >= total {
		return ""
	}
	left := budget.Lasting(float64(total-done) / rate)
	return fmt.Sprintf(", %.1f/s, %s to go", rate, figures.Lasting(left))
}

// close ends the line on a terminal, so that it stays visible.
func (p *progress) close() {
	if p.width != nil && p.begun {
		fmt.Fprintln(p.w)
		p.begun = false
	}
}
