package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestDeliveryUntilItIsTaken: after failures of every kind, an event is retried with the same
// id and body, and a new signature and time; after success it is not sent again.
func TestDeliveryUntilItIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		}
	})
	sender := s.sender(to(t, r), r)
	run(t, sender)
	e := NewEvent("batch.completed", "batch_1", happened)
	send(t, sender, e)
	send(t, sender, e)
	redistest.Eventually(t, "delivered", func() bool { return testutil.ToFloat64(sender.metrics.attempts.WithLabelValues("delivered")) == 1 })
	send(t, sender, e) // as after a crash
	settled(t, sender)
	got := r.got()
	if len(got) != 4 {
		t.Fatalf("got %d posts, want 4", len(got))
	}
	const body = `{"id":"` + `%` + `","object":"event","created_at":1790000000,"type":"batch.completed","data":{"id":"batch_1"}}`
	for i, p := range got {
		if want := strings.Replace(body, "%", e.ID, 1); p.body != want {
			t.Errorf("body %d is %s, want %s", i, p.body, want)
		}
		h := http.Header{}
		at := time.Now()
		for back := range 1200 { // signed with both secrets within the last 20 minutes
			sign(h, []Secret{secret(t, secret1), secret(t, secret2)}, e.ID, at.Add(-time.Duration(back)*time.Second), []byte(p.body))
			if h.Get("webhook-signature") == p.header.Get("webhook-signature") {
				break
			}
		}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
			if p.header.Get(name) != h.Get(name) {
				t.Errorf("%s of post %d is %q", name, i, p.header.Get(name))
			}
		}
		if p.header.Get("content-type") != "application/json" || p.header.Get("authorization") != "" {
			t.Errorf("headers %v", p.header)
		}
	}
	if list := dead(t, sender); len(list) != 0 {
		t.Errorf("dead letters %+v", list)
	}
}

// TestRedirectsAndProxiesAreNotFollowed: no byte is sent anywhere but to the configured target.
func TestRedirectsAndProxiesAreNotFollowed(t *testing.T) {
	s := newSite(t)
	inside := newReceiver(t, nil)
	r := newReceiver(t, func(_ int, w http.ResponseWriter) {
		w.Header().Set("Location", "https://"+inside.host(t)+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, inside.URL)
	}
	s.options.GiveUp = time.Millisecond
	sender := s.sender(to(t, r), r)
	run(t, sender)
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "given up", func() bool { return len(dead(t, sender)) == 1 })
	if l := dead(t, sender)[0]; l.Reason != Exhausted || l.Attempts == 0 || !strings.Contains(l.Error, "307") || len(r.got()) != l.Attempts {
		t.Errorf("dead letter %+v after %d posts", l, len(r.got()))
	}
	if n := inside.connections(); n != 0 {
		t.Errorf("%d connections to where the redirect leads", n)
	}
}

// TestInternalTargetsGetNothing: for a name that resolves to a private address the event
// becomes a dead letter immediately, and the server there sees no connection.
func TestInternalTargetsGetNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, nil)
	s.options.AllowNetworks = nil
	sender := s.sender(to(t, r), r)
	dialled := watchDials(sender.dialer, r.Listener.Addr().String())
	run(t, sender)
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "given up", func() bool { return len(dead(t, sender)) == 1 })
	if l := dead(t, sender)[0]; l.Reason != Refused || l.Attempts != 1 || !strings.Contains(l.Error, "127.0.0.1") {
		t.Errorf("dead letter %+v", l)
	}
	if r.connections() != 0 || len(dialled()) != 0 {
		t.Errorf("%d connections, dialled %v", r.connections(), dialled())
	}
}

// A target that answers 410 is disabled until its configuration changes; then its dead letters
// can be replayed.
func TestGoneTargetsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
		}
	})
	sender := s.sender(to(t, r), r)
	stop := run(t, sender)
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "gone", func() bool { return len(dead(t, sender)) == 1 })
	send(t, sender, NewEvent("job.failed", "job_2", happened))
	redistest.Eventually(t, "disabled", func() bool { return len(dead(t, sender)) == 2 })
	list := dead(t, sender)
	if list[0].Reason != Disabled || list[1].Reason != Gone || list[1].Status != http.StatusGone || len(r.got()) != 1 {
		t.Fatalf("dead letters %+v after %d posts", list, len(r.got()))
	}
	stop()
	changed := to(t, r, "job.*")
	sender = s.sender(changed, r)
	run(t, sender)
	for _, l := range list {
		if _, err := sender.Replay(t.Context(), "acme", l.ID); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "replayed", func() bool { return len(r.got()) == 3 })
	if _, err := sender.Replay(t.Context(), "acme", list[0].ID); err != ErrNotDead { //nolint:errorlint // returned as it is
		t.Errorf("replay of what is no dead letter: %v", err)
	}
	if ids := []string{r.got()[1].header.Get("webhook-id"), r.got()[2].header.Get("webhook-id")}; !slices.Contains(ids, list[0].Event) || !slices.Contains(ids, list[1].Event) {
		t.Errorf("replayed as %v", ids)
	}
	if left := dead(t, sender); len(left) != 0 {
		t.Errorf("left %+v", left)
	}
}

