package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// TestJobCostsWhatTheLedgerSays: a job and a batch cost the sum of their entries in the ledger, at any
// time, however their attempts ended: answered, failed, broken, cancelled, answered by a second attempt
// after the first process was killed, and corrected by hand afterwards.
func TestJobCostsWhatTheLedgerSays(t *testing.T) {
	t.Parallel()
	s := batchStack(t, fakeprovider.Options{})
	s.replace("store: {deadline: 10s}", "store: {deadline: 10s, hold_lease: 5s}")
	g := s.gate(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		switch {
		case strings.Contains(q.UserText, "[fails once]"):
			return fakeprovider.Behaviour{Status: 500, Times: 1}
		case strings.Contains(q.UserText, "[fails]"):
			return fakeprovider.Behaviour{Status: 400}
		case strings.Contains(q.UserText, "[breaks once]"):
			return fakeprovider.Behaviour{Cut: fakeprovider.CutReset, Times: 1}
		}
		return fakeprovider.Behaviour{}
	})
	g.once = true
	p := s.proxy()
	url := func() string { return p.URL }
	put := func(text string, more ...string) string {
		return submit(t, url, s.keys["alice"], chat("gpt-4o-mini", text, `"max_tokens":2000`+strings.Join(more, ""))).ID
	}

	first := s.worker()
	killed, cancelled := put("killed "+gated), put("killed, then cancelled "+gated)
	g.awaitHeld()
	g.awaitHeld()
	batch := s.batch(p, s.uploadLines(p, 3, gated))
	for range 3 {
		g.awaitHeld()
	}
	first.kill()
	if a := post(p.URL+"/jobs/"+cancelled+"/cancel", s.keys["alice"], ""); a.status/100 != 2 {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	s.worker()
	ids := []string{
		killed, cancelled, put("answered"), put("[fails once]"), put("[fails]"), put("[breaks once]"),
		put("[breaks once] as a stream", `,"stream":true`), put("refunded"),
	}
	running := put("cancelled in progress " + gated)
	g.awaitHeld()
	if a := post(p.URL+"/jobs/"+running+"/cancel", s.keys["alice"], ""); a.status/100 != 2 {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	ids = append(ids, running)
	for _, id := range ids {
		awaitJob(t, p.URL, s.keys["alice"], id, time.Minute)
	}
	s.awaitBatch(p, batch, func(b openai.Batch) bool { return terminal(b.Status) })
	s.noHolds()

	lines, refunded := 0, ""
	for _, e := range s.entries("acme") {
		switch {
		case e.Batch == batch:
			lines++
			refunded = e.ID
		case e.JobID == ids[7]:
			s.adjust(e.ID, "-$0.000000001")
		case e.JobID == killed && e.Estimated:
			s.adjust(e.ID, "$0.01")
		}
	}
	if lines != 6 {
		t.Errorf("the batch has %d entries, want two of each of three lines", lines)
	}
	s.adjust(refunded, "$0.02")
	s.costAll(p, append(ids, batch))
	for _, id := range []string{killed, cancelled} {
		if costOf(t, p, s.keys["alice"], id) == "0.000000000" {
			t.Errorf("job %s cost nothing, although its first attempt was charged", id)
		}
	}
}

// noHolds waits until nothing is held: dead attempts are charged.
func (s *stack) noHolds() {
	s.t.Helper()
	until(s.t, "no hold is open", func() bool {
		n, err := s.redis.Client().HLen(s.t.Context(), "lg:{acme}:holds").Result()
		return err == nil && n == 0
	})
}

func (s *stack) adjust(call, amount string) {
	s.t.Helper()
	s.run("usage", "adjust", "--org", "acme", "--call", call, "--amount", amount, "--id", "c-"+call, "--reason", "test")
}

// costOf returns what a job or batch says that it cost.
func costOf(t *testing.T, p *process, key, id string) string {
	t.Helper()
	what := "jobs"
	if strings.HasPrefix(id, "batch_") {
		what = "batches"
	}
	a := fetch(p.URL+"/"+what+"/"+id, key)
	var v struct {
		Charged *string `json:"charged_cost_usd"`
		Guard   struct {
			Charged *string `json:"charged_cost_usd"`
		} `json:"llmguard"`
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", id, a.status, a.body)
	}
	if v.Charged == nil {
		v.Charged = v.Guard.Charged
	}
	if v.Charged == nil {
		return ""
	}
	return *v.Charged
}

// costAll waits until each job or batch, all of which have ended, costs the sum of its entries in the ledger.
func (s *stack) costAll(p *process, ids []string) {
	s.t.Helper()
	charged := make(map[string]pricing.Nano)
	for _, e := range s.entries("acme") {
		charged[e.JobID] += e.Cost
		charged[e.Batch] += e.Cost
	}
	for _, id := range ids {
		want := strings.TrimPrefix(charged[id].String(), "$")
		until(s.t, fmt.Sprint(id, " says that it cost ", want), func() bool { return costOf(s.t, p, s.keys["alice"], id) == want })
	}
}
