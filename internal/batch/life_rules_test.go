package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestBatchRules shares one Redis between its parts, and a runner where possible.
func TestBatchRules(t *testing.T) {
	h := newHouse(t)
	t.Run("a new record", h.testRecord)
	t.Run("foreign", h.testForeign)
	t.Run("without a worker", func(t *testing.T) {
		early := h.cancelEarly(t)
		h.store.Bound(batch.Bounds{Lines: 12})
		h.runner(t, batch.Options{MaxLine: 1000, InQueue: 5})
		t.Run("cancel before it runs", func(t *testing.T) { h.testCancelEarly(t, early) })
		t.Run("bounds", h.testBounds)
		t.Run("cancel while it runs", h.testCancelRunning)
	})
	h.store.Bound(batch.Bounds{})
	t.Run("with a worker", func(t *testing.T) {
		h.worker(t)
		t.Run("files", h.testFiles)
		t.Run("restart", h.testRestart)
	})
}

// A new batch has what it was created with, and 24 hours.
func (h *house) testRecord(t *testing.T) {
	b := h.create(t, "record", many(1))
	if b.Status != batch.Validating || b.Expires.Sub(b.Created) != 24*time.Hour || b.OutputTTL != 2*time.Hour {
		t.Errorf("got %s until %s, files for %s", b.Status, b.Expires.Sub(b.Created), b.OutputTTL)
	}
	if b.Key != "k1" || b.IP != "10.0.0.7" || !slices.Equal(b.Models, []string{"gpt-*"}) ||
		!maps.Equal(b.Metadata, map[string]string{"team": "blue"}) {
		t.Errorf("got %+v", b)
	}
	if b.Endpoint != wire.ChatCompletions || b.Model != "" || b.Total != 0 || !b.Ended().IsZero() ||
		b.Input == "" || b.Output+b.Errors != "" {
		t.Errorf("got %+v, want nothing known yet", b)
	}
}

// A batch belongs to its user: others cannot read, cancel or list it.
func (h *house) testForeign(t *testing.T) {
	b := h.create(t, "foreign", many(1))
	second := h.create(t, "foreign", many(1))
	for _, who := range [][2]string{{"record", "alice"}, {"foreign", "bob"}, {"foreign", ""}, {"", "alice"}} {
		_, err := h.store.Batch(t.Context(), who[0], who[1], b.ID)
		_, errCancel := h.store.Cancel(t.Context(), who[0], who[1], b.ID)
		_, _, errList := h.store.List(t.Context(), who[0], who[1], b.ID, 10)
		if !errors.Is(err, batch.ErrNotFound) || !errors.Is(errCancel, batch.ErrNotFound) ||
			!errors.Is(errList, batch.ErrNotFound) {
			t.Errorf("%v: got %v, %v, %v, want no such batch", who, err, errCancel, errList)
		}
	}
	list, more, err := h.store.List(t.Context(), "foreign", "alice", "", 1)
	if err != nil || !more || len(list) != 1 || list[0].ID != second.ID {
		t.Errorf("first page: got %v, %v, %v, want the newest and more", list, more, err)
	}
	list, more, err = h.store.List(t.Context(), "foreign", "alice", second.ID, 1)
	if err != nil || more || len(list) != 1 || list[0].ID != b.ID {
		t.Errorf("second page: got %v, %v, %v, want the other and no more", list, more, err)
	}
}

// cancelEarly cancels, twice, a batch that no process has seen yet.
func (h *house) cancelEarly(t *testing.T) *batch.Batch {
	b := h.create(t, "cancel", many(3))
	for range 2 {
		got, err := h.store.Cancel(t.Context(), b.Org, b.User, b.ID)
		if err != nil || got.Status != batch.Cancelling || got.CancelAsked.IsZero() || !got.Ended().IsZero() {
			t.Fatalf("got %+v, %v, want cancelling", got, err)
		}
	}
	return b
}

// A batch cancelled before a process has read its file ends without any file.
func (h *house) testCancelEarly(t *testing.T, b *batch.Batch) {
	t.Parallel()
	b = h.ended(t, b)
	if b.Status != batch.Cancelled || b.Total != 0 || b.Output+b.Errors != "" || b.Ended() != b.Cancelled {
		t.Errorf("got %+v, want cancelled without files", b)
	}
}

// Lines are counted up to the limit. One more, or a mistake, fails the batch, and a failed
// batch can no longer be cancelled.
func (h *house) testBounds(t *testing.T) {
	t.Parallel()
	made := map[*batch.Batch]string{}
	for text, want := range map[string]string{
		many(13): "13 too_many_tasks : The file has more than 12 requests.",
		many(2) + "\n" + lineOf("x", "gpt-4o-mini", "gpt-4o"): `4 model_mismatch body.model: All lines must use the same model; this line uses "gpt-4o", the first line "gpt-4o-mini".`,
		good("a") + "\n" + lineOf("b", "/v1/chat/completions", "/v1/embeddings"): "2 url_mismatch url: " +
			"The url of every line must be the endpoint of the batch, /v1/chat/completions.",
		"\n": "0 empty_file : The file is empty. It must contain at least one request.",
		strings.ReplaceAll(good("a"), "gpt-4o-mini", "o3"): "1 model_not_found body.model: The model ",
	} {
		made[h.create(t, "bounds", text)] = want
	}
	for b, want := range made {
		b = h.ended(t, b)
		if b.Status != batch.Failed || len(b.Problems) != 1 || !strings.HasPrefix(brief(b.Problems[0]), want) ||
			b.Ended() != b.Failed || b.Output+b.Errors != "" {
			t.Errorf("got %s, %v, want failed: %s", b.Status, b.Problems, want)
		}
		again, err := h.store.Cancel(t.Context(), b.Org, b.User, b.ID)
		if err != nil || again.Status != batch.Failed || !again.CancelAsked.IsZero() {
			t.Errorf("cancelled: got %s, %v, want failed as it was", again.Status, err)
		}
	}
}

