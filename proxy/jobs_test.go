package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// submitted creates a job and returns it with the answer that shows it.
func (r *rig) submitted() (jobView, answer) {
	r.t.Helper()
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async")
	var v jobView
	err := json.Unmarshal([]byte(a.body), &v)
	if err != nil || a.status != 202 {
		r.t.Fatalf("got status %d, %s; want 202 and a job", a.status, a.body)
	}
	return v, a
}

// TestJobSubmitted: a caller that does not wait gets a job and its location.
func TestJobSubmitted(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(40_000_000, time.Hour))
	j, a := r.submitted()
	want := map[string]string{"Location": "/v1/jobs/" + j.ID, "Preference-Applied": "respond-async", "Vary": "Prefer"}
	for name, text := range want {
		if got := a.header.Get(name); got != text {
			t.Errorf("got %s %q, want %q", name, got, text)
		}
	}
	if j.Object != "job" || j.Status != queue.Queued || j.Model != "gpt-4o" || j.Endpoint != "/v1/chat/completions" {
		t.Errorf("got %+v, want a queued job of gpt-4o", j)
	}
	if j.Ahead == nil || j.Estimate == "" || j.Charged != nil || j.ResultURL != "" {
		t.Errorf("got %+v, want its place and estimate, and neither charge nor result", j)
	}
	if a := r.call("GET", "/v1/jobs/"+j.ID+"/result", ""); a.fails(t, 409, "not_finished") != "" && a.header.Get("Retry-After") == "" {
		t.Errorf("got headers %v, want Retry-After", a.header)
	}
	tooLarge := r.chat(prompt("hi", `"max_tokens":5000`), "Prefer", "respond-async") // it can never fit
	tooLarge.fails(t, 402, "insufficient_quota")
}

// TestJobSucceeds: a finished job shows what it cost, and its answer.
func TestJobSucceeds(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	j, _ := r.submitted()
	path := "/v1/jobs/" + j.ID
	r.worker(nil)
	var done jobView
	r.until("the job has ended", func() bool {
		err := json.Unmarshal([]byte(r.call("GET", path, "").body), &done)
		return err == nil && done.Status.Terminal()
	})
	if done.Status != queue.Succeeded || done.Charged == nil || done.HTTPStatus == nil {
		t.Fatalf("got %+v, want a job that succeeded and was charged", done)
	}
	if *done.Charged == "0.000000000" || *done.HTTPStatus != 200 {
		t.Errorf("got charge %s and status %d, want more than 0 and 200", *done.Charged, *done.HTTPStatus)
	}
	if done.ResultURL != path+"/result" || done.Finished == nil {
		t.Errorf("got result at %q, finished %v; want %q and a time", done.ResultURL, done.Finished, path+"/result")
	}
	a := r.call("GET", path+"/result", "")
	if a.status != 200 || !strings.Contains(a.body, `"choices"`) || a.header.Get(guard.HeaderCost) == "" {
		t.Errorf("the result: got status %d, %v, %s; want 200, its cost and choices", a.status, a.header, a.body)
	}
}

// TestForeignJobsAreHidden: neither another user of the org nor another org sees or changes a job.
func TestForeignJobsAreHidden(t *testing.T) {
	bob, eve := keys.New(keys.Live), keys.New(keys.Live)
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	d := r.proxy.opts.Directory.ByHash
	d[keys.Hash(keys.Pepper{}, bob)] = auth.Principal{Org: r.org, User: "bob", Key: "k2"}
	d[keys.Hash(keys.Pepper{}, eve)] = auth.Principal{Org: &guard.Org{Org: settings.Org{ID: "other"}}, User: "alice", Key: "k3"}
	j, _ := r.submitted()
	path := "/v1/jobs/" + j.ID
	for who, key := range map[string]string{"bob": bob, "eve": eve} {
		t.Run(who, func(t *testing.T) {
			auth := []string{"Authorization", "Bearer " + key}
			for _, try := range [][2]string{{"GET", path}, {"DELETE", path}, {"GET", path + "/result"}, {"POST", path + "/cancel"}} {
				r.call(try[0], try[1], "", auth...).fails(t, 404, "job_not_found")
			}
			if a := r.call("GET", "/v1/jobs", "", auth...); a.status != 200 || strings.Contains(a.body, "job_") {
				t.Errorf("the list: got status %d, %s; want 200 and no job", a.status, a.body)
			}
			r.call("GET", "/v1/jobs?after="+j.ID, "", auth...).fails(t, 400, "invalid_value")
		})
	}
}

// TestJobPages: jobs are listed newest first, page by page.
func TestJobPages(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	first, _ := r.submitted()
	second, _ := r.submitted()
	for _, c := range []struct {
		query, id string
		more      bool
	}{
		{"?limit=1", second.ID, true},
		{"?limit=1&after=" + second.ID, first.ID, false},
	} {
		var list list[jobView]
		a := r.call("GET", "/v1/jobs"+c.query, "")
		err := json.Unmarshal([]byte(a.body), &list)
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != c.id || *list.LastID != c.id || list.HasMore != c.more {
			t.Errorf("%s: got status %d, %s; want the job %s, more %v", c.query, a.status, a.body, c.id, c.more)
		}
	}
	for _, bad := range []string{"0", "-1", "101", "x", "1.5"} {
		r.call("GET", "/v1/jobs?limit="+bad, "").fails(t, 400, "invalid_value")
	}
}

