package guard

import (
	"sync/atomic"
	"time"
)

// sending notes when the first byte of a request was written: connecting may take a while,
// and a request written after a refusal must not seem older than it.
type sending struct {
	fresh func() bool // Forwarding.Fresh
	at    atomic.Pointer[time.Time]
}

// begins is called right before the first byte is written.
func (s *sending) begins() bool {
	if s.fresh != nil && !s.fresh() {
		return false
	}
	now := time.Now()
	s.at.Store(&now)
	return true
}

// time returns when the request was written, once it has been answered.
func (s *sending) time() time.Time {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}