// Endpoints receive events by type, a request's target receives its event once, other orgs
// receive nothing, and removed targets receive nothing more.
func TestWhoGetsWhat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all, batches, mine := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	org := to(t, all)
	org.Endpoints = append(org.Endpoints, to(t, batches, "batch.*").Endpoints...)
	org.Hosts, org.Secrets = []string{mine.host(t), all.host(t)}, []Secret{secret(t, secret2)}
	sender := s.sender(org, all)
	asked := NewEvent("job.succeeded", "job_1", happened)
	asked.URL = "https://" + mine.host(t) + "/mine"
	same := NewEvent("job.succeeded", "job_2", happened)
	same.URL = org.Endpoints[0].URL
	stray := NewEvent("batch.failed", "batch_1", happened)
	stray.URL = "https://elsewhere.example/"
	for _, e := range []Event{asked, same, stray} {
		send(t, sender, e)
	}
	for _, other := range []string{"other", ""} {
		if err := sender.Send(t.Context(), other, asked); err != nil {
			t.Error(err)
		}
	}
	if err := sender.Send(t.Context(), "acme", Event{ID: "x", Type: "job.imagined", Object: "y"}); err == nil {
		t.Error("an event of no type is sent")
	}
	run(t, sender)
	settled(t, sender)
	if len(all.got()) != 3 || len(batches.got()) != 1 || len(mine.got()) != 1 {
		t.Fatalf("got %d, %d and %d posts, want 3, 1 and 1", len(all.got()), len(batches.got()), len(mine.got()))
	}
	if p := mine.got()[0]; strings.Contains(p.header.Get("webhook-signature"), " ") || !strings.Contains(p.body, `"job_1"`) {
		t.Errorf("the request's own target got %+v", p)
	}
}

// Deliveries queued for a target that was removed from the configuration become dead letters.
func TestRemovedTargets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, nil)
	send(t, s.sender(to(t, r), r), NewEvent("job.failed", "job_1", happened))
	sender := s.sender(Org{Hosts: []string{"a.example"}, Secrets: []Secret{secret(t, secret1)}}, r)
	run(t, sender)
	redistest.Eventually(t, "given up", func() bool { return len(dead(t, sender)) == 1 })
	if l := dead(t, sender)[0]; l.Reason != Removed || l.Host != "" || len(r.got()) != 0 {
		t.Errorf("dead letter %+v after %d posts", l, len(r.got()))
	}
}

// An endless response, an endless header and a silent target take no longer than the timeout,
// and do not delay others.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := make(chan struct{})
	endless := newReceiver(t, func(_ int, w http.ResponseWriter) {
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	})
	head := newReceiver(t, func(_ int, w http.ResponseWriter) { w.Header().Set("X-Much", strings.Repeat("x", 2*answerMost)) })
	silent := newReceiver(t, func(int, http.ResponseWriter) { redistest.Came(t, stop) })
	defer close(stop)
	s.options.GiveUp = time.Millisecond
	org := Org{Endpoints: []Endpoint{to(t, endless).Endpoints[0], to(t, head).Endpoints[0], to(t, silent).Endpoints[0]}}
	sender := s.sender(org, endless)
	run(t, sender)
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "two given up", func() bool { return len(dead(t, sender)) == 2 })
	redistest.Eventually(t, "one delivered", func() bool { return testutil.ToFloat64(sender.metrics.attempts.WithLabelValues("delivered")) == 1 })
}

// After a Retry-After the target is retried at that time, and gets no other events before.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n == 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	sender := s.sender(to(t, r), r)
	run(t, sender)
	send(t, sender, NewEvent("job.failed", "job_1", happened))
	redistest.Eventually(t, "asked once", func() bool { return testutil.ToFloat64(sender.metrics.attempts.WithLabelValues("failed")) == 1 })
	send(t, sender, NewEvent("job.failed", "job_2", happened))
	waits := func() (out []time.Duration) {
		tasks, _ := sender.metrics.waiting.tasks.(*asynq.Inspector).ListRetryTasks(queueName)
		for _, task := range tasks {
			out = append(out, time.Until(task.NextProcessAt))
		}
		return out
	}
	redistest.Eventually(t, "both wait", func() bool { return len(waits()) == 2 })
	for _, d := range waits() {
		if d < 3500*time.Second {
			t.Errorf("asked again in %s", d)
		}
	}
	if n := len(r.got()); n != 1 {
		t.Errorf("got %d posts, want 1", n)
	}
}

// The list of dead letters is limited and keeps the newest; metrics show what is waiting.
func TestDeadLettersAndMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.options.DeadLetters = 2
	reg := prometheus.NewRegistry()
	s.options.Metrics = reg
	s.names.set("example.com", "10.0.0.1")
	sender := s.sender(Org{Endpoints: []Endpoint{{URL: "https://example.com/", Secrets: []Secret{secret(t, secret1)}}}}, nil)
	for _, id := range []string{"job_1", "job_2", "job_3"} {
		d := delivery{Org: "acme", Event: id, Target: "t"}
		for range 2 {
			if err := sender.bury(t.Context(), &d, Refused, result{status: 500}, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := dead(t, sender)
	if len(list) != 2 || list[0].Event != "job_3" || list[1].Event != "job_2" {
		t.Errorf("dead letters %+v", list)
	}
	if n := s.redis.Client().HLen(t.Context(), deadKeys("acme")[1]).Val(); n != 2 {
		t.Errorf("%d letters are kept", n)
	}
	if _, err := json.Marshal(list); err != nil {
		t.Error(err)
	}
	send(t, sender, NewEvent("job.failed", "job_4", happened))
	ctx := t.Context()
	sender.metrics.scrapeIn(ctx)
	want := `
# HELP llmguard_webhook_waiting_deliveries Pending deliveries: due ones, and failed ones that are waiting for another attempt.
# TYPE llmguard_webhook_waiting_deliveries gauge
llmguard_webhook_waiting_deliveries{state="due"} 1
llmguard_webhook_waiting_deliveries{state="retry"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "llmguard_webhook_waiting_deliveries"); err != nil {
		t.Error(err)
	}
}
