package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

func batchAt(status string, completed, failed int) openai.Batch {
	counts := openai.BatchRequestCounts{Total: 10, Completed: completed, Failed: failed}
	return openai.Batch{Status: status, RequestCounts: counts}
}

// TestProgressInPipe: a pipe gets a line when the status changes, and not one for
// every look.
func TestProgressInPipe(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	for _, b := range []openai.Batch{
		batchAt("validating", 0, 0), batchAt("validating", 0, 0), batchAt("completed", 9, 1), batchAt("completed", 9, 1),
	} {
		p.show(b, cost{Charged: "0.50", Estimated: "2"})
	}
	p.close()
	want := "validating 0/10, 0 failed, $0.50 of at most $2\n" + "completed 10/10, 1 failed, $0.50 of at most $2\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestProgressOnTerminal: a terminal has one line, which every look writes anew,
// never wider than the terminal, and which stays at the end.
func TestProgressOnTerminal(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	p.width = func() int { return 30 }
	p.show(batchAt("in_progress", 1, 0), cost{Charged: "0.50", Estimated: "2"})
	p.show(batchAt("in_progress", 2, 0), cost{Charged: "0.50", Estimated: "2"})
	p.close()
	p.close()
	lines := strings.Split(out.String(), "\r\x1b[K")
	if len(lines) != 3 || lines[0] != "" || !strings.HasPrefix(lines[2], "in_progress 2/10, 0 failed") {
		t.Errorf("got %q, want one line written twice", lines)
	}
	last := lines[len(lines)-1]
	if !strings.HasSuffix(last, "\n") || strings.Count(out.String(), "\n") != 1 || len(last) > 30 {
		t.Errorf("got %q, want it to fit and to end once", last)
	}
}

// TestProgressPace: the pace counts what ended since the watch began.
func TestProgressPace(t *testing.T) {
	for _, c := range []struct {
		first, done int
		want        string
	}{
		{0, 0, ""},
		{0, 10, ""},
		{0, 5, ", 0.5/s, 10s to go"},
		{4, 5, ", 0.1/s, 50s to go"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &progress{began: time.Now(), first: c.first}
			time.Sleep(10 * time.Second)
			if got := p.pace(c.done, 10); got != c.want {
				t.Errorf("%d to %d: got %q, want %q", c.first, c.done, got, c.want)
			}
		})
	}
}
