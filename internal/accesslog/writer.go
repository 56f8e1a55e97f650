package accesslog

import (
	"bufio"
	"io"
	"sync"
	"time"
)

const (
	buffered = 64 << 10
	delay    = 100 * time.Millisecond
)

// writer gathers the lines of a tenth of a second into one write: one line
// a call would otherwise be one system call a call. Lines of a process that is
// killed are lost for that long; the ledger does not depend on them.
type writer struct {
	mu    sync.Mutex
	buf   *bufio.Writer
	timer *time.Timer // running while something is buffered
	armed bool
}

func newWriter(w io.Writer) *writer {
	l := &writer{buf: bufio.NewWriterSize(w, buffered)}
	l.timer = time.AfterFunc(time.Hour, l.flush)
	l.timer.Stop()
	return l
}

// Write implements io.Writer; a line is never split between two writes unless
// it is larger than the buffer.
func (l *writer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.buf.Available() {
		_ = l.buf.Flush() // the same error comes from the write below
	}
	if !l.armed {
		l.armed = true
		l.timer.Reset(delay)
	}
	return l.buf.Write(p)
}

func (l *writer) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	_ = l.buf.Flush()
}
