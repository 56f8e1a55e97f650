package proxy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// asJob submits a job with headers and returns its record and the answer.
func (r *rig) asJob(body string, headers ...string) (*queue.Job, answer) {
	r.t.Helper()
	a := r.chat(body, append(headers, "Prefer", "respond-async")...)
	var v jobView
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 202 {
		r.t.Fatalf("got status %d, %s; want 202 and a job", a.status, a.body)
	}
	j, err := r.queue.Job(r.t.Context(), "acme", v.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	if v.Priority != j.Priority.String() {
		r.t.Errorf("the job shows priority %q, want %s", v.Priority, j.Priority)
	}
	return j, a
}

// TestPriorityOfJobs: a job has the priority that its request chose, as far as it is allowed.
func TestPriorityOfJobs(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	for _, c := range []struct {
		rules  guard.Priorities
		body   string
		chosen string
		want   quota.Priority
		shown  string
	}{
		{guard.Priorities{Most: quota.High}, "", "high", quota.High, "high"},
		{guard.Priorities{Most: quota.High}, "", "low", quota.Low, "low"},
		{guard.Priorities{Most: quota.High}, "", "", quota.Normal, ""},
		{guard.Priorities{}, "", "high", quota.Normal, "normal"}, // lowered to what is allowed
		{guard.Priorities{Most: quota.High, Users: map[string]quota.Priority{"alice": quota.High}}, "", "", quota.High, "high"},
		{guard.Priorities{}, `,"service_tier":"flex"`, "", quota.Low, "low"},
	} {
		r.org.Priorities = c.rules
		var headers []string
		if c.chosen != "" {
			headers = []string{"Llmguard-Priority", c.chosen}
		}
		j, a := r.asJob(prompt("hi", `"max_tokens":5`+c.body), headers...)
		if j.Priority != c.want || a.header.Get("X-Llmguard-Priority") != c.shown || j.ByDeadline {
			t.Errorf("%+v: got priority %s, header %q, by deadline %t; want %s, %q, false", c, j.Priority,
				a.header.Get("X-Llmguard-Priority"), j.ByDeadline, c.want, c.shown)
		}
	}
}

// TestDeadlineOfJobs: a job waits until the deadline of its request.
func TestDeadlineOfJobs(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	for text, want := range map[string]time.Time{
		"30m": time.Now().Add(30 * time.Minute), at.Format(time.RFC3339): at,
		"900d": time.Now().Add(24 * time.Hour), // the pool's max_age
	} {
		j, a := r.asJob(prompt("hi", `"max_tokens":5`), "Llmguard-Deadline", text)
		if off := j.Deadline.Sub(want).Abs(); !j.ByDeadline || off > 30*time.Second {
			t.Errorf("%s: got deadline %s (served by it: %t), want %s", text, j.Deadline, j.ByDeadline, want)
		}
		if !strings.Contains(a.body, `"deadline":`) {
			t.Errorf("%s: got %s, want the deadline in it", text, a.body)
		}
	}
}

// TestWrongPriorities: wrong headers get 400 and what is allowed.
func TestWrongPriorities(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	for _, c := range [][4]string{
		{"Llmguard-Priority", "urgent", "invalid_priority", `must be high, normal or low, not \"urgent\"`},
		{"Llmguard-Deadline", "soon", "invalid_deadline", "such as 30s, 5m or 1h"},
		{"Llmguard-Deadline", "30", "invalid_deadline", "such as 30s, 5m or 1h"},
		{"Llmguard-Deadline", "0s", "invalid_deadline", "must be in the future"},
		{"Llmguard-Deadline", "2001-01-31T18:00:00Z", "invalid_deadline", "must be in the future"},
	} {
		a := r.chat(prompt("hi", `"max_tokens":5`), c[0], c[1])
		if a.fails(t, 400, c[2]); !strings.Contains(a.body, c[3]) {
			t.Errorf("%s: %q: got %s, want %q in it", c[0], c[1], a.body, c[3])
		}
	}
}

// TestDeadlineOfConnectedCallers: a call that has not started by its deadline ends as expired.
func TestDeadlineOfConnectedCallers(t *testing.T) {
	r := newRig(t, single, nil, window(roomy, time.Hour))
	release := r.occupy()
	defer release()
	a := r.chat(prompt("hi", `"max_tokens":5`), "Llmguard-Deadline", "2s")
	a.fails(t, 504, "expired")
	if a.header.Get("X-Should-Retry") != "false" || !strings.Contains(a.body, "deadline") {
		t.Errorf("got %v, %s; want no retry, and the deadline in the message", a.header, a.body)
	}
	m := r.records(1)[0]
	id, _ := m["job"].(string)
	j, err := r.queue.Job(t.Context(), "acme", id)
	if err != nil || j.State != queue.Expired || j.Error.Message != queue.DeadlinePassed().Message {
		t.Errorf("got job %+v, %v; want one that expired by its deadline", j, err)
	}
}

// TestLiveCallYields: a call of low priority waits in the queue while jobs wait for quota.
func TestLiveCallYields(t *testing.T) {
	r := newRig(t, queue.Pool{RPM: 600}, nil, window(roomy, time.Hour))
	key := quota.Key("main", "quota")
	r.chat(prompt("hi", `"max_tokens":5`)) // creates the state of the quota
	waiting := time.Now().Add(time.Minute).UnixMicro()
	if err := r.rdb.HSet(t.Context(), key, "bk", waiting, "bs", 200, "bt", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.worker(nil)
	low := r.chat(prompt("hi", `"max_tokens":5`), "Llmguard-Priority", "low")
	if low.status != 200 || low.header.Get("X-Llmguard-Job-Id") == "" {
		t.Errorf("low: got status %d, job %q; want an answer from the queue", low.status, low.header.Get("X-Llmguard-Job-Id"))
	}
}
