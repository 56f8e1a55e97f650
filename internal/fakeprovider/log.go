package fakeprovider

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"
)

// Outcome says how a request ended.
type Outcome string

// The outcomes; a request in flight has none.
const (
	OK           Outcome = "ok"           // answered to the end
	Rejected     Outcome = "rejected"     // refused as a bad request
	Unauthorized Outcome = "unauthorized" // wrong or missing key
	Limited      Outcome = "limited"      // over the quota
	Scripted     Outcome = "scripted"     // an error status that was asked for
	WasCut       Outcome = "cut"          // broken off as asked for
	ClientGone   Outcome = "gone"         // the client went away first
)

// Usage is what one or more calls consumed, in tokens. Cached and CacheWrite
// are within Prompt; Reasoning, Accepted and Rejected are within Completion.
type Usage struct {
	Prompt, Completion, Cached, CacheWrite, Reasoning, Accepted, Rejected int64
}

// Total is prompt and completion together.
func (u Usage) Total() int64 { return u.Prompt + u.Completion }

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Prompt: u.Prompt + v.Prompt, Completion: u.Completion + v.Completion,
		Cached: u.Cached + v.Cached, CacheWrite: u.CacheWrite + v.CacheWrite,
		Reasoning: u.Reasoning + v.Reasoning,
		Accepted:  u.Accepted + v.Accepted, Rejected: u.Rejected + v.Rejected,
	}
}

// Record is one request as the provider saw it.
type Record struct {
	Seq         int64 // from 1, in order of arrival
	At          time.Time
	Method      string
	Path        string
	Query       string
	Header      http.Header // all request headers, to be searched for leaks
	BodySHA256  string      // hex
	BodyLen     int64
	Body        []byte // only with Options.KeepBodies
	Model       string
	AnswerModel string // model named in the answer
	Tier        string // service_tier named in the answer
	Stream      bool
	Requested   int64 // tokens counted against the quota
	Status      int   // 0 until the answer begins, or when it never did
	RequestID   string
	Usage       Usage  // what was consumed, reported or not
	Reported    string // the last usage object sent, as JSON; "" for none
	Began, End  time.Time
	Last        time.Time // just before the end of a whole answer was sent; zero if none was
	Gone        time.Time // when the client went away; zero if it stayed
	Outcome     Outcome
}

// gone notes when the client went away, the first time it is noticed.
func (r *Record) gone() {
	if r.Gone.IsZero() {
		r.Gone = time.Now()
	}
}

// last notes that the end of the answer is about to be sent.
func (r *Record) last() { r.Last = time.Now() }

// Totals are sums over all requests since New, also those the log has dropped.
type Totals struct {
	Requests, InFlight, PeakInFlight int64
	Outcomes                         map[Outcome]int64
	Usage                            Usage
	ByModel                          map[string]Usage // by requested model
	// PeakRequests and PeakTokens are the most that was admitted within any
	// window of the quota (a minute by default), per quota: the highest of all.
	PeakRequests, PeakTokens int64
}

// record is the bounded log. One mutex guards all of it.
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
	l.totals.ByModel = make(map[string]Usage)
	close(l.idle)
	return l
}

// begin adds a record; it is changed afterwards only through update.
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
		t.ByModel[rec.Model] = t.ByModel[rec.Model].Add(rec.Usage)
	}
	t.InFlight--
	if t.InFlight == 0 {
		close(l.idle)
	}
}

// Log returns copies of the newest Options.LogSize records, oldest first,
// those in flight included.
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

// Totals returns the sums so far.
func (s *Server) Totals() Totals {
	l := s.log
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.totals
	t.Outcomes, t.ByModel = maps.Clone(t.Outcomes), maps.Clone(t.ByModel)
	t.PeakRequests, t.PeakTokens = s.quotas.peaks()
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
