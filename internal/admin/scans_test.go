package admin

// HoldScans takes the turns of all requests that read the ledger, and returns a function that gives
// them back.
func (s *Server) HoldScans() (giveBack func()) {
	for range cap(s.usage.scans) {
		s.usage.scans <- struct{}{}
	}
	return func() {
		for range cap(s.usage.scans) {
			<-s.usage.scans
		}
	}
}
