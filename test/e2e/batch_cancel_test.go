package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// TestBatchCancelledInCrash: the processes that drive a batch are killed around the time it is
// cancelled. The batch ends as cancelled, every line is in one of its files, once, and each
// line that ran is charged what the provider reports.
func TestBatchCancelledInCrash(t *testing.T) {
	t.Parallel()
	lines := either(150, 1500)
	s := batchStack(t, fakeprovider.Options{LogSize: 6 * lines})
	s.replace("queue:", fmt.Sprintf("batches: {in_queue: %d}\nqueue:", lines*2/3)) // so that some lines never become jobs
	var asked atomic.Int64                                                         // calls since the batch began
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if asked.Add(1) > int64(lines/3) { // most are in progress or waiting when the batch is cancelled
			return fakeprovider.Behaviour{Delay: 3 * time.Second}
		}
		return fakeprovider.Behaviour{Delay: 60 * time.Millisecond}
	})
	p := s.proxy()
	workers := []*process{s.worker(), s.worker()}
	cancel := func(id string) {
		if a := post(p.URL+"/batches/"+id+"/cancel", s.keys["alice"], ""); a.status != http.StatusOK {
			t.Fatalf("cancel: %d %s", a.status, a.body)
		}
	}
	shoot := func() {
		for _, w := range workers {
			w.kill()
		}
	}
	for _, test := range []struct {
		name string
		do   func(id string)
	}{
		{"after the crash", func(id string) { shoot(); cancel(id) }},
		{"before the crash", func(id string) { cancel(id); shoot() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked.Store(0)
			id := s.batch(p, s.uploadLines(p, lines, ""))
			s.awaitBatch(p, id, func(b openai.Batch) bool { return b.RequestCounts.Completed > 0 })
			test.do(id)
			for i := range workers {
				workers[i] = s.worker()
			}
			workers[0].kill() // perhaps also the worker that took over
			workers[0] = s.worker()
			b := s.awaitBatch(p, id, func(b openai.Batch) bool { return terminal(b.Status) })
			if b.Status != "cancelled" || b.OutputFileID == nil || b.ErrorFileID == nil || b.RequestCounts.Total != lines {
				t.Fatalf("%+v", b)
			}
			seen := map[string]bool{}
			good := s.eachLine(t, p, *b.OutputFileID, seen)
			bad := s.eachLine(t, p, *b.ErrorFileID, seen)
			if len(seen) != lines || len(good) != b.RequestCounts.Completed {
				t.Errorf("%d results, %d good, for %d lines; counts %+v", len(seen), len(good), lines, b.RequestCounts)
			}
			for _, line := range bad {
				if line.Response == nil && line.Error.Code != "batch_cancelled" {
					t.Errorf("%+v", line)
				}
			}
			s.checkCharged(t, good)
		})
	}
}

// batch creates a batch of chat calls from an uploaded file.
func (s *stack) batch(p *process, file string) string {
	s.t.Helper()
	a := post(p.URL+"/batches", s.keys["alice"], fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file))
	var b openai.Batch
	if err := json.Unmarshal([]byte(a.body), &b); err != nil || a.status != http.StatusOK {
		s.t.Fatalf("%d %v: %s", a.status, err, a.body)
	}
	return b.ID
}

func terminal(status string) bool {
	return status == "completed" || status == "failed" || status == "expired" || status == "cancelled"
}

// awaitBatch waits until a batch satisfies as. It retries while the store is unavailable.
func (s *stack) awaitBatch(p *process, id string, as func(openai.Batch) bool) (b openai.Batch) {
	s.t.Helper()
	for range 2400 {
		a := get(p.URL+"/batches/"+id, s.keys["alice"])
		if a.status == http.StatusOK {
			if err := json.Unmarshal([]byte(a.body), &b); err != nil {
				s.t.Fatalf("%v: %s", err, a.body)
			}
			if as(b) {
				return b
			}
		} else if a.err == nil && a.status != http.StatusServiceUnavailable {
			s.t.Fatalf("%d %s", a.status, a.body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("the batch never is as wanted: %+v", b)
	return b
}

// resultLine is a line of an output or error file.
type resultLine struct {
	CustomID string `json:"custom_id"`
	Response *struct {
		StatusCode int             `json:"status_code"`
		RequestID  string          `json:"request_id"`
		Body       json.RawMessage `json:"body"`
	} `json:"response"`
	Error *struct {
		Code string `json:"code"`
	} `json:"error"`
}

// eachLine reads a result file; a line that was seen before fails the test.
func (s *stack) eachLine(t *testing.T, p *process, file string, seen map[string]bool) (list []resultLine) {
	t.Helper()
	for text := range strings.Lines(fetch(p.URL+"/files/"+file+"/content", s.keys["alice"]).body) {
		var line resultLine
		if err := json.Unmarshal([]byte(text), &line); err != nil || seen[line.CustomID] {
			t.Fatalf("%v, twice %v: %s", err, seen[line.CustomID], text)
		}
		seen[line.CustomID] = true
		list = append(list, line)
	}
	return list
}

// checkCharged checks that the ledger has the provider's own cost of each line.
func (s *stack) checkCharged(t *testing.T, lines []resultLine) {
	t.Helper()
	served := map[string]fakeprovider.Record{}
	for _, r := range s.fake.Log() {
		served[r.RequestID] = r
	}
	charged := map[string]ledger.Entry{}
	for _, e := range s.entries("acme") {
		charged[e.UpstreamID] = e
	}
	for _, line := range lines {
		e, r := charged[line.Response.RequestID], served[line.Response.RequestID]
		if want := bill(t, []fakeprovider.Record{r}); e.Estimated || e.Total != want || want == 0 {
			t.Errorf("%s: ledger %+v, the provider says %v", line.CustomID, e, want)
		}
	}
	t.Logf("%d requests at the provider, %d results", len(served), len(lines))
}
