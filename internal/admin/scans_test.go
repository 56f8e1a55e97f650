package admin

import (
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// HoldScans takes the turns of all requests that read the ledger, and returns a function that gives
// them back.
func (s *Server) HoldScans(t *testing.T) (giveBack func()) {
	for range cap(s.usage.scans) {
		s.usage.scans <- struct{}{}
	}
	return func() {
		for range cap(s.usage.scans) {
			redistest.Came(t, s.usage.scans)
		}
	}
}
