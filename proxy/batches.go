package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
)

// batchView is a batch in OpenAI's format, plus its cost.
type batchView struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Endpoint   string            `json:"endpoint"`
	Model      *string           `json:"model"`
	Errors     *problems         `json:"errors"`
	Input      string            `json:"input_file_id"`
	Window     string            `json:"completion_window"`
	Status     batch.Status      `json:"status"`
	Output     *string           `json:"output_file_id"`
	ErrorFile  *string           `json:"error_file_id"`
	Created    int64             `json:"created_at"`
	Started    *int64            `json:"in_progress_at"`
	Expires    int64             `json:"expires_at"`
	Finalizing *int64            `json:"finalizing_at"`
	Completed  *int64            `json:"completed_at"`
	Failed     *int64            `json:"failed_at"`
	Expired    *int64            `json:"expired_at"`
	Cancelling *int64            `json:"cancelling_at"`
	Cancelled  *int64            `json:"cancelled_at"`
	Counts     batchCounts       `json:"request_counts"`
	Usage      batchUsage        `json:"usage"`
	Metadata   map[string]string `json:"metadata"`
	Guard      batchCost         `json:"llmguard"`
}

type problems struct {
	Object string          `json:"object"`
	Data   []batch.Problem `json:"data"`
}

type batchCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