// If a batch is cancelled while its lines wait, each of them is in the error file, once.
func (h *house) testCancelRunning(t *testing.T) {
	t.Parallel()
	b := h.create(t, "cancel", many(12)) // the maximum number
	b = h.await(t, b, "in progress", func(b *batch.Batch) bool { return b.Status == batch.InProgress })
	if b.Total != 12 || b.Model != "gpt-4o-mini" || b.Estimate <= 0 || b.Started.IsZero() {
		t.Errorf("checked: got %+v", b)
	}
	_, err := h.store.Cancel(t.Context(), b.Org, b.User, b.ID)
	must(t, err)
	b = h.ended(t, b)
	if b.Status != batch.Cancelled || b.Total != 12 || b.Succeeded != 0 || b.Unsuccessful != 0 || b.Charged != 0 ||
		b.Output != "" {
		t.Errorf("got %+v, want cancelled and nothing charged", b)
	}
	lines, seen := h.lines(t, b, b.Errors), map[string]bool{}
	for _, l := range lines {
		seen[l.CustomID] = true
		if l.Response != nil || l.Error == nil || l.Error.Code != "batch_cancelled" || l.Error.Message == "" ||
			!strings.HasPrefix(l.ID, "batch_req_") {
			t.Errorf("%s: got %+v, want batch_cancelled", l.CustomID, l)
		}
	}
	if len(seen) != 12 || len(lines) != 12 {
		t.Errorf("got %d lines with %d ids, want 12", len(lines), len(seen))
	}
}

// Each line that ran is in one file, with the answer as the provider gave it, and the Ended
// callback reports the end.
func (h *house) testFiles(t *testing.T) {
	ends := make(chan *batch.Batch, 100)
	stop := h.runner(t, batch.Options{Ended: func(_ context.Context, b *batch.Batch) error {
		if b.Org == "files" {
			ends <- b
		}
		return nil
	}})
	defer stop()
	refused := strings.Replace(good("bad"), `"max_tokens":5`, `"max_tokens":5,"response_format":{"type":"xml"}`, 1)
	b := h.ended(t, h.create(t, "files", many(3)+refused+"\n"))
	output, errs := h.lines(t, b, b.Output), h.lines(t, b, b.Errors)
	if b.Status != batch.Completed || b.Total != 4 || int(b.Succeeded) != len(output) ||
		int(b.Unsuccessful) != len(errs) || len(output)+len(errs) != 4 {
		t.Fatalf("got %s, %d of %d and %d, with %d and %d lines", b.Status, b.Succeeded, b.Total, b.Unsuccessful,
			len(output), len(errs))
	}
	var ids []string
	for _, l := range append(output, errs...) {
		ids = append(ids, l.CustomID)
		if l.Response == nil || l.Response.ID == "" || !json.Valid(l.Response.Body) || l.Error != nil {
			t.Errorf("%s: got %+v, want an answer", l.CustomID, l)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"bad", "r00", "r01", "r02"}) {
		t.Errorf("got %v, want each line once", ids)
	}
	if b.Charged <= 0 || b.Charged > b.Estimate || b.InputTokens == 0 || b.OutputTokens == 0 ||
		b.Ended() != b.Completed {
		t.Errorf("got %+v", b)
	}
	f, err := h.files.File(t.Context(), files.Owner{Org: "files", User: "alice"}, b.Output)
	if err != nil || f.Name != b.ID+"_output.jsonl" || f.Purpose != files.BatchOutput {
		t.Errorf("got %+v, %v, want the output file of the batch", f, err)
	}
	if told := redistest.Came(t, ends); told.ID != b.ID || told.Status != batch.Completed || told.Output != b.Output {
		t.Errorf("told of %+v, want %+v", told, b)
	}
	again, err := h.store.Cancel(t.Context(), b.Org, b.User, b.ID)
	if err != nil || again.Status != batch.Completed || !again.CancelAsked.IsZero() {
		t.Errorf("cancelled at its end: got %s, %v, want completed as it was", again.Status, err)
	}
}

// A process that stops while a batch is in any state leaves it to the next one.
func (h *house) testRestart(t *testing.T) {
	o := batch.Options{InQueue: 2, Lease: 300 * time.Millisecond}
	b := h.create(t, "restart", many(6)) // validating, without a process
	stop := h.runner(t, o)
	h.await(t, b, "checked", func(b *batch.Batch) bool { return b.Status != batch.Validating })
	stop()
	stop = h.runner(t, o)
	h.await(t, b, "running", func(b *batch.Batch) bool {
		done, _ := b.Done()
		return done > 0
	})
	stop()
	cancelled := h.create(t, "restart", many(6))
	_, err := h.store.Cancel(t.Context(), cancelled.Org, cancelled.User, cancelled.ID)
	must(t, err)
	stop = h.runner(t, o)
	defer stop()
	b = h.ended(t, b)
	if b.Status != batch.Completed || b.Succeeded != 6 || len(h.lines(t, b, b.Output)) != 6 || b.Errors != "" {
		t.Errorf("got %s, %d succeeded, want all six once", b.Status, b.Succeeded)
	}
	if got := h.ended(t, cancelled); got.Status != batch.Cancelled {
		t.Errorf("cancelled without a process: got %s", got.Status)
	}
}
