package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/llmguard/llmguard/wire"
)

// form serves an endpoint whose requests carry files. The body goes to a file
// without a name while it is read, and from there to the provider when the call
// is held and has quota: whoever uploads slowly holds neither, and a process
// needs the same memory for every size. Such a call does not wait in the queue,
// which would keep its files in Redis.
func (s *Server) form(ep wire.Endpoint) func(*exchange, *http.Request, string) error {
	return func(x *exchange, r *http.Request, _ string) error {
		wish, err := parseWish(r.Header)
		if err != nil {
			return err
		}
		if wish.async {
			return wire.BadRequest("Prefer", "form_not_queued", "A call with files is not queued: leave Prefer: respond-async out")
		}
		kept := &spool{}
		defer kept.close()
		req, err := s.readForm(x, r, ep, kept)
		if err != nil {
			return err
		}
		plan, err := s.guard.Prepare(x.caller, req)
		if err != nil {
			return err
		}
		x.plan = plan
		return s.once(x, r, plan, wish)
	}
}

// readForm reads a form within the limits of size and time.
func (s *Server) readForm(x *exchange, r *http.Request, ep wire.Endpoint, kept *spool) (*wire.Request, error) {
	body, err := s.boundedBody(x, r)
	if err != nil {
		return nil, err
	}
	req, err := wire.ScanForm(ep, x.deployment, r.Header.Get("Content-Type"), io.TeeReader(body, kept))
	var public *wire.Error
	switch {
	case kept.err != nil:
		return nil, wire.ServiceUnavailable("The files of this call cannot be kept at the moment", 5*time.Second, kept.err)
	case errors.As(err, &public):
		return nil, err
	case err != nil:
		return nil, s.unreadable(x, err)
	}
	_ = x.control.SetReadDeadline(time.Time{})
	req.Form.Source = kept
	return req, nil
}

// spoolMemory is how much of a body is kept in memory.
const spoolMemory = 256 << 10

// spool keeps a body: a small one in memory, the rest of a large one in a file
// that has no name any more. It belongs to one goroutine until it is written,
// and is read by many afterwards.
type spool struct {
	memory []byte
	file   *os.File
	size   int64 // of the file
	err    error // what went wrong with the file
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	n := min(len(p), spoolMemory-len(s.memory))
	s.memory = append(s.memory, p[:n]...)
	if n == len(p) {
		return n, nil
	}
	if s.file == nil {
		if s.file, s.err = unnamed(); s.err != nil {
			return n, s.err
		}
	}
	m, err := s.file.Write(p[n:])
	s.size, s.err = s.size+int64(m), err
	return n + m, err
}

// unnamed makes a file that is gone when it is closed, or when the process dies.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "llmguard-*")
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), f.Close())
	}
	return f, nil
}

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(p []byte, at int64) (int, error) {
	total := int64(len(s.memory)) + s.size
	if at >= total {
		return 0, io.EOF
	}
	n := 0
	if at < int64(len(s.memory)) {
		n = copy(p, s.memory[at:])
	}
	if n == len(p) {
		return n, nil
	}
	if s.file == nil {
		return n, io.EOF
	}
	m, err := s.file.ReadAt(p[n:], at+int64(n)-int64(len(s.memory)))
	return n + m, err
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
