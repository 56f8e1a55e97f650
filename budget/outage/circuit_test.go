package outage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A store that failed three times in a row is tried only at intervals, separately for each
// org.
func TestCircuit(t *testing.T) {
	var log bytes.Buffer
	c := NewCircuit(slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Unix(1e9, 0)
	const a, b, local = "a", "b", "local"
	gone := fmt.Errorf("%w: no answer", ErrUnavailable)
	wants := func(org string, ask, open bool) {
		t.Helper()
		if got := c.Ask(org, now); got != ask {
			t.Errorf("asked %v, want %v", got, ask)
		}
		if got := c.Open(org); got != open {
			t.Errorf("open %v, want %v", got, open)
		}
	}
	for _, err := range []error{gone, gone, errors.New("over the limit"), gone, gone} { // a refusal is an answer
		c.Told(a, local, []string{a}, err, now)
		wants(a, true, false)
	}
	for range 3 {
		c.Told(a, local, []string{a}, gone, now)
	}
	wants(a, false, true)
	wants(b, true, false)
	now = now.Add(probeEvery)
	wants(a, true, true) // one
	wants(a, false, true)
	c.Told(a, local, []string{a}, gone, now)
	now = now.Add(probeEvery)
	wants(a, true, true)
	if n := c.Away(); len(n) != 1 || n[local] != 1 {
		t.Errorf("away for %v orgs", n)
	}
	c.Told(a, local, []string{a}, errors.New("anything it said"), now)
	wants(a, true, false)
	if n := c.Away(); len(n) != 0 {
		t.Errorf("away for %v orgs", n)
	}
	if n := strings.Count(log.String(), "msg="); n != 2 || !strings.Contains(log.String(), "on_store_failure=local") {
		t.Errorf("logged %s", &log)
	}
}
