package webhook

import (
	"errors"
	"net/http"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestATargetIsSwitchedOnAgain: operators see, by its host only, which target answered 410 and
// is disabled, and enable it. The next event is delivered without a configuration change.
func TestATargetIsSwitchedOnAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
		}
	})
	sender := s.sender(to(t, r, "job.*"), r)
	run(t, sender)
	ctx := t.Context()
	only := func() Target {
		t.Helper()
		list, err := sender.Targets(ctx, "acme")
		if err != nil || len(list) != 1 || list[0].Host == "" || list[0].Events[0] != "job.*" || list[0].Org != "acme" {
			t.Fatalf("got %+v (%v), want the one target", list, err)
		}
		return list[0]
	}
	if got := only(); got.Off != nil {
		t.Errorf("at first: off since %s", got.Off)
	}
	if err := sender.SwitchOn(ctx, "acme", only().ID); !errors.Is(err, ErrNotOff) {
		t.Errorf("switched on while it was on: %v", err)
	}
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "off", func() bool { return only().Off != nil })
	if err := sender.SwitchOn(ctx, "acme", only().ID); err != nil || only().Off != nil {
		t.Errorf("switched on: %v, %+v", err, only())
	}
	send(t, sender, NewEvent("job.failed", "job_2", happened))
	redistest.Eventually(t, "the next event", func() bool { return len(r.got()) == 2 })
	if got := sender.Orgs(); len(got) != 1 || got[0] != "acme" {
		t.Errorf("orgs with targets: got %v, want acme", got)
	}
}
