package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// labeled is a stack with labels project (required), session and run (of the key).
func labeled(t *testing.T, more, limits string) *stack {
	t.Helper()
	return newStack(t, fakeprovider.Options{}, `
labels:
  - {name: project, from: [header X-Project, body metadata.project], missing: refuse, usage: true}
  - {name: session, from: [header X-Session, body metadata.session], max_values: 5, usage: true}
  - {name: run, from: [key], default: none}
  - {name: stage, default: prod}
`+more+`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    over_limit: refuse
    limits: `+limits+`
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}", labels: {run: nightly}}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
`)
}

const small = `"max_tokens":5`

// want fails the test unless a call has the status and, for a refusal, its error has the code.
func want(t *testing.T, what string, a answer, status int, code string) {
	t.Helper()
	got := ""
	if a.status >= 400 {
		_, got, _ = errorOf(t, a)
	}
	if a.err != nil || a.status != status || got != code {
		t.Fatalf("%s: got %d %s (%v), want %d %s: %s", what, a.status, got, a.err, status, code, a.body)
	}
}

// TestLabelLimits: limits by one label and by a user's label count live calls of each value on
// their own, and refuse calls without a required label or with an invalid value.
func TestLabelLimits(t *testing.T) {
	t.Parallel()
	s := labeled(t, "", `
      - {name: per-project, subject: project, metric: requests, amount: 3, window: 1h}
      - {name: per-session, subject: [session, user], metric: requests, amount: 2, window: 1h, fixed: true}
      - {name: at-once, subject: [project], metric: concurrency, amount: 4}`)
	p := s.proxy()
	url, body := p.URL+"/chat/completions", chat("gpt-4o-mini", "hi", small)
	call := func(who string, header ...string) answer { return post(url, s.keys[who], body, header...) }

	want(t, "no project", call("alice"), 400, "missing_label")
	want(t, "a comma", call("alice", "X-Project", "a,b"), 400, "invalid_label")
	want(t, "129 bytes", call("alice", "X-Project", strings.Repeat("a", 129)), 400, "invalid_label")
	want(t, "a wrong type", post(url, s.keys["alice"], chat("gpt-4o-mini", "hi", small+`,"metadata":{"project":{}}`)), 400, "invalid_type")
	for i := range 2 {
		want(t, fmt.Sprint("call ", i), call("alice", "X-Project", "one", "X-Session", "s1"), 200, "")
	}
	want(t, "third call of the session", call("alice", "X-Project", "two", "X-Session", "s1"), 429, "rate_limit_exceeded")
	want(t, "another user's session of this name", call("bob", "X-Project", "two", "X-Session", "s1"), 200, "")
	want(t, "third call of the project", call("alice", "X-Project", "one", "X-Session", "s2"), 200, "")
	a := call("bob", "X-Project", "one", "X-Session", "s3")
	want(t, "fourth call of the project", a, 429, "rate_limit_exceeded")
	if limits := a.header.Get("X-Llmguard-Limits"); !strings.Contains(limits, "per-project;") {
		t.Errorf("the limits of the refusal are %q, want per-project among them", limits)
	}
	want(t, "a project in the body", post(url, s.keys["bob"], chat("gpt-4o-mini", "hi", small+`,"metadata":{"project":"three"}`)), 200, "")

	got := map[ledger.Labels]int{}
	for _, e := range s.settled("acme", 5) {
		got[e.Labels]++
	}
	for labels, n := range map[ledger.Labels]int{
		"project=one,run=nightly,session=s1,stage=prod": 2, "project=one,run=nightly,session=s2,stage=prod": 1,
		"project=two,run=none,session=s1,stage=prod": 1, "project=three,run=none,stage=prod": 1,
	} {
		if got[labels] != n {
			t.Errorf("the ledger has %d calls with %s, want %d: %v", got[labels], labels, n, got)
		}
	}
	s.checkLabelSums("acme", "project", "session")
	for args, wanted := range map[string]string{
		"usage --org acme --by label:project -o csv":                                "three,1,",
		"usage entries --org acme --label project=one --label session=s2 -o jsonl":  `"session":"s2"`,
		"limits get per-session --org acme --user alice --label session=s1 -o json": `"used":2`,
	} {
		if out := strings.ReplaceAll(s.run(strings.Fields(args)...), `": `, `":`); !strings.Contains(out, wanted) {
			t.Errorf("llmguard %s prints %s, want %s in it", args, out, wanted)
		}
	}
}

