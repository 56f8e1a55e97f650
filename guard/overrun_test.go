package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// firstWrite calls at when the caller gets the first byte.
type firstWrite struct {
	http.ResponseWriter
	at func()
}

func (w firstWrite) WriteHeader(status int) {
	w.at()
	w.ResponseWriter.WriteHeader(status)
}

// TestAnOverrunIsChargedFirst: a plain answer that costs more than its hold is in the ledger before the caller gets it,
// so that the caller's next call finds the debt.
func TestAnOverrunIsChargedFirst(t *testing.T) {
	r := newRig(t, roomy()...)
	c, found := r.begin(r.plan(prompt("gpt-4o", "[fake: output=40 cached=-1 model=o1]", `"max_tokens":100`))), 0
	w := firstWrite{httptest.NewRecorder(), func() { found = len(r.entries()) }}
	if err := c.Forward(t.Context(), w, Forwarding{Header: http.Header{}}); err != nil {
		t.Fatal(err)
	}
	c.End(t.Context())
	r.settle()
	if list := r.entries(); found != 1 || len(list) != 1 || list[0].Overrun <= 0 {
		t.Errorf("%d entries at the first byte, then %+v; want one overrun at both times", found, list)
	}
}