// TestJobCancelled: a canceled job has no result, and an unknown job cannot be read.
func TestJobCancelled(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	j, _ := r.submitted()
	if a := r.call("DELETE", "/v1/jobs/"+j.ID, ""); a.status != 200 || !strings.Contains(a.body, `"cancelled"`) {
		t.Errorf("got status %d, %s; want 200 and a cancelled job", a.status, a.body)
	}
	r.call("GET", "/v1/jobs/"+j.ID+"/result", "").fails(t, 410, "cancelled")
	r.call("GET", "/v1/jobs/nonsense", "").fails(t, 404, "job_not_found")
	r.call("GET", "/v1/jobs//result", "").fails(t, 404, "job_not_found")
}

// TestRefusals: the answers to calls that may not, or cannot, wait.
func TestRefusals(t *testing.T) {
	r := newRig(t, queue.Pool{TPM: 1000, MaxJobs: 1}, nil, window(10_000_000, time.Hour))
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	if a := r.chat(prompt("hi", `"max_tokens":990`)); a.status != 200 {
		t.Fatalf("got status %d, %s; want 200", a.status, a.body)
	}
	if err := r.guard.Close(t.Context()); err != nil { // until it is settled, capacity may be returned soon
		t.Fatal(err)
	}
	a := r.chat(prompt("hi", `"max_tokens":990`))
	if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("X-Should-Retry") != "false" || a.header.Get(guard.HeaderLimits) == "" || a.header.Get("X-Ratelimit-Remaining-Tokens") == "" || a.header.Get("X-Ratelimit-Reset-Requests") == "" {
		t.Errorf("a refusal without the limits' state: %v, want X-Should-Retry false and the limits' state", a.header)
	}
	a = r.chat(prompt("hi", `"max_tokens":990`), "User-Agent", "opencode/1.18.33")
	if says := a.fails(t, 402, "insufficient_quota"); a.header.Get("Retry-After") != "" || !strings.HasPrefix(says, "Limit reached for limit") {
		t.Errorf("an agent that waits in silence: %v, %s; want no wait", a.header, says)
	}
	r.org.Limits = nil
	for _, async := range []string{"", "respond-async"} {
		a = r.chat(prompt("hi", `"max_tokens":1001`), "Prefer", async)
		says := a.fails(t, 402, "insufficient_quota")
		if a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") != "" || !strings.HasSuffix(says, "It would fit with max_completion_tokens (or max_tokens) of 992.") {
			t.Errorf("a call larger than the quota: %v, %s; want no retry, and what would fit", a.header, says)
		}
	}
	if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async"); a.status != 202 {
		t.Fatalf("got status %d, %s; want 202", a.status, a.body)
	}
	a = r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async")
	if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("Retry-After") == "" {
		t.Errorf("a full queue: %v, want Retry-After", a.header)
	}
	r.org.OverLimit = "refuse"
	r.chat(prompt("hi", `"max_tokens":990`)).fails(t, 429, "rate_limit_exceeded")
	r.redis.Kill()
	a = r.chat(prompt("hi", `"max_tokens":5`))
	if a.fails(t, 503, "server_is_overloaded"); a.header.Get("Retry-After") == "" {
		t.Errorf("a store that is down: %v, want Retry-After", a.header)
	}
	r.redis.Restart()
}

// TestErrorTable: internal errors reveal nothing.
func TestErrorTable(t *testing.T) {
	s := New(Options{Directory: &auth.Directory{}})
	for _, err := range []error{errors.New("secret"), io.ErrUnexpectedEOF, context.Canceled} {
		if e := s.refusal(err, nil); e.Status != http.StatusInternalServerError || strings.Contains(string(e.JSON()), err.Error()) {
			t.Errorf("got %v: %s, want status 500 without the cause", err, e.JSON())
		}
	}
	if e := s.refusal(&guard.BusyError{Status: 429}, nil); e.Status != 429 || e.Header.Get("Retry-After") != "1" {
		t.Errorf("got %+v, want status 429, Retry-After 1", e)
	}
}

// TestCancelOfAClaimedJob: canceling a job that a worker is just trying shows it as canceled, or as
// canceling while the worker cannot be stopped.
func TestCancelOfAClaimedJob(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	claimed, stuck, back := make(chan string, 2), make(chan bool, 2), make(chan struct{})
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		claimed <- c.Job.ID
		if <-ctx.Done(); redistest.Came(t, stuck) {
			redistest.Came(t, back)
		}
		return queue.Verdict{Kind: queue.Park, Wait: time.Hour, Unused: true}
	})
	cancel := func() jobView {
		t.Helper()
		if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async"); a.status != 202 {
			t.Fatalf("got status %d, %s; want 202", a.status, a.body)
		}
		var j jobView
		a := r.call("POST", "/v1/jobs/"+redistest.Came(t, claimed)+"/cancel", "")
		if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.status != 200 {
			t.Fatalf("got status %d, %s; want 200", a.status, a.body)
		}
		return j
	}
	ended := func(j jobView) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); j.Status != queue.Cancelled; time.Sleep(10 * time.Millisecond) {
			if !j.Cancelling || time.Now().After(deadline) {
				t.Fatalf("got %+v, want a job that is cancelling or cancelled", j)
			}
			if err := json.Unmarshal([]byte(r.call("GET", "/v1/jobs/"+j.ID, "").body), &j); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.proxy.jobs.stopWait = time.Minute
	stuck <- false
	if j := cancel(); j.Status != queue.Cancelled || j.Cancelling {
		t.Errorf("got %+v, want a cancelled job", j)
	}
	r.proxy.jobs.stopWait = time.Millisecond
	stuck <- true
	j := cancel()
	if j.Status != queue.Queued || !j.Cancelling {
		t.Errorf("got %+v, want a queued job that is cancelling", j)
	}
	close(back)
	ended(j)
}