// checkLabelSums checks that the sums by each label are those of the ledger's entries.
func (s *stack) checkLabelSums(org string, labels ...string) {
	s.t.Helper()
	store := budget.New(s.redis.DB(), budget.Options{})
	entries := s.entries(org)
	for _, label := range labels {
		type sum struct {
			cost  pricing.Nano
			calls int64
		}
		wanted, got := map[string]sum{}, map[string]sum{}
		for _, e := range entries {
			at := wanted[e.Labels.Get(label)]
			wanted[e.Labels.Get(label)] = sum{at.cost + e.Cost, at.calls + 1}
		}
		list, err := store.Ledger.LabelRollups(s.t.Context(), org, label, time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range list {
			at := got[r.Value]
			got[r.Value] = sum{at.cost + r.Cost, at.calls + r.Calls}
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			s.t.Errorf("sums by %s are %v, those of the entries %v", label, got, wanted)
		}
	}
}

// TestLabelsQueued: a job keeps the labels it was submitted with, and limits by them count it when
// it runs. Values beyond max_values count together.
func TestLabelsQueued(t *testing.T) {
	t.Parallel()
	s := labeled(t, "", `[{name: per-project, subject: project, metric: requests, amount: 1, window: 2s, exact: true}]`)
	s.replace("over_limit: refuse", "over_limit: wait")
	p := s.proxy()
	s.worker()
	body := chat("gpt-4o-mini", "hi", small)
	var jobs []string
	for i := range 6 {
		a := post(p.URL+"/chat/completions", s.keys["alice"], body, "Prefer", "respond-async", "X-Project", fmt.Sprint("p", i%2), "X-Session", fmt.Sprint("s", i))
		want(t, "a job", a, 202, "")
		var job struct {
			ID     string            `json:"id"`
			Labels map[string]string `json:"labels"`
		}
		if err := json.Unmarshal([]byte(a.body), &job); err != nil {
			t.Fatal(err)
		}
		if job.Labels["project"] != fmt.Sprint("p", i%2) || job.Labels["run"] != "nightly" {
			t.Errorf("job %d has labels %v, want its project and run", i, job.Labels)
		}
		jobs = append(jobs, job.ID)
	}
	got := map[string]int{}
	for _, e := range s.settled("acme", len(jobs)) {
		got[e.Labels.Get("project")+" "+e.Labels.Get("session")]++
	}
	for _, one := range []string{"p0 s0", "p1 s1", "p0 s2", "p1 s3", "p0 s4", "p1 (other)"} {
		if got[one] != 1 {
			t.Errorf("the ledger has %d calls with %s, want 1: %v", got[one], one, got)
		}
	}
	s.checkLabelSums("acme", "project", "session")
}

// TestLabelsBatch: the lines of a batch have its labels, and their own where a label comes from the
// body.
func TestLabelsBatch(t *testing.T) {
	t.Parallel()
	s := labeled(t, fmt.Sprintf(`files: {store: %q}
queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}`, t.TempDir()),
		`[{name: per-session, subject: [project, session], metric: tokens, amount: 100000, window: 1h}]`)
	p := s.proxy()
	s.worker()
	line := func(id, metadata string) string {
		return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"hi"}]%s}}`+"\n", id, metadata)
	}
	file := s.uploadText(p, line("a", "")+line("b", `,"metadata":{"session":"s1"}`)+line("c", `,"metadata":{"session":"s2","project":"other"}`))
	create := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h","metadata":{"session":"whole"}}`, file)
	a := post(p.URL+"/batches", s.keys["alice"], create, "X-Project", "mobile")
	want(t, "a batch", a, 200, "")
	var b openai.Batch
	if err := json.Unmarshal([]byte(a.body), &b); err != nil {
		t.Fatal(err)
	}
	if b = s.awaitBatch(p, b.ID, func(b openai.Batch) bool { return terminal(b.Status) }); b.Status != "completed" {
		t.Fatalf("the batch is %s: %+v", b.Status, b.Errors)
	}
	got := map[string]int{}
	for _, e := range s.settled("acme", 3) {
		got[e.Labels.Get("project")+" "+e.Labels.Get("session")]++
	}
	if want := map[string]int{"mobile whole": 1, "mobile s1": 1, "mobile s2": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lines have %v, want %v", got, want)
	}
	a = post(p.URL+"/batches", s.keys["alice"], create)
	want(t, "a batch without a project", a, 200, "") // its lines may have one
	if err := json.Unmarshal([]byte(a.body), &b); err != nil {
		t.Fatal(err)
	}
	if b = s.awaitBatch(p, b.ID, func(b openai.Batch) bool { return terminal(b.Status) }); b.Status != "failed" || b.Errors == nil || b.Errors.Data[0].Code != "missing_label" {
		t.Errorf("a batch whose lines have no project is %s: %+v, want failed with missing_label", b.Status, b.Errors)
	}
}

// uploadText uploads the input file of a batch.
func (s *stack) uploadText(p *process, text string) string {
	s.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("purpose", "batch")
	part, _ := form.CreateFormFile("file", "in.jsonl")
	_, _ = part.Write([]byte(text))
	_ = form.Close()
	req, err := http.NewRequest(http.MethodPost, p.URL+"/files", &body)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	a := do(req)
	var f openai.File
	if err := json.Unmarshal([]byte(a.body), &f); err != nil || f.ID == "" {
		s.t.Fatalf("%d %v: %s", a.status, err, a.body)
	}
	return f.ID
}
