// Package share counts what one process lets through by itself, while nobody
// can be asked: at most so much in any span of time. It knows nothing of other
// processes; each has its own share.
package share

import "time"

// slots divide a span; one more is counted, so that a Span never lets too much
// through and frees what was taken up to a sixtieth of the span late.
const slots = 60

// Span is a sum over the last stretch of time. The zero value is empty. It is
// not safe for concurrent use.
type Span struct {
	sums map[int64]int64 // by slot
	sum  int64
}

// At is a moment, as time since some start; it must not run backwards.
type At = time.Duration

func slotOf(at At, span time.Duration) int64 { return int64(at / width(span)) }

func width(span time.Duration) time.Duration { return max((span+slots-1)/slots, 1) }

// Used returns what was taken within the span before a moment. All calls on a
// Span name the same span.
func (s *Span) Used(at At, span time.Duration) int64 {
	first := slotOf(at, span) - slots
	for slot, n := range s.sums {
		if slot < first {
			s.sum -= n
			delete(s.sums, slot)
		}
	}
	return s.sum
}

// Take adds n, and returns the slot to give it back to.
func (s *Span) Take(at At, span time.Duration, n int64) (slot int64) {
	if s.sums == nil {
		s.sums = map[int64]int64{}
	}
	slot = slotOf(at, span)
	s.sums[slot] += n
	s.sum += n
	return slot
}

// Give takes n back out of a slot, unless that has left the span.
func (s *Span) Give(slot, n int64) {
	if _, ok := s.sums[slot]; !ok {
		return
	}
	s.sums[slot] -= n
	s.sum -= n
}

// Frees returns how long it takes until something leaves the span; 0 when
// nothing is in it.
func (s *Span) Frees(at At, span time.Duration) time.Duration {
	if len(s.sums) == 0 {
		return 0
	}
	first := slotOf(at, span)
	for slot := range s.sums {
		first = min(first, slot)
	}
	return max(time.Duration(first+slots+1)*width(span)-at, 0)
}

// Of returns percent of an amount, rounded down.
func Of(amount int64, percent int) int64 {
	return amount/100*int64(percent) + amount%100*int64(percent)/100
}
