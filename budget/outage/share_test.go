package outage

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSpanNeverPasses: no span ever contains more than Used allowed, whatever is taken, given back
// and waited for.
func TestSpanNeverPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const amount = 100
		type taken struct {
			at ShareTime
			n  int64
		}
		span := time.Duration(rapid.Int64Range(60, 5000).Draw(t, "span"))
		var s Share
		var log []taken
		var at ShareTime
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at += time.Duration(rapid.Int64Range(0, int64(span)).Draw(t, "pause"))
			n := rapid.Int64Range(1, 60).Draw(t, "n")
			if s.Used(at, span)+n > amount {
				wait := s.Frees(at, span)
				if wait <= 0 {
					t.Fatalf("full, and nothing frees it")
				}
				at += wait
				continue
			}
			slot := s.Take(at, span, n)
			if back := rapid.Int64Range(0, n).Draw(t, "back"); rapid.Bool().Draw(t, "gives") {
				s.Give(slot, back)
				n -= back
			}
			log = append(log, taken{at, n})
			sum := int64(0)
			for _, e := range log {
				if at-e.at < span {
					sum += e.n
				}
			}
			if sum > amount || s.Used(at, span) < sum {
				t.Fatalf("%d within a span, %d counted", sum, s.Used(at, span))
			}
		}
		if n := s.Used(at+2*span, span); n != 0 || s.Frees(at+2*span, span) != 0 {
			t.Fatalf("%d never leaves", n)
		}
		s.Give(0, 5)
		if s.Used(at+2*span, span) != 0 {
			t.Fatal("given back after it had left")
		}
	})
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		amount  int64
		percent int
		want    int64
	}{{1000, 10, 100}, {999, 10, 99}, {9, 10, 0}, {1<<52 - 1, 100, 1<<52 - 1}, {math.MaxInt64, 50, math.MaxInt64 / 2}, {0, 10, 0}} {
		if got := ShareOf(c.amount, c.percent); got != c.want {
			t.Errorf("%d%% of %d = %d, want %d", c.percent, c.amount, got, c.want)
		}
	}
}
