package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestBrakesJudgeWhatWasAnswered: brakes count what callers sent and the provider answered, once. Attempts of
// a job that the provider fails, calls that are refused, and calls that were only open make no brake fire.
func TestBrakesJudgeWhatWasAnswered(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
brakes:
  - {name: loop, by: user, when: {repeats: {more_than: 2, window: 1h}}}
  - {name: many, by: user, when: {calls: {more_than: 20, window: 1h}}}
orgs:
  - id: acme
    limits: [{name: day, amount: $1000, window: 1d}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
`)
	p := s.proxy()
	s.worker()
	send := func(user, text string, header ...string) answer {
		return post(p.URL+"/chat/completions", s.keys[user], chat("gpt-4o", text, small), header...)
	}
	for _, fault := range []string{"status=500 times=2", "cut=headers times=2"} { // at the first two attempts
		a := send("alice", "[fake: "+fault+"]", "Prefer", "respond-async")
		want(t, "a job", a, http.StatusAccepted, "")
		var job struct{ ID string }
		if err := json.Unmarshal([]byte(a.body), &job); err != nil {
			t.Fatal(err)
		}
		until(t, "runs the job after "+fault, func() bool {
			return strings.Contains(get(p.URL+"/jobs/"+job.ID, s.keys["alice"]).body, `"status":"succeeded"`)
		})
		for range 4 { // as SDKs and agents repeat them
			send("alice", "[fake: status=500] after "+fault[:3])
			send("alice", "[fake: status=400] after "+fault[:3])
		}
		want(t, "the second answer to "+fault, send("alice", "[fake: "+fault+"]"), 200, "")
		until(t, "fires after "+fault, func() bool { // until the second is settled, a third is refused without a firing
			want(t, "a third", send("alice", "[fake: "+fault+"]"), 403, "brake_stopped")
			list := s.llmguard("brakes", "list", "--org", "acme")
			return strings.Contains(list, "user=alice") && strings.Contains(list, "2 equal requests in 1h")
		})
		s.llmguard("brakes", "release", "--org", "acme", "--brake", "loop", "user=alice", "--for", "1s", "--reason", "next")
		until(t, "the release ends", func() bool {
			return !strings.Contains(s.llmguard("brakes", "list", "--org", "acme"), "released")
		})
	}

	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			a := send("bob", fmt.Sprint("[fake: status=400 delay=300ms] ", i))
			if _, code, _ := errorOf(t, a); a.status != 400 && code != "brake_stopped" {
				t.Errorf("one of 40 calls: got %d %s", a.status, a.body)
			}
		})
	}
	redistest.Wait(t, all.Wait)
	until(t, "the refused calls leave nothing", func() bool { return send("bob", "on").status == http.StatusOK })
	if list := s.llmguard("brakes", "list", "--org", "acme"); strings.Contains(list, "bob") {
		t.Errorf("a brake fired for calls that were only open: %s", list)
	}
	if audit := s.llmguard("audit", "--org", "acme"); strings.Contains(audit, "bob") {
		t.Errorf("the audit has a firing for calls that were only open: %s", audit)
	}
}

// TestBrakesOfChosenLabels: what one user sends with a label stops that user alone, unless the brake is shared
// or only keys have the label. An operator can stop a value for one user, or for all.
func TestBrakesOfChosenLabels(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
labels:
  - {name: run, from: [header X-Run]}
  - {name: task, from: [key, body metadata.task]}
  - {name: team, from: [key]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
brakes:
  - {name: by-run, by: run, models: [gpt-4o], when: {repeats: {more_than: 2, window: 1h}}}
  - {name: by-task, by: task, models: [gpt-4o-mini], when: {repeats: {more_than: 2, window: 1h}}}
  - {name: by-team, by: team, models: [gpt-4.1], when: {repeats: {more_than: 2, window: 1h}}}
  - {name: by-all, by: run, shared: true, models: [gpt-4.1-mini], when: {repeats: {more_than: 2, window: 1h}}}
orgs:
  - id: acme
    limits: [{name: day, amount: $1000, window: 1d}]
    labels: {team: blue}
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
`)
	p := s.proxy()
	send := func(user, model, run string) answer {
		body := chat(model, "hi", small+`,"metadata":{"task":"`+run+`"}`)
		return post(p.URL+"/chat/completions", s.keys[user], body, "X-Run", run)
	}
	for _, c := range []struct {
		brake, model, subject string
		shared                bool
	}{
		{"by-run", "gpt-4o", "user=bob, run=nightly", false},
		{"by-task", "gpt-4o-mini", "user=bob, task=nightly", false},
		{"by-team", "gpt-4.1", "team=blue", true},
		{"by-all", "gpt-4.1-mini", "run=nightly", true},
	} {
		for range 2 {
			want(t, c.brake+": an allowed call", send("bob", c.model, "nightly"), 200, "")
		}
		until(t, c.brake+" fires", func() bool {
			want(t, c.brake+": a call too many", send("bob", c.model, "nightly"), 403, "brake_stopped")
			return strings.Contains(s.llmguard("brakes", "list", "--org", "acme"), c.subject)
		})
		if c.shared {
			want(t, c.brake+": the other user", send("alice", c.model, "nightly"), 403, "brake_stopped")
		} else {
			want(t, c.brake+": the other user", send("alice", c.model, "nightly"), 200, "")
		}
	}
	s.llmguard("brakes", "stop", "--org", "acme", "--brake", "by-run", "user=alice", "run=late", "--reason", "one")
	until(t, "stops one user", func() bool { return send("alice", "gpt-4o", "late").status == http.StatusForbidden })
	want(t, "the same value of another user", send("bob", "gpt-4o", "late"), 200, "")
	// As older versions did when a brake fired.
	s.llmguard("brakes", "stop", "--org", "acme", "--brake", "by-run", "run=all", "--reason", "everybody")
	for _, user := range []string{"alice", "bob"} {
		until(t, "stops all users", func() bool { return send(user, "gpt-4o", "all").status == http.StatusForbidden })
	}
	s.llmguard("brakes", "release", "--org", "acme", "--brake", "by-run", "run=all", "--reason", "over")
	until(t, "releases all users", func() bool { return send("alice", "gpt-4o", "all").status == http.StatusOK })
}
