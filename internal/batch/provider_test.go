package batch

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// handoverForm is a form of the providers' Batch APIs.
type handoverForm struct {
	endpoint wire.Endpoint
	creation string // path of the request that creates a batch
	line     func(id, content string) string
}

var (
	openaiForm    = handoverForm{wire.ChatCompletions, "/v1/batches", chat}
	anthropicForm = handoverForm{wire.Messages, "/v1/messages/batches", message}
)

// eachForm runs a test with every form.
func eachForm(t *testing.T, test func(t *testing.T, f handoverForm)) {
	for name, f := range map[string]handoverForm{"openai": openaiForm, "anthropic": anthropicForm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// lines returns n lines with a short text. Their ids are not what Anthropic accepts.
func (f handoverForm) lines(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(f.line(fmt.Sprintf("r %d", i), "hello") + "\n")
	}
	return text.String()
}

// messageLine returns a line with a request to the Messages API.
func messageLine(id, body string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/messages","body":%s}`, id, body)
}

func message(id, content string) string {
	return messageLine(id, fmt.Sprintf(`{"model":"claude-opus-5","max_tokens":5,"messages":[{"role":"user","content":%q}]}`, content))
}

// newHandover returns a rig whose org has its batches run by the provider.
func newHandover(t *testing.T, limits ...budget.Limit) *rig {
	t.Helper()
	r := newRig(t, limits...)
	r.org.BatchMode = guard.ByProvider
	return r
}

func (r *rig) handover() Options {
	o := r.options()
	o.Poll, o.Doubt = 20*time.Millisecond, 300*time.Millisecond
	return o
}

// owed returns what the lines cost at batch prices according to the provider's own log, and
// how many had usage.
func (r *rig) owed() (sum pricing.Nano, calls int) {
	r.t.Helper()
	catalogue, err := pricing.Embedded()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, rec := range r.fake.Log() {
		if rec.Reported == "" {
			continue
		}
		calls++
		provider := map[string]string{"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}[rec.Path]
		price, err := catalogue.Lookup(provider, rec.AnswerModel, rec.At)
		if err != nil {
			r.t.Fatal(err)
		}
		cost, err := price.Charge(pricing.Usage{
			Input: rec.Usage.Prompt, CachedInput: rec.Usage.Cached, Output: rec.Usage.Completion, Reasoning: rec.Usage.Reasoning, Requests: 1,
		}, pricing.Terms{Batch: true, At: rec.At})
		if err != nil {
			r.t.Fatal(err)
		}
		sum += cost
	}
	return sum, calls
}

// books adds up the org's ledger, and checks that nothing is held any more.
func (r *rig) books() (sum pricing.Nano, calls int) {
	r.t.Helper()
	store := budget.New(redistest.DB(r.rdb), budget.Options{})
	err := store.Ledger.Entries(r.t.Context(), "acme", time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		sum, calls = sum+e.Cost, calls+1
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if n, err := r.rdb.HLen(r.t.Context(), "lg:{acme}:holds").Result(); err != nil || n != 0 {
		r.t.Errorf("%d lines are still held, %v", n, err)
	}
	return sum, calls
}

// paid checks that ledger, batch and provider agree.
func (r *rig) paid(b *Batch) {
	r.t.Helper()
	owed, ran := r.owed()
	booked, entries := r.books()
	if owed != booked || ran != entries || int64(booked) != b.Charged || owed == 0 {
		r.t.Errorf("the provider says %v for %d lines, the ledger %v for %d, the batch %v", owed, ran, booked, entries, pricing.Nano(b.Charged))
	}
}

var purse = budget.Limit{ID: "purse", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Window: time.Hour, Amount: 1e9}}

// TestHandover checks that for a batch run by the provider the caller sees the same as for
// one of ours, at half the price.
func TestHandover(t *testing.T) { eachForm(t, testHandover) }

func testHandover(t *testing.T, form handoverForm) {
	r := newHandover(t, purse, budget.Limit{ID: "few", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 1}})
	o := r.handover()
	o.PartLines = 100
	r.runner(o)
	b := r.ended(r.create(r.upload(form.lines(250)+form.line("bad", "[fake: status=400]")), form.endpoint).ID)
	output, errs := r.results(b)
	if b.Status != Completed || b.Total != 251 || len(output) != 250 || len(errs) != 1 || b.Succeeded != 250 || b.Unsuccessful != 1 {
		t.Fatalf("%s: %d+%d lines, %d+%d of %d", b.Status, len(output), len(errs), b.Succeeded, b.Unsuccessful, b.Total)
	}
	for id, res := range output {
		if a, ok := wire.ParseUsage(form.endpoint, res.Response.Body); !ok || a.Usage.Output == 0 || res.Response.RequestID == "" || res.Error != nil || !strings.HasPrefix(res.ID, "batch_req_") {
			t.Fatalf("%s: %+v", id, res)
		}
	}
	if bad := errs["bad"]; bad.Response == nil || bad.Response.StatusCode != http.StatusBadRequest || !strings.Contains(string(bad.Response.Body), `"error"`) {
		t.Errorf("the bad line has %+v, want status 400 with an error", bad)
	}
	if n := len(r.fake.Batches()); n != 3 {
		t.Errorf("%d batches at the provider for 251 lines, 100 at a time", n)
	}
	for _, one := range r.fake.Batches() {
		if form.endpoint == wire.Messages && one.Status != "deleted" {
			t.Errorf("%+v is left at the provider", one)
		}
	}
	if files := r.fake.Files(); len(files) != 0 {
		t.Errorf("%d files are left at the provider", len(files))
	}
	if b.InputTokens == 0 || b.Charged > b.Estimate {
		t.Errorf("%d tokens, charged %d of at most %d", b.InputTokens, b.Charged, b.Estimate)
	}
	r.paid(b)
	r.leavesNothing(b)
}

// TestHandoverTakeover checks that every line runs once, has one result and is paid once,
// although the driving process may die before and after every step, and answers of the
// provider may be lost after it did its work.
func TestHandoverTakeover(t *testing.T) { eachForm(t, testHandoverTakeover) }

func testHandoverTakeover(t *testing.T, form handoverForm) {
	r := newHandover(t, purse)
	const lines = 200
	var uploads, creations atomic.Int64
	r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		asked := map[string]*atomic.Int64{"/v1/files": &uploads, form.creation: &creations}[q.Path]
		if q.Method == http.MethodPost && asked != nil && asked.Add(1)%2 == 1 {
			return fakeprovider.Behaviour{Cut: fakeprovider.CutHeaders}
		}
		return fakeprovider.Behaviour{}
	})
	o := r.handover()
	o.PartLines = 80
	b := r.create(r.upload(form.lines(lines)), form.endpoint)
	deaths := 0
	for i := 0; !b.Status.Terminal(); i++ {
		if r.drive(o, b.ID, 1+i%3) {
			deaths++
		}
		b = r.await(b.ID, "there", func(*Batch) bool { return true })
	}
	output, errs := r.results(b)
	if b.Status != Completed || len(output) != lines || len(errs) != 0 || b.Succeeded != lines {
		t.Errorf("%s: %d+%d lines, %d succeeded", b.Status, len(output), len(errs), b.Succeeded)
	}
	if n := len(r.fake.Batches()); n != 3 {
		t.Errorf("%d batches at the provider, not 3: %+v", n, r.fake.Batches())
	}
	if deaths < 10 || creations.Load() < 3 {
		t.Errorf("only %d deaths and %d creations", deaths, creations.Load())
	}
	r.paid(b)
}

