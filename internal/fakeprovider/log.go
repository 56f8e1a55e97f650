package fakeprovider

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes; a request in flight has none.
const (
	OK           Outcome = "ok"           // answered completely
	Rejected     Outcome = "rejected"     // rejected as invalid
	Unauthorized Outcome = "unauthorized" // wrong or missing key
	Limited      Outcome = "limited"      // over the quota
	Scripted     Outcome = "scripted"     // a scripted error status
	WasCut       Outcome = "cut"          // a scripted cut
	ClientGone   Outcome = "gone"         // the client disconnected first
)

// Usage is what one or more calls consumed, in tokens. Cached, CacheWrite and CacheWrite1h are
// disjoint parts of Prompt; Reasoning is part of Completion.
type Usage struct {
	Prompt, Completion, Cached, CacheWrite, Reasoning int64

	CacheWrite1h int64 // written to the cache for an hour, while CacheWrite is for the usual time
	Searches     int64 // web searches, not tokens
}

// Charge is what the provider bills at the prices of one model.
type Charge struct {
	Type  string // of the entry in "iterations"; "" without one
	Model string
	Usage
}

// Total returns the sum of prompt and completion.
func (u Usage) Total() int64 { return u.Prompt + u.Completion }

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Prompt: u.Prompt + v.Prompt, Completion: u.Completion + v.Completion,
		Cached: u.Cached + v.Cached, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning:    u.Reasoning + v.Reasoning,
		CacheWrite1h: u.CacheWrite1h + v.CacheWrite1h, Searches: u.Searches + v.Searches,
	}
}

// Record is one request as seen by the provider.
type Record struct {
	Seq         int64 // starts at 1, in order of arrival
	At          time.Time
	Method      string
	Path        string
	Query       string
	Header      http.Header // all request headers, to search for leaks
	BodySHA256  string      // hex
	BodyLen     int64
	Body        []byte // only with Options.KeepBodies
	Model       string
	AnswerModel string // model named in the response
	Tier        string // service_tier named in the response
	Speed, Geo  string // speed and inference_geo named in the response of the Messages API
	Stream      bool
	Requested   int64 // tokens counted against the quota
	Status      int   // 0 before the response begins, or if it never did
	RequestID   string
	Usage       Usage // consumed, whether reported or not
	// Others are further samplings of the same call, which are not in Usage.
	Others   []Charge
	Reported string // the last usage object sent, as JSON; "" for none
	End      time.Time
	Last     time.Time // just before the end of a complete response was sent; otherwise zero
	Outcome  Outcome
}

// Charges returns all that the provider bills for the call.
func (r *Record) Charges() []Charge {
	return append(slices.Clone(r.Others), Charge{Model: r.AnswerModel, Usage: r.Usage})
}

// last records that the end of the response is about to be sent.
func (r *Record) last() { r.Last = time.Now() }

// Totals are sums over all requests since New, including those dropped from the log.
type Totals struct {
	Requests, InFlight, PeakInFlight int64
	Outcomes                         map[Outcome]int64
	Usage                            Usage
}

// record is the bounded log, guarded by one mutex.
type record struct {
	mu     sync.Mutex
	ring   []*Record
	size   int
	seq    int64
	totals Totals
	idle   chan struct{} // closed when nothing is in flight
}

func newRecord(size int) *record {
	l := &record{size: size, idle: make(chan struct{})}
	l.totals.Outcomes = make(map[Outcome]int64)
	close(l.idle)
	return l
}

// begin adds a record; later changes must go through update.
func (l *record) begin(r *http.Request) *Record {
	rec := &Record{
		At: time.Now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Header: r.Header.Clone(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	rec.Seq = l.seq
	if len(l.ring) < l.size {
		l.ring = append(l.ring, rec)
	} else {
		l.ring[(rec.Seq-1)%int64(l.size)] = rec
	}
	if l.totals.InFlight == 0 {
		l.idle = make(chan struct{})
	}
	l.totals.Requests++
	l.totals.InFlight++
	l.totals.PeakInFlight = max(l.totals.PeakInFlight, l.totals.InFlight)
	return rec
}

// update changes a record under the lock.
func (l *record) update(rec *Record, change func(*Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(rec)
}

// end closes a record and adds it to the totals.
func (l *record) end(rec *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec.End = time.Now()
	t := &l.totals
	t.Outcomes[rec.Outcome]++
	if rec.Usage != (Usage{}) {
		t.Usage = t.Usage.Add(rec.Usage)
	}
	t.InFlight--
	if t.InFlight == 0 {
		close(l.idle)
	}
}

// Log returns copies of the newest Options.LogSize records, oldest first, including those in
// flight.
func (s *Server) Log() []Record {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Record, 0, len(l.ring))
	for i := range l.ring {
		out = append(out, *l.ring[(l.seq+int64(i))%int64(len(l.ring))])
	}
	return out
}

// Totals returns the current sums.
func (s *Server) Totals() Totals {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.totals
	t.Outcomes = maps.Clone(t.Outcomes)
	return t
}

// Quiet waits until no request is in flight, so that the log is complete.
func (s *Server) Quiet(ctx context.Context) error {
	s.log.mu.Lock()
	idle := s.log.idle
	s.log.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
