package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// stub counts its responses, refuses every fifth call and ends the run after fifty.
type stub struct {
	seen, good atomic.Int64
	end        func()
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := s.seen.Add(1)
	if n >= 50 {
		s.end()
	}
	if n%5 == 0 {
		http.Error(w, "no", http.StatusTeapot)
		return
	}
	s.good.Add(1)
	_, _ = io.WriteString(w, r.Header.Get("Authorization"))
}

// TestRun: every successful call is counted once, and the others are errors, in closed and open
// loops.
func TestRun(t *testing.T) {
	for _, rate := range []float64{0, 5000} {
		t.Run(fmt.Sprintf("rate %v", rate), func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			target := &stub{end: end}
			srv := httptest.NewServer(target)
			defer srv.Close()
			var marks atomic.Int64
			res, err := Run(ctx, Plan{
				Addr: strings.TrimPrefix(srv.URL, "http://"), Prompt: Prompt{Size: 300}, Connections: 4,
				Rate: rate, Duration: time.Minute, Mark: func() { marks.Add(1) },
			})
			if err != nil {
				t.Fatal(err)
			}
			bad := target.seen.Load() - target.good.Load()
			if res.Calls != int(target.good.Load()) || res.Errors < int(bad) || res.FirstErr == nil {
				t.Errorf("got %d calls, %d errors, the first %v; want %d calls and at least %d errors",
					res.Calls, res.Errors, res.FirstErr, target.good.Load(), bad)
			}
			if len(res.Latency) != res.Calls || !slices.IsSorted(res.Latency) {
				t.Errorf("got latencies %v, want %d in order", res.Latency, res.Calls)
			}
			if got := marks.Load(); got != 2 {
				t.Errorf("got %d marks, want 2", got)
			}
		})
	}
}

// TestArrivals: an open loop plans the number of calls given by its rate, and counts dropped
// ones only during the measured period.
func TestArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		arrivals := make(chan time.Time, 100)
		p := Plan{Rate: 100, Seed: 1}
		dropped := arrive(ctx, p, time.Now().Add(10*time.Second), arrivals)
		if got := len(arrivals); got != 100 {
			t.Errorf("%d arrivals wait, want the 100 that there is room for", got)
		}
		if dropped < 900 || dropped > 1100 { // with a fixed seed
			t.Errorf("%d arrivals were dropped in 10 s, want about 1000", dropped)
		}
	})
}