// TestHandoverEnds checks how the provider's batch can end, and what is then reported and
// paid.
func TestHandoverEnds(t *testing.T) { eachForm(t, testHandoverEnds) }

func testHandoverEnds(t *testing.T, form handoverForm) {
	three := 3
	for name, test := range map[string]struct {
		script  fakeprovider.BatchScript
		cancel  bool
		status  Status
		good    int
		code    string // of lines that did not run
		charged bool   // such lines are charged too
	}{
		"expired there": {script: fakeprovider.BatchScript{Expire: 40}, status: Expired, good: 40, code: "batch_expired"},
		"cancelled":     {script: fakeprovider.BatchScript{Each: 20 * time.Millisecond}, cancel: true, status: Cancelled, good: -1, code: "batch_cancelled"},
		"not taken": {
			script: fakeprovider.BatchScript{Fail: []fakeprovider.BatchProblem{{Code: "invalid_request", Message: "no", Line: &three}}},
			status: Completed, good: 0, code: "batch_failed",
		},
		"lines missing": {script: fakeprovider.BatchScript{Drop: 10}, status: Completed, good: 90, code: "result_lost", charged: true},
		"lines twice":   {script: fakeprovider.BatchScript{Twice: 7}, status: Completed, good: 100},
		"lines cut":     {script: fakeprovider.BatchScript{Cut: 10}, status: Completed, good: 90, code: "result_lost", charged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newHandover(t, purse)
			r.t = t
			r.fake.ScriptBatches(func(int) fakeprovider.BatchScript { return test.script })
			r.runner(r.handover())
			b := r.create(r.upload(form.lines(100)), form.endpoint)
			if test.cancel { // Anthropic's counts change at the end
				redistest.Eventually(t, "lines run", func() bool { return r.fake.Batches() != nil && r.fake.Batches()[0].Total > 0 })
				if _, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil {
					t.Fatal(err)
				}
			}
			b = r.ended(b.ID)
			output, errs := r.results(b)
			if b.Status != test.status || len(output)+len(errs) != 100 || test.good >= 0 && len(output) != test.good || int(b.Succeeded) != len(output) {
				t.Fatalf("%s: %d+%d lines, %d succeeded", b.Status, len(output), len(errs), b.Succeeded)
			}
			if succeeded, failed := b.Done(); succeeded+failed != 100 || int(failed) != len(errs) {
				t.Errorf("%d succeeded and %d failed of %d", succeeded, failed, b.Total)
			}
			told := 0
			for id, res := range errs {
				if res.Response != nil || res.Error == nil || res.Error.Code != test.code && res.Error.Code != "invalid_request" {
					t.Fatalf("%s: %+v", id, res.Error)
				}
				if res.Error.Code == "invalid_request" {
					told++
				}
			}
			if want := len(test.script.Fail); told != want && form.endpoint != wire.Messages { // which refuses the whole batch
				t.Errorf("%d lines have the provider's own reason, not %d", told, want)
			}
			owed, _ := r.owed()
			booked, entries := r.books()
			if test.charged {
				if entries != 100 || booked <= owed*90/100 || int64(booked) != b.Charged {
					t.Errorf("%d entries, %v", entries, booked)
				}
			} else if owed != booked || int64(booked) != b.Charged {
				t.Errorf("the provider says %v, the ledger %v, the batch %d", owed, booked, b.Charged)
			}
		})
	}
}

