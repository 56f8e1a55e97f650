package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// headers counts the headers written to it.
type headers struct {
	http.ResponseWriter
	written int
}

func (h *headers) WriteHeader(status int) {
	h.written++
	h.ResponseWriter.WriteHeader(status)
}

// TestHeaderIsWrittenOnceAfterTheCallerLeft: an answer in several pieces has one header, with and without its caller.
func TestHeaderIsWrittenOnceAfterTheCallerLeft(t *testing.T) {
	for _, left := range []bool{false, true} {
		ctx, leave := context.WithCancel(t.Context())
		if left {
			leave()
		}
		w := &headers{ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		x := &request{
			ResponseWriter: w, server: &Server{opts: Options{Write: time.Second}}, control: *http.NewResponseController(w), request: r,
		}
		for range 3 {
			if _, err := x.Write([]byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		if w.written != 1 {
			t.Errorf("caller left %t: got %d headers, want 1", left, w.written)
		}
		if seen := x.status != 0; seen == left {
			t.Errorf("caller left %t: got status %d recorded", left, x.status)
		}
		leave()
	}
}
