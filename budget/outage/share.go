package outage

import "time"

// shareSlots is the number of slots per span. One more slot is counted, so that a Share never
// admits too much; it frees what was taken up to a sixtieth of the span late.
const shareSlots = 60

// Share counts what one process has admitted on its own in the last span while the store was
// unreachable. Each process has its own and does not know of the others. The zero value is empty.
// It is not safe for concurrent use.
type Share struct {
	sums map[int64]int64 // by slot
	sum  int64
}

// ShareTime is an instant as time since some start; it must not go backwards.
type ShareTime = time.Duration

func shareSlot(at ShareTime, span time.Duration) int64 { return int64(at / shareWidth(span)) }

func shareWidth(span time.Duration) time.Duration { return max((span+shareSlots-1)/shareSlots, 1) }

// Used returns what was taken within the span before an instant. All calls on a Share must use the
// same span.
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

// Take adds n and returns the slot to give it back to.
func (s *Share) Take(at ShareTime, span time.Duration, n int64) (slot int64) {
	if s.sums == nil {
		s.sums = map[int64]int64{}
	}
	slot = shareSlot(at, span)
	s.sums[slot] += n
	s.sum += n
	return slot
}

// Give returns n to a slot, unless the slot has left the span.
func (s *Share) Give(slot, n int64) {
	if _, ok := s.sums[slot]; !ok {
		return
	}
	s.sums[slot] -= n
	s.sum -= n
}

// Frees returns how long until something leaves the span; 0 if it is empty.
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
