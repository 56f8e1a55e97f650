package listen

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// drainTime is how long an unread body has to arrive after the response, so that an early
// response does not cost an honest caller the connection.
const drainTime = time.Second

// Bodies limits the time in which the body of a request must arrive. A handler that needs
// more time sets its own read deadline. Without the limit, a body that is announced but never
// sent would hold its connection forever, even after the response, because net/http reads what
// the handler has left.
func Bodies(next http.Handler, wait time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(wait)) // test recorders do not support it
		b := &body{ReadCloser: r.Body, control: control}
		r.Body = b
		next.ServeHTTP(w, r)
		if !b.ended {
			_ = control.SetReadDeadline(time.Now().Add(drainTime))
		}
	})
}

// body tracks whether it was read to its end. A deadline that remained set after that would
// abort the request, because net/http then reads ahead to detect a disconnect.
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