// TestHandoverJudgesLines checks that a line with an error is one whatever its status: it is in the
// error file, with the status that it names, and costs nothing.
func TestHandoverJudgesLines(t *testing.T) { eachForm(t, testHandoverJudgesLines) }

func testHandoverJudgesLines(t *testing.T, form handoverForm) {
	r := newHandover(t, purse)
	r.fake.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Fails: 4} })
	r.runner(r.handover())
	b := r.ended(r.create(r.upload(form.lines(20)), form.endpoint).ID)
	output, errs := r.results(b)
	if good, bad := b.Done(); b.Status != Completed || len(output) != 15 || len(errs) != 5 || good != 15 || bad != 5 {
		t.Fatalf("%s: %d+%d lines, %d+%d of %d", b.Status, len(output), len(errs), good, bad, b.Total)
	}
	for id, res := range errs {
		if res.Response == nil || res.Response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: %+v", id, res)
		}
	}
	owed, _ := r.owed()
	if booked, entries := r.books(); entries != 15 || booked >= owed || int64(booked) != b.Charged {
		t.Errorf("%d entries, %v of %v", entries, booked, owed)
	}
}

// TestHandoverWaits checks that a limit without room lets a part go as far as it is paid
// for, and the rest follows; likewise if the account has too much enqueued.
func TestHandoverWaits(t *testing.T) {
	t.Parallel()
	// A line holds about 4,000 nano-USD at batch prices. The refill takes 14 s for all
	// of them: a machine that needs longer to hold them one by one would never wait.
	limit := budget.Limit{ID: "slow", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Bucket, Amount: 100_000, Refill: 10_000, Per: time.Second}}
	r := newHandover(t, limit)
	r.fake.ScriptBatches(func(n int) fakeprovider.BatchScript {
		if n == 1 {
			return fakeprovider.BatchScript{Fail: []fakeprovider.BatchProblem{{Code: "token_limit_exceeded", Message: "Enqueued token limit reached"}}}
		}
		return fakeprovider.BatchScript{}
	})
	r.runner(r.handover())
	b := r.ended(r.create(r.upload(chats(60)), wire.ChatCompletions).ID)
	if output, errs := r.results(b); b.Status != Completed || len(output) != 60 || len(errs) != 0 {
		t.Fatalf("%s: %d+%d lines", b.Status, len(output), len(errs))
	}
	if n := len(r.fake.Batches()); n < 3 {
		t.Errorf("only %d batches at the provider", n)
	}
	r.paid(b)
}

// TestHandoverGivesBack checks that lines that were held and never handed over cost
// nothing, whenever the batch is cancelled.
func TestHandoverGivesBack(t *testing.T) { eachForm(t, testHandoverGivesBack) }

func testHandoverGivesBack(t *testing.T, form handoverForm) {
	for steps := 1; steps <= 8; steps++ {
		t.Run(fmt.Sprint(steps, " steps"), func(t *testing.T) {
			t.Parallel()
			r := newHandover(t, purse)
			r.t = t
			r.fake.ScriptBatches(func(int) fakeprovider.BatchScript { return fakeprovider.BatchScript{Each: time.Millisecond} })
			o := r.handover()
			b := r.create(r.upload(form.lines(50)), form.endpoint)
			r.drive(o, b.ID, steps)
			if _, err := r.store.Cancel(t.Context(), "acme", "alice", b.ID); err != nil {
				t.Fatal(err)
			}
			for !b.Status.Terminal() {
				NewRunner(r.store, o).drive(t.Context(), b.ID, r.take(b.ID, o.Lease))
				b = r.await(b.ID, "there", func(*Batch) bool { return true })
			}
			output, errs := r.results(b)
			if n := len(output) + len(errs); n != 50 && b.Total != 0 {
				t.Errorf("%s: %d lines", b.Status, n)
			}
			owed, _ := r.owed()
			if booked, _ := r.books(); booked != owed {
				t.Errorf("the provider says %v, the ledger %v", owed, booked)
			}
		})
	}
}
