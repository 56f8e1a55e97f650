package budget

import "time"

// shareSlots divide a span; one more is counted, so that a Share never lets too much
// through and frees what was taken up to a sixtieth of the span late.
const shareSlots = 60

// Share is what one process has let through by itself in the last stretch of time, while
// nobody could be asked. It knows nothing of other processes; each has its own. The zero
// value is empty. It is not safe for concurrent use.
type Share struct {
	sums map[int64]int64 // by slot
	sum  int64
}

// ShareTime is a moment, as time since some start; it must not run backwards.
type ShareTime = time.Duration

func shareSlot(at ShareTime, span time.Duration) int64 { return int64(at / shareWidth(span)) }

func shareWidth(span time.Duration) time.Duration { return max((span+shareSlots-1)/shareSlots, 1) }

// Used returns what was taken within the span before a moment. All calls on a
// Share name the same span.
func (s *Share) Used(at ShareTime, span time.Duration) int64 {
	first := shareSlot(at, span) - shareSlots
	for slot, n := range s.sums {
		if slot < first {
			s.sum -= n
			delete(s.sums, slot)
		}
	}
	return s.sum
}

// Take adds n, and returns the slot to give it back to.
func (s *Share) Take(at ShareTime, span time.Duration, n int64) (slot int64) {
	if s.sums == nil {
		s.sums = map[int64]int64{}
	}
	slot = shareSlot(at, span)
	s.sums[slot] += n
	s.sum += n
	return slot
}

// Give takes n back out of a slot, unless that has left the span.
func (s *Share) Give(slot, n int64) {
	if _, ok := s.sums[slot]; !ok {
		return
	}
	s.sums[slot] -= n
	s.sum -= n
}

// Frees returns how long it takes until something leaves the span; 0 when
// nothing is in it.
func (s *Share) Frees(at ShareTime, span time.Duration) time.Duration {
	if len(s.sums) == 0 {
		return 0
	}
	first := shareSlot(at, span)
	for slot := range s.sums {
		first = min(first, slot)
	}
	return max(time.Duration(first+shareSlots+1)*shareWidth(span)-at, 0)
}

// ShareOf returns percent of an amount, rounded down.
func ShareOf(amount int64, percent int) int64 {
	return amount/100*int64(percent) + amount%100*int64(percent)/100
}
