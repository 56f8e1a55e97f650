package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// endless counts how much of an endless value is read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, bytes.Repeat([]byte{'x'}, len(p))), nil
}

// TestWriteRequests: each request is one line of the input file, byte for byte but for spaces, and the whole body
// is never in memory: reading stops when one request is too long.
func TestWriteRequests(t *testing.T) {
	t.Parallel()
	s := &Store{}
	var out bytes.Buffer
	n, err := s.WriteRequests(&out, strings.NewReader(`{ "requests": [
		{"params": {"messages": [ {"role": "user", "content": "<a>\n\u00e9\u2028 é"} ],
			"max_tokens": 5, "model": "gpt-4o", "top_p": 0.10}, "custom_id": "a-_9"}, {"custom_id": "b",
			"params": {"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}} ] } `), 1000, wire.Limits{})
	want := `{"custom_id":"a-_9","method":"POST","url":"/v1/messages","body":{"messages":[{"role":"user","content":"<a>\n\u00e9\u2028 é"}],"max_tokens":5,"model":"gpt-4o","top_p":0.10}}
{"custom_id":"b","method":"POST","url":"/v1/messages","body":{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}}
`
	if err != nil || n != 2 || out.String() != want {
		t.Errorf("got %d, %v:\n%swant\n%s", n, err, &out, want)
	}
	for _, begin := range []string{``, ` `, `{"requests":[`, `{"requests":[{"custom_id":"`, `{"requests":[{"custom_id":"a","params":{"model":"`, `{"requests":[{"custom_id":"a","params":{`} {
		e := &endless{}
		_, err := s.WriteRequests(io.Discard, io.MultiReader(strings.NewReader(begin), e), 10_000, wire.Limits{})
		var public *wire.Error
		if !errors.As(err, &public) || public.Status != 400 || e.read > 100_000 {
			t.Errorf("%s: %v after %d bytes", begin, err, e.read)
		}
	}
	broken := errors.New("broken")
	_, err = s.WriteRequests(io.Discard, io.MultiReader(strings.NewReader(`{"requests":[{`), &source{broken}), 10_000, wire.Limits{})
	if !errors.Is(err, broken) {
		t.Errorf("a body that breaks: %v", err)
	}
}

type source struct{ err error }

func (s *source) Read([]byte) (int, error) { return 0, s.err }

// TestResultsWithoutBeginning: a batch that was cancelled or failed before a line ran has a result for each
// line of its input.
func TestResultsWithoutBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	three := 3
	for _, test := range []struct {
		b    Batch
		want string
	}{
		{Batch{Status: Cancelled}, "a batch_cancelled, b batch_cancelled, "},
		{Batch{Status: Failed, Problems: []Problem{{Code: "x", Line: &three}}}, "a batch_failed, b x, "},
		{Batch{Status: Failed, Problems: []Problem{{Code: "insufficient_quota"}}}, "a insufficient_quota, b insufficient_quota, "},
	} {
		b := r.create(r.upload(chat("a", "x")+"\n\n"+chat("b", "x")), wire.ChatCompletions)
		test.b.Input, test.b.Owner = b.Input, b.Owner
		got := ""
		err := r.store.Results(t.Context(), &test.b, func(o *Result) error {
			got += fmt.Sprintf("%s %s, ", o.CustomID, o.Error.Code)
			return nil
		})
		if err != nil || got != test.want {
			t.Errorf("%v: got %s, want %s", err, got, test.want)
		}
	}
}

// TestDelete: a batch is deleted once its end is reported, with its results but without its input, which belongs
// to its caller.
func TestDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.create(r.upload(chat("a", "x")+"\n"+chat("b", "[fake: status=400]")), wire.ChatCompletions)
	if err := r.store.Delete(t.Context(), b); !errors.Is(err, ErrUnfinished) {
		t.Errorf("a new batch: %v", err)
	}
	reported := make(chan struct{})
	o := r.options()
	o.Ended = func(context.Context, *Batch) error { redistest.Came(t, reported); return nil }
	r.runner(o)
	r.worker()
	b = r.ended(b.ID)
	if err := r.store.Delete(t.Context(), b); !errors.Is(err, ErrUnfinished) {
		t.Errorf("a batch that is being reported: %v", err)
	}
	close(reported)
	redistest.Eventually(t, "it can be deleted", func() bool { return r.store.Delete(t.Context(), b) == nil })
	for id, want := range map[string]error{b.Output: files.ErrNotFound, b.Errors: files.ErrNotFound, b.Input: nil} {
		if _, err := r.files.File(t.Context(), alice, id); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", id, err, want)
		}
	}
	if _, err := r.store.Batch(t.Context(), b.Org, b.User, b.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("the deleted batch: %v", err)
	}
	if list, _, err := r.store.List(t.Context(), b.Org, b.User, "", 10); err != nil || len(list) > 0 {
		t.Errorf("%v: the list has %v", err, list)
	}
}
