package console_test

import (
	"encoding/json"
	"testing"

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
