package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// result is a line of an output or error file.
type result struct {
	ID       string    `json:"id"`
	CustomID string    `json:"custom_id"`
	Response *response `json:"response"`
	Error    *failure  `json:"error"`
	// Attempts is how often a failed line was tried; OpenAI has no such member.
	Attempts int `json:"attempts,omitempty"`

	usage   wire.Usage
	charged int64 // if the sum of the batch does not have it, because an earlier version put the line
}

type response struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"`
	Body       json.RawMessage `json:"body"`
}

// failure is why a line never ran.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *result) good() bool {
	return r.Response != nil && r.Response.StatusCode < http.StatusMultipleChoices
}

func (t *turn) newResult(line int, customID string) result {
	sum := sha256.Sum256([]byte(t.b.ID + " " + strconv.Itoa(line)))
	return result{ID: "batch_req_" + hex.EncodeToString(sum[:12]), CustomID: customID}
}

// refusal returns the result of a line that was refused before it ran.
func (t *turn) refusal(line int, customID string, e *wire.Error) result {
	r := t.newResult(line, customID)
	r.Response = &response{StatusCode: e.Status, Body: e.JSON()}
	return r
}

// unrun returns the result of a line that never ran.
func (t *turn) unrun(line int, customID string) result {
	r := t.newResult(line, customID)
	r.Error = &failure{CodeExpired, "This request could not be executed before the completion window expired."}
	if t.b.Status == Cancelling {
		r.Error = &failure{CodeCancelled, "This request was not executed because the batch was cancelled."}
	}
	return r
}

// resultOf returns the result of a job that has ended. A nil job is one that is forgotten.
func (t *turn) resultOf(ctx context.Context, line int, j *queue.Job) (result, error) {
	r := t.newResult(line, t.ids[line])
	if !ran(j) {
		if j == nil && t.b.Status != Cancelling {
			r.Error = &failure{CodeLost, "The result of this request expired before it could be written."}
			return r, nil
		}
		r = t.unrun(line, r.CustomID)
		if j != nil { // tried, but not to its end
			r.charged, r.Attempts = apart(j), j.Attempt
		}
		return r, nil
	}
	r.charged = apart(j)
	answer, err := t.r.opts.Queue.Result(ctx, j)
	switch {
	case err == nil && (j.State == queue.Succeeded || answer.Status >= http.StatusBadRequest):
		r.Response = &response{
			StatusCode: answer.Status, RequestID: answer.Header.Get("X-Request-Id"),
			Body: document(answer.Body),
		}
		if a, ok := wire.ParseUsage(j.Endpoint, answer.Body); ok && r.good() {
			r.usage = a.Usage
		}
	case err != nil && !errors.Is(err, queue.ErrNotFound):
		return r, err
	case j.Error != nil:
		r.Response = &response{StatusCode: j.Error.Status, Body: j.Error.JSON()}
	default:
		r.Error = &failure{CodeLost, "The result of this request expired before it could be written."}
	}
	if r.Response != nil && r.Response.RequestID == "" {
		r.Response.RequestID = j.CallID
	}
	if !r.good() {
		r.Attempts = j.Attempt
	}
	return r, nil
}

// apart returns what a job was charged that the ledger did not add to its batch.
func apart(j *queue.Job) int64 {
	if j.Batch != "" {
		return 0
	}
	return int64(j.Charged)
}

// document converts any answer to one JSON value.
func document(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	text, _ := json.Marshal(string(body)) // cannot fail for a string
	return text
}

// chunk is a part of the results: one blob for each of the two files, created with its
// first line. It counts once a step has committed it.
type chunk struct {
	t             *turn
	output, other *blob.Writer
	buf           bytes.Buffer

	good, bad, unrun int64
	usage            wire.Usage
	charged          int64
}

func (t *turn) newChunk() *chunk { return &chunk{t: t} }

// Kinds of chunks: the first letter of their entries in the list.
const (
	outputKind = "o"
	errorKind  = "e"
)

// name returns the name of a blob. It includes the token, so that a process that lost the
// batch cannot overwrite what its successor wrote.
func (c *chunk) name(kind string) string {
	return fmt.Sprintf("%s%d-%s-%s", chunkPrefix(c.t.b), c.t.b.step+1, c.t.token, kind)
}

func chunkPrefix(b *Batch) string { return b.Org + "/" + b.ID + "/" }

func (c *chunk) add(ctx context.Context, r result) error {
	into, kind := &c.other, errorKind
	switch {
	case r.good():
		into, kind = &c.output, outputKind
		c.good++
	case r.Response != nil:
		c.bad++
	default:
		c.unrun++
	}
	c.charged += r.charged
	c.usage.Input += r.usage.Input
	c.usage.CachedInput += r.usage.CachedInput
	c.usage.Output += r.usage.Output
	c.usage.Reasoning += r.usage.Reasoning
	if *into == nil {
		w, err := c.t.r.s.files.Blobs().Create(ctx, c.name(kind))
		if err != nil {
			return err
		}
		*into = w
	}
	c.buf.Reset()
	enc := json.NewEncoder(&c.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("batch: result of %q: %w", r.CustomID, err)
	}
	if _, err := (*into).Write(c.buf.Bytes()); err != nil {
		return fmt.Errorf("batch: chunk: %w", err)
	}
	return nil
}

func (c *chunk) size() (n int64) {
	for _, w := range []*blob.Writer{c.output, c.other} {
		if w != nil {
			n += w.Size()
		}
	}
	return n
}

func (c *chunk) abort() {
	for _, w := range []*blob.Writer{c.output, c.other} {
		if w != nil {
			w.Abort()
		}
	}
}

// commit writes a step together with results that need no job.
func (t *turn) commit(ctx context.Context, st *step, results []result, from ...Status) error {
	c := t.newChunk()
	defer c.abort()
	for _, r := range results {
		if err := c.add(ctx, r); err != nil {
			return err
		}
	}
	return t.commitChunk(ctx, st, c, from...)
}

// commitChunk makes the chunk's blobs durable and writes the step that counts them.
func (t *turn) commitChunk(ctx context.Context, st *step, c *chunk, from ...Status) error {
	for _, p := range []struct {
		w    *blob.Writer
		kind string
	}{{c.output, outputKind}, {c.other, errorKind}} {
		if p.w == nil {
			continue
		}
		if err := p.w.Commit(); err != nil {
			return err
		}
		st.Push = append(st.Push, p.kind+" "+c.name(p.kind))
	}
	st.inc("succeeded", c.good)
	st.inc("unsuccessful", c.bad)
	st.inc("charged", c.charged)
	st.inc("input_tokens", c.usage.Input)
	st.inc("cached_tokens", c.usage.CachedInput)
	st.inc("output_tokens", c.usage.Output)
	st.inc("reasoning_tokens", c.usage.Reasoning)
	if err := t.write(ctx, *st, from...); err != nil {
		return err
	}
	t.b.Succeeded, t.b.Unsuccessful = t.b.Succeeded+c.good, t.b.Unsuccessful+c.bad
	t.r.metrics.count(c)
	return nil
}