type batchUsage struct {
	Input       int64 `json:"input_tokens"`
	InputDetail struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output       int64 `json:"output_tokens"`
	OutputDetail struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// batchCost is our extension. Estimated is the maximum cost of the lines, 0 until the file is
// checked.
type batchCost struct {
	Estimated string   `json:"estimated_cost_usd"`
	Charged   string   `json:"charged_cost_usd"`
	Warnings  []string `json:"warnings"`
	Priority  string   `json:"priority,omitempty"` // as the request chose
	Deadline  *int64   `json:"deadline,omitempty"`
}

// batchHandler serves /v1/batches.
type batchHandler struct {
	opts   *Options
	bodies *bodyReader
	calls  *callHandler
	files  *fileHandler
}

func viewBatch(b *batch.Batch) batchView {
	v := batchView{
		ID: b.ID, Object: "batch", Endpoint: "/v1" + b.Endpoint.Path(), Model: given(b.Model), Input: b.Input, Window: "24h",
		Status: b.Status, Output: given(b.Output), ErrorFile: given(b.Errors),
		Created: b.Created.Unix(), Started: unix(b.Started), Expires: b.Expires.Unix(), Finalizing: unix(b.Finalized),
		Completed: unix(b.Completed), Failed: unix(b.Failed), Expired: unix(b.Expired),
		Cancelling: unix(b.CancelAsked), Cancelled: unix(b.Cancelled),
		Metadata: b.Metadata,
		Guard:    costOf(b),
	}
	if len(b.Problems) > 0 {
		v.Errors = &problems{Object: "list", Data: b.Problems}
	}
	v.Counts.Total = b.Total
	v.Counts.Completed, v.Counts.Failed = b.Done()
	v.Usage.Input = b.InputTokens
	v.Usage.Output = b.OutputTokens
	v.Usage.Total = b.InputTokens + b.OutputTokens
	v.Usage.InputDetail.Cached, v.Usage.OutputDetail.Reasoning = b.CachedTokens, b.ReasoningTokens
	return v
}

func costOf(b *batch.Batch) batchCost {
	c := batchCost{
		Estimated: usd(b.Estimate), Charged: usd(b.Charged), Warnings: b.Warnings, Deadline: unix(b.StartBy),
	}
	if b.Priority != nil {
		c.Priority = b.Priority.String()
	}
	return c
}

func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func noBatch(id string) *wire.Error {
	return wire.NotFound("id", "batch_not_found", "No such Batch object: %s", shorten(id))
}

func (h *batchHandler) allBatches(x *request, r *http.Request, _ string) error {
	if r.Method == http.MethodPost {
		return h.createBatch(x, r)
	}
	query := r.URL.Query()
	limit, err := limitOf(query, 20, 100)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	page, more, err := h.page(ctx, x, "after", query.Get("after"), limit)
	if err != nil {
		return err
	}
	data := make([]batchView, len(page))
	for i, b := range page {
		data[i] = viewBatch(b)
	}
	return x.json(http.StatusOK, listOf(data, more, func(v *batchView) *string { return &v.ID }))
}

// page returns the caller's batches after the one that a parameter names, newest first, and whether there are more.
func (h *batchHandler) page(
	ctx context.Context, x *request, param, after string, limit int,
) ([]*batch.Batch, bool, error) {
	page, more, err := h.opts.Batches.List(ctx, x.caller.Org.ID, x.caller.User, ownID(after), limit)
	if errors.Is(err, batch.ErrNotFound) {
		return nil, false, wire.BadRequest(param, "invalid_value", "%s must be the id of one of your batches", param)
	}
	if err != nil {
		return nil, false, unavailable(err)
	}
	earlier := func(b *batch.Batch) bool { return b.UserBorn != x.caller.UserBorn } // then those before it are, too
	if n := slices.IndexFunc(page, earlier); n >= 0 {
		page, more = page[:n], false
	}
	return page, more, nil
}

// newBatch is the body of a request that creates a batch.
type newBatch struct {
	Input    string            `json:"input_file_id"`
	Endpoint string            `json:"endpoint"`
	Window   string            `json:"completion_window"`
	Metadata map[string]string `json:"metadata"`
	Output   *struct {
		Anchor  string `json:"anchor"`
		Seconds int    `json:"seconds"`
	} `json:"output_expires_after"`
}

// Bounds of metadata, as in OpenAI's API.
const (
	maxPairs = 16
	maxLabel = 64
	maxValue = 512
)

// field returns a field that can be a label.
func (n *newBatch) field(name string) (string, error) {
	label, has := strings.CutPrefix(name, "metadata.")
	if !has {
		return "", nil
	}
	return n.Metadata[label], nil
}

func (h *batchHandler) createBatch(x *request, r *http.Request) error {
	if err := h.opts.Guard.Stopped(x.caller.Org.ID); err != nil {
		return err
	}
	body, err := h.bodies.readRecord(x, r)
	if err != nil {
		return err
	}
	var wanted newBatch
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&wanted); err != nil {
		return wire.BadRequest("", "invalid_json",
			"The body must be a JSON object with input_file_id, endpoint and completion_window")
	}
	ep, ttl, err := wanted.check()
	if err != nil {
		return err
	}
	req, err := newRequest(x, r, ep)
	if err != nil {
		return err
	}
	req.Metadata, req.OutputTTL = wanted.Metadata, ttl
	if url, ok := wanted.Metadata[batch.MetadataWebhook]; ok {
		if err := h.calls.checkWebhook(x.caller.Org.ID, "metadata", url); err != nil {
			return err
		}
	}
	places := guard.LabelPlaces{Header: r.Header, Field: wanted.field}
	req.Labels, err = h.opts.Guard.Plans.LabelBatch(r.Context(), x.caller, places)
	if err != nil {
		return err
	}
	req.File, err = h.files.ownFile(r.Context(), x, wanted.Input)
	if err != nil {
		return err
	}
	if req.File.Purpose != "batch" {
		return wire.BadRequest("input_file_id", "invalid_value", "The input file must have the purpose batch, not %q",
			req.File.Purpose)
	}
	b, err := h.create(r.Context(), x, req)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewBatch(b))
}

// newRequest returns what the caller and the headers of a request say about a new batch.
func newRequest(x *request, r *http.Request, ep wire.Endpoint) (req batch.Request, err error) {
	req.Owner = batch.Owner{
		Org: x.caller.Org.ID, User: x.caller.User, Key: x.caller.Key, IP: x.caller.IP,
		Born: x.caller.Born, UserBorn: x.caller.UserBorn, Models: x.caller.Models,
	}
	req.Endpoint = ep
	req.Header, err = betasOf(r.Header, ep)
	if err != nil {
		return req, err
	}
	req.Priority, err = chosenPriority(r.Header)
	if err != nil {
		return req, err
	}
	req.StartBy, err = deadlineOf(r.Header, time.Now())
	if err == nil && !x.may(string(ep)) {
		err = lacking(string(ep))
	}
	return req, err
}

const (
	headerBeta = "Anthropic-Beta"
	maxBeta    = 2048 // bytes that a batch keeps of it
)

