package guard

import (
	"io"
	"net/http"
	"time"
)

// Latency says what a call waited for. The rest of its time was spent in this process.
type Latency struct {
	// Redis is the time of decisions in Redis, including turns for them in this process.
	Redis time.Duration
	// Provider is the time from sending the request to the last byte of the answer, without
	// Redis and Caller. It is 0 if no request was sent by Forward.
	Provider time.Duration
	// Caller is the time until the caller's connection took what was written to it.
	Caller time.Duration
}

// stopwatch measures the Latency of a call. It is used by the call's goroutine only.
type stopwatch struct {
	Latency
	mark time.Time     // up to here the provider's time is counted
	paid time.Duration // others' time at mark
}

// redis counts the time since a decision in Redis began.
func (s *stopwatch) redis(began time.Time) { s.Redis += time.Since(began) }

// sends starts the provider's time.
func (s *stopwatch) sends(now time.Time) { s.mark, s.paid = now, s.Redis+s.Caller }

// arrives counts the time since the last mark as the provider's, without that of others.
func (s *stopwatch) arrives() {
	now, others := time.Now(), s.Redis+s.Caller
	s.Provider += now.Sub(s.mark) - (others - s.paid)
	s.mark, s.paid = now, others
}

// timedBody is the body of an answer whose arrival is measured.
type timedBody struct {
	io.ReadCloser
	watch *stopwatch
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watch.arrives()
	return n, err
}

// timedWriter is the way to a caller, whose time is measured.
type timedWriter struct {
	http.ResponseWriter
	watch *stopwatch
}

func (w *timedWriter) Write(p []byte) (int, error) {
	began := time.Now()
	n, err := w.ResponseWriter.Write(p)
	w.watch.Caller += time.Since(began)
	return n, err
}

// FlushError is called by http.ResponseController.
func (w *timedWriter) FlushError() error {
	began := time.Now()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.watch.Caller += time.Since(began)
	return err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Latency returns what the call has waited for until now.
func (c *Call) Latency() Latency { return c.watch.Latency }
