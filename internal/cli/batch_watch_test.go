package cli

import (
	"net/http"
	"net/http/httptest"
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

// TestProgressInPipe: a pipe gets a line when the status changes, not for every poll.
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

// TestProgressOnTerminal: a terminal has one line, rewritten on every poll, never wider than
// the terminal, and left visible at the end.
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

// TestProgressPace: the pace counts requests completed since the watch began.
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

// TestWatchEndsWhenRefused: a request that the server is too busy for is repeated, one that it rejects is not.
func TestWatchEndsWhenRefused(t *testing.T) {
	answers := []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusNotFound}
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := answers[min(requests, len(answers)-1)]
		requests++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"message":"No such batch","type":"invalid_request_error","code":"not_found"}}`))
	}))
	defer server.Close()
	f := batchFlags{url: server.URL + "/v1", key: "k"}
	b, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	err = b.watch(t.Context(), t.Output(), "batch_x")
	if err == nil || !strings.Contains(err.Error(), "No such batch") || requests != len(answers) {
		t.Errorf("got %v after %d requests, want the server's error after %d", err, requests, len(answers))
	}
}