// betasOf returns the header with the betas of the lines of a batch, nil for none.
func betasOf(h http.Header, ep wire.Endpoint) (http.Header, error) {
	betas := strings.Join(h.Values(headerBeta), ",")
	switch {
	case betas == "" || ep != wire.Messages:
		return nil, nil
	case len(betas) > maxBeta:
		return nil, wire.BadRequest("anthropic-beta", "invalid_value",
			"anthropic-beta: a batch can have at most %d bytes", maxBeta)
	}
	return http.Header{headerBeta: {betas}}, nil
}

// create creates a batch if there is room for it and for its output.
func (h *batchHandler) create(ctx context.Context, x *request, req batch.Request) (*batch.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := h.opts.Files.Room(ctx, owner(x)); err != nil {
		return nil, fileRefusal(err)
	}
	b, err := h.opts.Batches.Create(ctx, req)
	var full *batch.FullError
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return nil, noFile(req.File.ID)
	case errors.As(err, &full):
		return nil, tooManyBatches(full)
	case err != nil:
		return nil, fileRefusal(err)
	}
	return b, nil
}

func (n *newBatch) check() (ep wire.Endpoint, ttl time.Duration, err error) {
	if n.Input == "" {
		return "", 0, wire.BadRequest("input_file_id", "missing_required_parameter",
			"Missing required parameter: 'input_file_id'")
	}
	ep, ok := batch.EndpointOf(n.Endpoint)
	if !ok {
		return "", 0, wire.BadRequest("endpoint", "invalid_value", "endpoint must be one of %s, not %q", batch.Paths(),
			shorten(n.Endpoint))
	}
	if n.Window != "24h" {
		return "", 0, wire.BadRequest("completion_window", "invalid_value", "completion_window must be 24h, not %q",
			shorten(n.Window))
	}
	if len(n.Metadata) > maxPairs {
		return "", 0, wire.BadRequest("metadata", "invalid_value", "metadata can have at most %d pairs", maxPairs)
	}
	bytes := 0
	for label, value := range n.Metadata {
		bytes += len(label) + len(value)
		if len([]rune(label)) > maxLabel || len([]rune(value)) > maxValue {
			return "", 0, wire.BadRequest("metadata", "invalid_value", "a key of metadata can have at most %d characters, a "+
				"value at most %d",
				maxLabel, maxValue)
		}
	}
	if bytes > maxPairs*(maxLabel+maxValue) {
		return "", 0, wire.BadRequest("metadata", "invalid_value", "metadata can have at most %d bytes in total",
			maxPairs*(maxLabel+maxValue))
	}
	if n.Output != nil {
		ttl, err = lifetime("output_expires_after", n.Output.Anchor, n.Output.Seconds)
	}
	return ep, ttl, err
}

func (h *batchHandler) oneBatch(x *request, r *http.Request, id string) error {
	b, err := h.find(x, r, id, nil)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewBatch(b))
}

func (h *batchHandler) cancelBatch(x *request, r *http.Request, id string) error {
	b, err := h.canceled(x, r, id)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, viewBatch(b))
}

// canceled requests the cancellation of a batch. For a finished batch it returns an error, for
// one that is being canceled the batch.
func (h *batchHandler) canceled(x *request, r *http.Request, id string) (*batch.Batch, error) {
	return h.find(x, r, id, func(ctx context.Context, org, user, id string) (*batch.Batch, error) {
		b, err := h.opts.Batches.Cancel(ctx, org, user, id)
		if err == nil && b.Status.Terminal() && b.Status != batch.Cancelled {
			return nil, wire.BadRequest("id", "batch_ended", "Cannot cancel a batch with status '%s'", b.Status)
		}
		return b, err
	})
}

// find returns a batch of the caller by its id in either form, after get if that is not nil.
func (h *batchHandler) find(x *request, r *http.Request, id string,
	get func(ctx context.Context, org, user, id string) (*batch.Batch, error),
) (*batch.Batch, error) {
	given, id := id, ownID(id)
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	b, err := h.opts.Batches.Batch(ctx, x.caller.Org.ID, x.caller.User, id)
	if err == nil && b.UserBorn != x.caller.UserBorn {
		err = batch.ErrNotFound
	}
	if err == nil && get != nil {
		b, err = get(ctx, x.caller.Org.ID, x.caller.User, id)
	}
	var public *wire.Error
	switch {
	case errors.Is(err, batch.ErrNotFound):
		return nil, noBatch(given)
	case errors.As(err, &public):
		return nil, err
	case err != nil:
		return nil, unavailable(err)
	}
	return b, nil
}
