package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// submit creates a job and returns its path.
func (r *rig) submit(body string) string {
	r.t.Helper()
	a := r.chat(body, "Prefer", "respond-async")
	if a.status != 202 {
		r.t.Fatalf("got status %d, %s; want 202", a.status, a.body)
	}
	return a.header.Get("Location")
}

// sse is one event as a browser would see it.
type sse struct{ id, kind, data string }

// events opens a stream of events; last is the id to continue from.
func (r *rig) events(path, last string) (next func() (sse, bool), hangUp func()) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", r.http.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		r.t.Fatalf("got %d %v, want 200 and an event stream", resp.StatusCode, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	hangUp = func() { cancel(); resp.Body.Close() }
	r.t.Cleanup(hangUp)
	return func() (e sse, ok bool) {
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				e.data = value
			case "":
				if e.kind != "" {
					return e, true
				}
			}
		}
		return e, false
	}, hangUp
}

// TestJobEvents: a job's states and its answer arrive as they happen, in complete characters, and
// again from any event on, through another proxy.
func TestJobEvents(t *testing.T) {
	const text = "héllo wörld ✓ 😀 done"
	r := newRig(t, single, nil)
	more := make(chan struct{})
	started(r, func(_ context.Context, c *queue.Claim) queue.Verdict {
		for i := range len(text) { // splits characters
			_, _ = io.WriteString(c.Output(), text[i:i+1])
			if i%3 == 0 {
				time.Sleep(5 * time.Millisecond) // so that readers get it in pieces
			}
			if i == 8 {
				redistest.Came(t, more)
			}
		}
		return queue.Verdict{Kind: queue.Done, Status: 200}
	})
	release := r.occupy()
	path := r.submit(prompt("hi", `"max_tokens":5`)) + "/events?output=true"
	next, hangUp := r.events(path, "")
	e, _ := next()
	var v jobView
	if err := json.Unmarshal([]byte(e.data), &v); err != nil || e.kind != "state" || v.Status != queue.Queued || v.Ahead == nil {
		t.Fatalf("got %+v, %v; want a queued job's state", e, err)
	}
	release()
	got, last := "", ""
	read := func(next func() (sse, bool), until int) (kinds []string) {
		for len(got) < until {
			e, ok := next()
			if !ok {
				t.Fatalf("the stream ended after %q", got)
			}
			last = e.id
			if e.kind != "output" {
				kinds = append(kinds, e.kind)
				continue
			}
			var part outputEvent
			if err := json.Unmarshal([]byte(e.data), &part); err != nil || part.Attempt != 1 || strings.Contains(part.Text, "\uFFFD") {
				t.Errorf("got %+v, %v; want whole characters of attempt 1", e, err)
			}
			got += part.Text
		}
		return kinds
	}
	if kinds := read(next, 5); strings.Join(kinds, " ") != "state head" {
		t.Errorf("before the output: %v, want state and head", kinds)
	}
	hangUp()
	close(more)
	next, _ = r.second().events(path, last)
	if kinds := read(next, len(text)); got != text || strings.Join(kinds, " ") != "" && strings.Join(kinds, " ") != "state" {
		t.Errorf("got %q, and %v; want the whole text and at most one state", got, kinds)
	}
	e, _ = next()
	if err := json.Unmarshal([]byte(e.data), &v); err != nil || e.kind != "state" || v.Status != queue.Succeeded || v.Charged == nil {
		t.Errorf("got %+v, %v; want a job that succeeded", e, err)
	}
	if _, ok := next(); ok {
		t.Error("events after the end")
	}
	if a := r.call("GET", path, "", "Last-Event-ID", e.id); a.status != 204 {
		t.Errorf("a reader that has everything: %d, want 204", a.status)
	}
	next, _ = r.events(strings.TrimSuffix(path, "?output=true"), "")
	if e, _ := next(); e.kind != "state" {
		t.Errorf("without output: %+v, want a state", e)
	}
	for _, bad := range []string{"x", "1", "1-x", "-1-0", "1-2-over"} {
		r.call("GET", path, "", "Last-Event-ID", bad).fails(t, 400, "invalid_value")
	}
	r.call("GET", "/v1/jobs/nonsense/events", "").fails(t, 404, "job_not_found")
}

// TestJobEventsIdle: a waiting job's place is reported, and a reader of events does not count as a
// waiting caller, neither while connected nor when it leaves.
func TestJobEventsIdle(t *testing.T) {
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 20 * time.Millisecond })
	defer r.occupy()()
	path := r.submit(prompt("hi", `"max_tokens":5`))
	next, hangUp := r.events(path+"/events", "")
	for _, want := range []string{"state", "position"} {
		if e, ok := next(); !ok || e.kind != want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
	hangUp()
	r.records(2)
	if a := r.call("GET", path, ""); !strings.Contains(a.body, `"queued"`) {
		t.Errorf("after an onlooker left: %s, want a queued job", a.body)
	}
	next, _ = r.events(path+"/events", "")
	if e, _ := next(); e.kind != "state" {
		t.Errorf("got %+v, want a state", e)
	}
	r.call("POST", path+"/cancel", "")
	for {
		e, ok := next()
		if !ok {
			t.Error("no end")
		}
		if strings.Contains(e.data, `"status":"cancelled"`) {
			break
		}
	}
}

