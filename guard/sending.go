package guard

import (
	"sync/atomic"
	"time"
)

// sending notes when the first byte of a request was written: connecting may take a while,
// and a request written after a refusal must not seem older than it.
type sending struct {
	permit func() error // Forwarding.Permit
	at     atomic.Pointer[time.Time]
}

// begins is called right before the first byte is written.
func (s *sending) begins() error {
	if s.permit != nil {
		if err := s.permit(); err != nil {
			return err
		}
	}
	now := time.Now()
	s.at.Store(&now)
	return nil
}

// time returns when the request was written, once it has been answered.
func (s *sending) time() time.Time {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}
