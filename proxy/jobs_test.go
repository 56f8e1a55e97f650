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
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/keys"
	"github.com/llmguard/llmguard/queue"
)

// TestJobsAPI: submit, look, list, cancel, fetch; strangers see nothing.
func TestJobsAPI(t *testing.T) {
	bob, eve := keys.New(keys.Live), keys.New(keys.Live)
	r := newRig(t, queue.Pool{}, func(o *Options) {
		p := o.Directory.ByHash
		for _, alice := range p {
			p[keys.Hash(keys.Pepper{}, bob)] = Principal{Org: alice.Org, User: "bob", Key: "k2"}
		}
		p[keys.Hash(keys.Pepper{}, eve)] = Principal{Org: &guard.Org{ID: "other"}, User: "alice", Key: "k3"}
	}, window(40_000_000, time.Hour))
	submit := func(extra string) (jobView, answer) {
		a := r.chat(prompt("hi", `"max_tokens":5`+extra), "Prefer", "respond-async")
		var v jobView
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return v, a
	}
	first, a := submit("")
	if a.header.Get("Location") != "/v1/jobs/"+first.ID || a.header.Get("Preference-Applied") != "respond-async" || a.header.Get("Vary") != "Prefer" {
		t.Errorf("headers %v", a.header)
	}
	if first.Object != "job" || first.Status != queue.Queued || first.Model != "gpt-4o" || first.Endpoint != "/v1/chat/completions" || first.Ahead == nil || first.Charged != nil || first.ResultURL != "" || first.Estimate == "" {
		t.Errorf("%+v", first)
	}
	second, _ := submit("")
	path := "/v1/jobs/" + first.ID
	if a := r.call("GET", path+"/result", ""); a.fails(t, 409, "not_finished") != "" && a.header.Get("Retry-After") == "" {
		t.Errorf("headers %v", a.header)
	}
	for who, key := range map[string]string{"bob": bob, "eve": eve} {
		auth := []string{"Authorization", "Bearer " + key}
		for _, try := range [][2]string{{"GET", path}, {"DELETE", path}, {"GET", path + "/result"}, {"POST", path + "/cancel"}} {
			if r.call(try[0], try[1], "", auth...).fails(t, 404, "job_not_found"); t.Failed() {
				t.Fatalf("%s did %v", who, try)
			}
		}
		if a := r.call("GET", "/v1/jobs", "", auth...); a.status != 200 || strings.Contains(a.body, "job_") {
			t.Errorf("%s lists %s", who, a.body)
		}
		r.call("GET", "/v1/jobs?after="+first.ID, "", auth...).fails(t, 400, "invalid_value")
	}
	var list jobList
	page := func(query string) []string {
		t.Helper()
		a := r.call("GET", "/v1/jobs"+query, "")
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var ids []string
		for _, j := range list.Data {
			ids = append(ids, j.ID)
		}
		return ids
	}
	if ids := page("?limit=1"); len(ids) != 1 || ids[0] != second.ID || !list.HasMore || *list.LastID != second.ID {
		t.Errorf("page %v, %+v", ids, list)
	}
	if ids := page("?limit=1&after=" + second.ID); len(ids) != 1 || ids[0] != first.ID || list.HasMore {
		t.Errorf("page %v, %+v", ids, list)
	}
	for _, bad := range []string{"0", "-1", "101", "x", "1.5"} {
		r.call("GET", "/v1/jobs?limit="+bad, "").fails(t, 400, "invalid_value")
	}
	if a := r.call("DELETE", "/v1/jobs/"+second.ID, ""); a.status != 200 || !strings.Contains(a.body, `"cancelled"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.call("GET", "/v1/jobs/"+second.ID+"/result", "").fails(t, 410, "cancelled")
	r.call("GET", "/v1/jobs/nonsense", "").fails(t, 404, "job_not_found")
	r.call("GET", "/v1/jobs//result", "").fails(t, 404, "job_not_found")

	r.worker(nil)
	var done jobView
	for range 6000 {
		if err := json.Unmarshal([]byte(r.call("GET", path, "").body), &done); err != nil {
			t.Fatal(err)
		}
		if done.Status.Terminal() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if done.Status != queue.Succeeded || done.Charged == nil || *done.Charged == "0.000000000" || *done.HTTPStatus != 200 || done.ResultURL != path+"/result" || done.Finished == nil {
		t.Errorf("%+v", done)
	}
	if a := r.call("GET", path+"/result", ""); a.status != 200 || !strings.Contains(a.body, `"choices"`) || a.header.Get(guard.HeaderCost) == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	r.chat(prompt("hi", `"max_tokens":5000`), "Prefer", "respond-async").fails(t, 429, "insufficient_quota") // can never fit
}

// TestRefusals: what a call gets that may not wait, or cannot.
func TestRefusals(t *testing.T) {
	r := newRig(t, queue.Pool{TPM: 1000, MaxJobs: 1}, nil, window(10_000_000, time.Hour))
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	if a := r.chat(prompt("hi", `"max_tokens":990`)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if err := r.guard.Close(t.Context()); err != nil { // until it is settled, room may yet come back soon
		t.Fatal(err)
	}
	a := r.chat(prompt("hi", `"max_tokens":990`))
	if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("X-Should-Retry") != "false" || a.header.Get(guard.HeaderLimits) == "" || a.header.Get("X-Ratelimit-Remaining-Tokens") == "" || a.header.Get("X-Ratelimit-Reset-Requests") == "" {
		t.Errorf("a refusal without the limits' state: %v", a.header)
	}
	r.org.Limits = nil
	for _, async := range []string{"", "respond-async"} {
		a = r.chat(prompt("hi", `"max_tokens":1001`), "Prefer", async)
		says := a.fails(t, 429, "insufficient_quota")
		if a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") != "" || !strings.HasSuffix(says, "It would fit with max_completion_tokens (or max_tokens) of 992.") {
			t.Errorf("a call larger than the quota: %v, %s", a.header, says)
		}
	}
	if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async"); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a = r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async")
	if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("Retry-After") == "" {
		t.Errorf("a full queue: %v", a.header)
	}
	r.org.RefuseOverLimit = true
	r.chat(prompt("hi", `"max_tokens":990`)).fails(t, 429, "rate_limit_exceeded")
	r.redis.Kill()
	a = r.chat(prompt("hi", `"max_tokens":5`))
	if a.fails(t, 503, "server_is_overloaded"); a.header.Get("Retry-After") == "" {
		t.Errorf("a store that is down: %v", a.header)
	}
	r.redis.Restart()
}

// TestErrorTable: errors that are nobody's business tell nothing.
func TestErrorTable(t *testing.T) {
	s := New(Options{Directory: &Directory{}})
	for _, err := range []error{errors.New("secret"), io.ErrUnexpectedEOF, context.Canceled} {
		if e := s.refusal(err, nil); e.Status != http.StatusInternalServerError || strings.Contains(string(e.JSON()), err.Error()) {
			t.Errorf("%v: %s", err, e.JSON())
		}
	}
	if e := s.refusal(&guard.BusyError{Status: 429}, nil); e.Status != 429 || e.Header.Get("Retry-After") != "1" {
		t.Errorf("%+v", e)
	}
}

// TestCancelOfAClaimedJob: whoever cancels a job that a worker is just trying
// sees it cancelled, and while the worker cannot be stopped that it will be.
func TestCancelOfAClaimedJob(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	claimed, stuck, back := make(chan string, 2), make(chan bool, 2), make(chan struct{})
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		claimed <- c.Job.ID
		if <-ctx.Done(); <-stuck {
			<-back
		}
		return queue.Verdict{Kind: queue.Park, Wait: time.Hour, Unused: true}
	})
	cancel := func() jobView {
		t.Helper()
		if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async"); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var j jobView
		a := r.call("POST", "/v1/jobs/"+<-claimed+"/cancel", "")
		if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return j
	}
	ended := func(j jobView) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); j.Status != queue.Cancelled; time.Sleep(10 * time.Millisecond) {
			if !j.Cancelling || time.Now().After(deadline) {
				t.Fatalf("%+v", j)
			}
			if err := json.Unmarshal([]byte(r.call("GET", "/v1/jobs/"+j.ID, "").body), &j); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.proxy.stopWait = time.Minute
	stuck <- false
	if j := cancel(); j.Status != queue.Cancelled || j.Cancelling {
		t.Errorf("%+v", j)
	}
	r.proxy.stopWait = time.Millisecond
	stuck <- true
	j := cancel()
	if j.Status != queue.Queued || !j.Cancelling {
		t.Errorf("%+v", j)
	}
	close(back)
	ended(j)
}
