package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// messageBatch is a batch in Anthropic's format, plus its cost. Times are RFC 3339.
type messageBatch struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"processing_status"`
	Counts    messageCounts `json:"request_counts"`
	Created   *string       `json:"created_at"`
	Expires   *string       `json:"expires_at"`
	Ended     *string       `json:"ended_at"`
	Canceling *string       `json:"cancel_initiated_at"`
	Archived  *string       `json:"archived_at"`
	Results   *string       `json:"results_url"`
	Guard     batchCost     `json:"llmguard"`
}

type messageCounts struct {
	Processing int64 `json:"processing"`
	Succeeded  int64 `json:"succeeded"`
	Errored    int64 `json:"errored"`
	Canceled   int64 `json:"canceled"`
	Expired    int64 `json:"expired"`
}

// foreignID is what an id has in Anthropic's form before its own prefix.
const foreignID = "msg"

// ownID returns the id of a batch from its id in either form.
func ownID(id string) string {
	if rest, ok := strings.CutPrefix(id, foreignID); ok {
		return rest
	}
	return id
}

func viewMessageBatch(b *batch.Batch) messageBatch {
	v := messageBatch{
		ID: foreignID + b.ID, Type: "message_batch", Status: "in_progress", Counts: countsOf(b),
		Created: rfc3339(b.Created), Expires: rfc3339(b.Expires), Ended: rfc3339(b.Ended()),
		Canceling: rfc3339(b.CancelAsked), Guard: costOf(b),
	}
	switch {
	case b.Status.Terminal():
		results := "/v1" + wire.Messages.Path() + "/batches/" + v.ID + "/results"
		v.Status, v.Results = "ended", &results
	case b.Status == batch.Cancelling:
		v.Status = "canceling"
	}
	return v
}

// countsOf counts the lines of a batch by what became of them.
func countsOf(b *batch.Batch) messageCounts {
	if !b.Status.Terminal() {
		succeeded, errored := b.Done()
		return messageCounts{Processing: b.Total - succeeded - errored, Succeeded: succeeded, Errored: errored}
	}
	c := messageCounts{Succeeded: b.Succeeded, Errored: b.Unsuccessful}
	rest := b.Total - c.Succeeded - c.Errored
	switch b.Status {
	case batch.Cancelled:
		c.Canceled = rest
	case batch.Expired:
		c.Expired = rest
	default:
		c.Errored += rest
	}
	return c
}

func rfc3339(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC().Format(time.RFC3339))
}

// messageBatches creates a batch of messages, or lists them. Batches of other endpoints are left out.
func (h *batchHandler) messageBatches(x *request, r *http.Request, _ string) error {
	if r.Method == http.MethodPost {
		return h.createMessages(x, r)
	}
	query := r.URL.Query()
	limit, err := limitOf(query, 20, 1000)
	if err != nil {
		return err
	}
	if query.Has("before_id") {
		return wire.BadRequest("before_id", "unsupported_parameter", "before_id is not supported. Use after_id")
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	limit = min(limit, maxMessageBatches)
	found, more, after := []messageBatch{}, true, query.Get("after_id")
	for more && len(found) < limit {
		var page []*batch.Batch
		page, more, err = h.page(ctx, x, "after_id", after, maxMessageBatches)
		if err != nil {
			return err
		}
		for _, b := range page {
			after = b.ID
			if b.Endpoint == wire.Messages {
				found = append(found, viewMessageBatch(b))
			}
		}
		h.files.reads.spend(x.caller.Org.ID, x.caller.Key, readsPage, time.Now())
	}
	if len(found) > limit {
		found, more = found[:limit], true
	}
	return x.json(http.StatusOK, listOf(found, more, func(v *messageBatch) *string { return &v.ID }))
}

// maxMessageBatches is the most batches of a page.
const maxMessageBatches = 100

// createMessages creates a batch from requests: the lines of a file that it writes for them.
func (h *batchHandler) createMessages(x *request, r *http.Request) error {
	if err := h.opts.Guard.Stopped(x.caller.Org.ID); err != nil {
		return err
	}
	req, err := newRequest(x, r, wire.Messages)
	if err != nil {
		return err
	}
	req.Labels, err = h.opts.Guard.Plans.LabelBatch(r.Context(), x.caller, guard.LabelPlaces{Header: r.Header})
	if err != nil {
		return err
	}
	if err := h.opts.Files.Room(r.Context(), owner(x)); err != nil {
		return fileRefusal(err)
	}
	done, err := h.files.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	r.Body = &slowBody{ReadCloser: r.Body, x: x}
	if err := h.bodies.fill(x, r, h.opts.MaxFile); err != nil {
		return err
	}
	req.File, req.Total, err = h.writeRequests(x, r)
	if err != nil {
		return err
	}
	b, err := h.create(r.Context(), x, req)
	// The batch keeps the content that it needs. A file that cannot be removed expires.
	_ = h.opts.Files.Remove(context.WithoutCancel(r.Context()), req.File.Owner, req.File.ID)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewMessageBatch(b))
}

// requestsFile is the name of the input file of a batch that was created in Anthropic's form.
const requestsFile = "message_batch.jsonl"

// writeRequests stores the requests of the body as the input file of a batch, and counts them. It takes the memory
// for the largest request. A refused body leaves nothing behind.
func (h *batchHandler) writeRequests(x *request, r *http.Request) (*files.File, int, error) {
	memory, org := h.opts.Spool.Memory, x.caller.Org.ID
	room := h.opts.Spool.Pricing(min(x.body.Size(), h.opts.MaxBody))
	if err := memory.Take(r.Context(), org, room, h.bodies.roomWait); err != nil {
		return nil, 0, noRoom(err)
	}
	defer memory.Give(org, room)
	up, err := h.opts.Files.Begin(r.Context(), owner(x), files.NewID())
	if err != nil {
		return nil, 0, unavailable(err)
	}
	defer up.Discard(context.WithoutCancel(r.Context()))
	body := io.NewSectionReader(&x.body, 0, x.body.Size())
	lines, err := h.opts.Batches.WriteRequests(up, body, int(h.opts.MaxBody), h.opts.Scan)
	if err != nil {
		return nil, 0, unavailable(err)
	}
	x.body.Close()
	f, err := up.Commit(r.Context(), requestsFile, files.Batch, 0)
	if err != nil {
		return nil, 0, fileRefusal(err)
	}
	return f, lines, nil
}

func (h *batchHandler) oneMessageBatch(x *request, r *http.Request, id string) error {
	b, err := h.findMessages(x, r, id)
	if err != nil {
		return err
	}
	if r.Method != http.MethodDelete {
		return x.json(http.StatusOK, viewMessageBatch(b))
	}
	err = h.opts.Batches.Delete(r.Context(), b)
	switch {
	case errors.Is(err, batch.ErrUnfinished) && b.Status.Terminal():
		return wire.ServiceUnavailable("The batch has just ended, and its end is still being reported", time.Second, nil)
	case errors.Is(err, batch.ErrUnfinished):
		return wire.BadRequest("id", "batch_not_ended", "A batch can be deleted once it has ended. Cancel it first")
	case err != nil:
		return unavailable(err)
	}
	return x.json(http.StatusOK, map[string]string{"id": foreignID + b.ID, "type": "message_batch_deleted"})
}

func (h *batchHandler) findMessages(x *request, r *http.Request, id string) (*batch.Batch, error) {
	b, err := h.find(x, r, id, nil)
	if err == nil && b.Endpoint != wire.Messages {
		return nil, noBatch(id)
	}
	return b, err
}

func (h *batchHandler) cancelMessageBatch(x *request, r *http.Request, id string) error {
	if _, err := h.findMessages(x, r, id); err != nil {
		return err
	}
	b, err := h.canceled(x, r, id)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewMessageBatch(b))
}

// results writes a line of JSON for each request of a batch.
func (h *batchHandler) messageResults(x *request, r *http.Request, id string) error {
	b, err := h.findMessages(x, r, id)
	if err != nil {
		return err
	}
	if !b.Status.Terminal() {
		return wire.BadRequest("id", "batch_not_ended", "The batch has no results until its processing_status is ended")
	}
	done, err := h.files.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	x.Header().Set("Content-Type", "application/x-jsonl")
	enc := json.NewEncoder(x)
	enc.SetEscapeHTML(false)
	err = h.opts.Batches.Results(r.Context(), b, func(o *batch.Result) error { return h.writeResult(x, enc, o) })
	if errors.Is(err, files.ErrNotFound) {
		return wire.NotFound("id", "results_not_found", "The results of this batch are no longer stored")
	}
	return err
}

// writeResult writes one line. A large one counts as memory of its org while it is sent.
func (h *batchHandler) writeResult(x *request, enc *json.Encoder, o *batch.Result) error {
	if o.Response != nil && len(o.Response.Body) > spool.Small {
		memory, org, size := h.opts.Spool.Memory, x.caller.Org.ID, int64(len(o.Response.Body))
		if err := memory.Take(x.request.Context(), org, size, h.bodies.roomWait); err != nil {
			return noRoom(err)
		}
		defer memory.Give(org, size)
	}
	return enc.Encode(viewResult(o))
}

// messageResult is a line of the results in Anthropic's form.
type messageResult struct {
	CustomID string        `json:"custom_id"`
	Result   messageOutput `json:"result"`
}

type messageOutput struct {
	Type    string          `json:"type"`
	Message json.RawMessage `json:"message,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func viewResult(o *batch.Result) messageResult {
	v := messageResult{CustomID: o.CustomID, Result: messageOutput{Type: "errored"}}
	switch answer := o.Response; {
	case answer != nil && answer.StatusCode < http.StatusMultipleChoices:
		v.Result = messageOutput{Type: "succeeded", Message: answer.Body}
	case answer != nil && bytes.HasPrefix(answer.Body, []byte(`{"type":"error"`)):
		v.Result.Error = answer.Body
	case answer != nil:
		e, _ := wire.ParseError(answer.StatusCode, answer.Body)
		v.Result.Error = e.Body(wire.Messages, answer.RequestID)
	case o.Error.Code == batch.CodeCancelled:
		v.Result.Type = "canceled"
	case o.Error.Code == batch.CodeExpired:
		v.Result.Type = "expired"
	case o.Error.Code == batch.CodeLost: // it may be repeated
		e := &wire.Error{Status: http.StatusInternalServerError, Code: o.Error.Code, Message: o.Error.Message}
		v.Result.Error = e.Body(wire.Messages, "")
	default:
		v.Result.Error = wire.BadRequest("", o.Error.Code, "%s", o.Error.Message).Body(wire.Messages, "")
	}
	return v
}
