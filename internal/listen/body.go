package listen

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// drainTime is what a body that was not asked for gets to arrive in, so that an
// answer before it does not cost an honest caller the connection.
const drainTime = time.Second

// Bodies gives the body of a request `wait` until its first byte is asked for, or to
// arrive whole; a handler that takes longer sets a read deadline of its own. Without it
// a body that is announced and never sent holds its connection for ever, also after
// the answer: net/http reads what the handler has left.
func Bodies(next http.Handler, wait time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(wait)) // not supported by test recorders
		b := &body{ReadCloser: r.Body, control: control}
		r.Body = b
		next.ServeHTTP(w, r)
		if !b.ended {
			_ = control.SetReadDeadline(time.Now().Add(drainTime))
		}
	})
}

// body knows whether it was read to its end. A deadline that outlived it would end the
// request, because net/http then reads ahead to notice a caller who leaves.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	ended   bool
}

// Read reads from the request.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
