package console_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/queue"
)

// entry is an audit entry.
type entry struct {
	Actor, Action, Org, Target, Reason, IP string
	Before, After                          struct{ Status, ID string }
}

// audit returns the newest entry.
func (r *rig) audit() entry {
	r.t.Helper()
	var page struct{ Data []entry }
	r.must(json.Unmarshal([]byte(r.ask("GET", "/audit?limit=1", "")), &page))
	if len(page.Data) == 0 {
		r.t.Fatal("the audit is empty")
	}
	return page.Data[0]
}

// TestConsoleActionsAreOnRecord: actions on jobs and batches are audited with actor, address,
// and the state before and after.
func TestConsoleActionsAreOnRecord(t *testing.T) {
	s := newScene(t)
	b := s.signedIn(opsKey)
	if e := s.audit(); e.Action != "admin.sign_in" || e.Actor != "ops" || e.IP != "127.0.0.1" {
		t.Errorf("signing in: %+v", e)
	}
	for _, x := range []struct {
		form, action, target, before, after string
	}{
		{"cancel-job", "job.cancel", s.job.ID, "queued", "cancelled"},
		{"replay-job", "job.replay", s.dead.ID, "failed", "queued"},
		{"cancel-batch", "batch.cancel", s.batch.ID, "validating", "cancelling"},
	} {
		b.act(x.form, true, append(s.forms()[x.form], "reason", "runaway")...)
		e := s.audit()
		if e.Actor != "ops" || e.Action != x.action || e.Org != "acme" || e.Target != x.target || e.Reason != "runaway" || e.IP != "127.0.0.1" ||
			e.Before.Status != x.before || e.After.Status != x.after {
			t.Errorf("%s: %+v", x.form, e)
		}
	}
	b.post("/console/logout", url.Values{"token": {b.token()}})
	if e := s.audit(); e.Action != "admin.sign_out" || e.Actor != "ops" {
		t.Errorf("signing out: %+v", e)
	}
	s.browser().post("/console/login", url.Values{"key": {keys.New(keys.Admin)}})
	if e := s.audit(); e.Action != "admin.refused" || e.IP != "127.0.0.1" {
		t.Errorf("signing in with a wrong key: %+v", e)
	}
}

// TestDisablingAKeyCancelsItsJobs: disabling a key can cancel its jobs, but not those of other
// keys, and each cancellation is audited.
func TestDisablingAKeyCancelsItsJobs(t *testing.T) {
	s := newScene(t)
	other := s.put("acme", "alice", "gpt-4o", func(j *queue.Job) { j.Key = "k2" })
	b := s.signedIn(opsKey)
	b.act("disable-key", true, "org", "acme", "key", "k1", "cancel-jobs", "cancel", "reason", "leaked")
	for id, want := range map[string]queue.State{s.job.ID: queue.Cancelled, other.ID: queue.Queued, s.dead.ID: queue.Failed} {
		j, err := s.queue.Job(t.Context(), "acme", id)
		s.must(err)
		if j.State != want {
			t.Errorf("job %s is %s, want %s", id, j.State, want)
		}
	}
	if made, err := s.batches.Batch(t.Context(), "acme", "alice", s.batch.ID); err != nil || made.CancelAsked.IsZero() {
		t.Errorf("the key's batch: %+v, %v", made, err)
	}
	if e := s.audit(); e.Action != "job.cancel" || e.Target != s.job.ID || e.Reason != "leaked" {
		t.Errorf("got the entry %+v", e)
	}
}
