package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// TestBatchByProviderKilled: the provider's own Batch API runs the lines, while workers and
// Redis are killed and every other response to an upload or a creation is lost. Each line is
// sent once, has one result, and is charged the provider's batch price.
func TestBatchByProviderKilled(t *testing.T) {
	t.Parallel()
	lines, shots := either(200, 1500), either(4, 6)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newStack(t, fakeprovider.Options{LogSize: 6 * lines}, fmt.Sprintf("files: {store: %q}\nqueue: {lease: 3s}\nbatches: {poll: 200ms, doubt: 2s}\n", t.TempDir())+
		strings.Replace(simple("[{name: w, subject: org, amount: $1000, window: 1h}]"), "  - id: acme\n", "  - id: acme\n    batch_mode: provider\n", 1))
	var uploads, creations atomic.Int64
	s.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		asked := map[string]*atomic.Int64{"/v1/files": &uploads, "/v1/batches": &creations}[q.Path]
		if q.Method == http.MethodPost && asked != nil && asked.Add(1)%2 == 1 {
			return fakeprovider.Behaviour{Cut: fakeprovider.CutHeaders}
		}
		return fakeprovider.Behaviour{}
	})
	s.fake.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Each: 5 * time.Millisecond} })
	p := s.proxy()
	workers := []*process{s.worker(), s.worker()}
	id := s.batch(p, s.uploadLines(p, lines, ""))
	var shooting sync.WaitGroup
	shooting.Go(func() {
		for i := range shots {
			time.Sleep(time.Duration(100+rng.IntN(either(400, 900))) * time.Millisecond)
			if i == shots-2 {
				s.redis.Restart()
				continue
			}
			workers[i%2].kill()
			workers[i%2] = s.worker()
		}
	})
	redistest.Wait(t, shooting.Wait)
	b := s.awaitBatch(p, id, func(b openai.Batch) bool { return terminal(b.Status) })
	if b.Status != "completed" || b.OutputFileID == nil || b.RequestCounts != (openai.BatchRequestCounts{Total: lines, Completed: lines}) {
		t.Fatalf("%+v; errors: %s", b, s.errorsOf(p, b))
	}
	results := s.eachLine(t, p, *b.OutputFileID, map[string]bool{})
	if len(results) != lines {
		t.Errorf("%d results for %d lines", len(results), lines)
	}
	if made := s.fake.Batches(); len(made) != 1 || made[0].Total != lines {
		t.Errorf("batches at the provider: %+v", made)
	}
	s.checkHalfPrice(results)
}

// checkHalfPrice checks that the ledger has the provider's own cost of each line, at its batch
// price, and nothing else.
func (s *stack) checkHalfPrice(lines []resultLine) {
	s.t.Helper()
	catalogue, err := pricing.Embedded()
	if err != nil {
		s.t.Fatal(err)
	}
	price, err := catalogue.Lookup("openai", "gpt-4o-mini", time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	served := map[string]fakeprovider.Record{}
	for _, r := range s.fake.Log() {
		served[r.RequestID] = r
	}
	charged := map[string]ledger.Entry{}
	entries := s.entries("acme")
	for _, e := range entries {
		charged[e.UpstreamID] = e
	}
	for _, line := range lines {
		e, u := charged[line.Response.RequestID], served[line.Response.RequestID].Usage
		want, err := price.Charge(pricing.Usage{Input: u.Prompt, CachedInput: u.Cached, Output: u.Completion, Requests: 1}, pricing.Terms{Batch: true})
		if err != nil || e.Estimated || e.Total != want || want == 0 {
			s.t.Errorf("%s: %v, ledger %+v, the provider says %v", line.CustomID, err, e, want)
		}
	}
	if len(entries) != len(lines) {
		s.t.Errorf("%d entries for %d lines", len(entries), len(lines))
	}
}