// TestJobFilters: lists by status, model and time, page by page.
func TestJobFilters(t *testing.T) {
	r := newRig(t, single, nil)
	defer r.occupy()()
	var paths []string
	for i := range 6 {
		model := []string{"gpt-4o", "gpt-4o-mini"}[i%2]
		paths = append(paths, r.submit(strings.Replace(prompt("hi", `"max_tokens":5`), "gpt-4o", model, 1)))
	}
	r.call("POST", paths[0]+"/cancel", "")
	count := func(query string, want int) {
		t.Helper()
		n, after := 0, ""
		for {
			var list list[jobView]
			a := r.call("GET", "/v1/jobs?limit=2&"+query+after, "")
			if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
				t.Fatalf("got status %d, %s; want 200", a.status, a.body)
			}
			if n += len(list.Data); !list.HasMore {
				break
			}
			after = "&after=" + *list.LastID
		}
		if n != want {
			t.Errorf("%s: %d jobs, want %d", query, n, want)
		}
	}
	count("", 6)
	count("status=cancelled", 1)
	count("status=queued", 5)
	count("status=queued&model=gpt-4o", 2)
	count("model=none", 0)
	count("user=alice", 6)
	count("user=bob", 0)
	count("since="+strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10), 0)
	count("since="+strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10), 6)
	for _, bad := range []string{"status=done", "since=x", "since=-1", "since=1e3"} {
		r.call("GET", "/v1/jobs?"+bad, "").fails(t, 400, "invalid_value")
	}
}

// commands counts the commands sent to Redis.
type commands struct{ n int }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n++; return next(ctx, cmd) }
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n += len(cmds); return next(ctx, cmds) }
}

// TestForeignJobs: for a job of another user and for one that never existed the answer is the same, so callers cannot
// tell them apart.
func TestForeignJobs(t *testing.T) {
	r := newRig(t, single, nil)
	put := func(org, user string) string {
		job := &queue.Job{ID: r.queue.NewID("main"), Pool: "main", Org: org, User: user, Class: queue.Async, Endpoint: "chat.completions"}
		if err := r.queue.Put(t.Context(), job, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	ids := []string{r.queue.NewID("main"), put("other", "alice"), put("acme", "bob")}
	for _, try := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/result"}, {"GET", "/events"}} {
		var first answer
		for i, id := range ids {
			a := r.call(try[0], "/v1/jobs/"+id+try[1], "")
			a.body = strings.ReplaceAll(a.body, id, "ID")
			a.fails(t, 404, "job_not_found")
			if i == 0 {
				first = a
			} else if a.body != first.body {
				t.Errorf("%v of %d: %s; of none: %s", try, i, a.body, first.body)
			}
		}
	}
}

// TestPreferWait: respond-async with a time returns the answer if it is ready in time, otherwise
// the job; the job outlives its caller.
func TestPreferWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	release := r.occupy()
	for _, c := range []struct{ path, body, prefer string }{
		{"/v1/chat/completions", prompt("hi", `"max_tokens":5`), "respond-async, wait=1"},
		{"/v1/chat/completions", prompt("hi", streamed), "respond-async, wait=0"},
		{"/v1/embeddings", `{"model":"text-embedding-3-small","input":"hi"}`, "respond-async, wait=0"},
	} {
		a := r.call("POST", c.path, c.body, "Prefer", c.prefer)
		var v jobView
		err := json.Unmarshal([]byte(a.body), &v)
		if err != nil || a.status != 202 || v.Status != queue.Queued || v.Endpoint != c.path {
			t.Fatalf("%+v: got status %d, %s; want 202 and a queued job", c, a.status, a.body)
		}
		if h := a.header; h.Get("Preference-Applied") != c.prefer || h.Get("Vary") != "Prefer" || h.Get("Location") != "/v1/jobs/"+v.ID {
			t.Errorf("%+v: got headers %v, want the preference and the job's location", c, h)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.onWait(cancel)
	if a := r.do(ctx, "POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5`), "Prefer", "respond-async, wait=60"); a.err == nil {
		t.Fatalf("got %d %s, want no answer", a.status, a.body)
	}
	r.records(4)
	r.worker(nil)
	release()
	r.until("four jobs have succeeded", func() bool {
		page, err := r.queue.List(t.Context(), "acme", queue.Filter{State: queue.Succeeded}, "", 10)
		return err == nil && len(page.Jobs) == 4
	})
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{} })
	for _, body := range []string{prompt("hi", `"max_tokens":5`), prompt("hi", streamed)} {
		a := r.chat(body, "Prefer", "respond-async, wait=60")
		if a.status != 200 || !strings.Contains(a.body, `"choices"`) || a.header.Get("Preference-Applied") != "wait=60" || a.header.Get(headerJob) == "" {
			t.Errorf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
		}
	}
	if n := len(r.fake.Log()); n != 6 {
		t.Errorf("got %d calls reached the provider, want 6", n)
	}
}
