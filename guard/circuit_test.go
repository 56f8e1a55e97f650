package guard

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// A store that failed three times in a row is tried only at intervals, separately for each
// org.
func TestCircuit(t *testing.T) {
	var log bytes.Buffer
	c := circuit{log: slog.New(slog.NewTextHandler(&log, nil)), tags: map[string]*outage{}}
	now := time.Unix(1e9, 0)
	a, b := &Org{Org: settings.Org{ID: "a", OnStoreFailure: Local}}, &Org{Org: settings.Org{ID: "b"}}
	gone := fmt.Errorf("%w: no answer", budget.ErrUnavailable)
	wants := func(org *Org, ask, open bool) {
		t.Helper()
		if got := c.ask(org.ID, now); got != ask {
			t.Errorf("asked %v, want %v", got, ask)
		}
		if got := c.open(org.ID); got != open {
			t.Errorf("open %v, want %v", got, open)
		}
	}
	for _, err := range []error{gone, gone, &budget.ExceededError{}, gone, gone} { // a refusal is an answer
		c.told(a, []string{a.ID}, err, now)
		wants(a, true, false)
	}
	for range 3 {
		c.told(a, []string{a.ID}, gone, now)
	}
	wants(a, false, true)
	wants(b, true, false)
	now = now.Add(probeEvery)
	wants(a, true, true) // one
	wants(a, false, true)
	c.told(a, []string{a.ID}, gone, now)
	now = now.Add(probeEvery)
	wants(a, true, true)
	if n := c.away(); len(n) != 1 || n[Local] != 1 {
		t.Errorf("away for %v orgs", n)
	}
	c.told(a, []string{a.ID}, errors.New("anything it said"), now)
	wants(a, true, false)
	if n := c.away(); len(n) != 0 {
		t.Errorf("away for %v orgs", n)
	}
	if n := strings.Count(log.String(), "msg="); n != 2 || !strings.Contains(log.String(), "on_store_failure=local") {
		t.Errorf("logged %s", &log)
	}
}
