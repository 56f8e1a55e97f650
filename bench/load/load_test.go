package load

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestBodies(t *testing.T) {
	type body struct {
		Model    string
		Stream   bool
		Messages []struct{ Role, Content string }
	}
	f := func(p Prompt, wantMessages, wantSame int) {
		t.Helper()
		b := newBodies(p, 7)
		var pair [2]body
		for i := range pair {
			if err := json.Unmarshal(b.next(), &pair[i]); err != nil {
				t.Fatal(err)
			}
		}
		same, size := 0, 0
		for i, m := range pair[0].Messages {
			size += len(m.Content)
			if m.Content == pair[1].Messages[i].Content {
				same++
			}
		}
		if len(pair[0].Messages) != wantMessages || same != wantSame || size != p.Size || pair[0].Stream != p.Stream {
			t.Errorf("%v: %d messages, %d the same, %d bytes", p, len(pair[0].Messages), same, size)
		}
		if pair[0].Messages[wantMessages-1].Role != "user" {
			t.Errorf("%v: last message by %q", p, pair[0].Messages[wantMessages-1].Role)
		}
	}
	f(Prompt{Size: 300}, 1, 0)
	f(Prompt{Size: 8192, Stream: true}, 4, 0)
	f(Prompt{Size: 8192, Repeat: true}, 5, 4)
	f(Prompt{Size: 200_000, Repeat: true}, 99, 98)
}

func TestRun(t *testing.T) {
	var seen, marks atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1)%5 == 0 {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		_, _ = io.Copy(w, strings.NewReader(r.Header.Get("Authorization")))
	}))
	defer srv.Close()
	for _, rate := range []float64{0, 200} {
		marks.Store(0)
		res, err := Run(t.Context(), Plan{
			Addr: strings.TrimPrefix(srv.URL, "http://"), Prompt: Prompt{Size: 300}, Connections: 4,
			Rate: rate, Duration: 300 * time.Millisecond, Mark: func() { marks.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Calls == 0 || res.Errors == 0 || res.Calls < 2*res.Errors || res.FirstErr == nil || marks.Load() != 2 {
			t.Errorf("rate %v: %+v, %d marks", rate, res, marks.Load())
		}
		if rate > 0 && res.Calls+res.Errors > 200 {
			t.Errorf("rate %v: %d calls in 0.3 s", rate, res.Calls+res.Errors)
		}
		if res.Quantile(0.5) > res.Quantile(1) || res.Quantile(0) == 0 {
			t.Errorf("quantiles %v %v", res.Quantile(0.5), res.Quantile(1))
		}
	}
}
