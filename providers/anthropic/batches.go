package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Batches implements dialect.Dialect.
func (Dialect) Batches(c dialect.BatchClient) dialect.Batches { return batches{c} }

// batches is the Message Batches API. A batch is created with all of its requests in one body, has no metadata, and
// its custom_ids have few characters. So lines have ids that name their batch, which its results show.
type batches struct{ client dialect.BatchClient }

func (batches) Runs(ep wire.Endpoint, _ func(wire.Endpoint) bool) bool { return ep == wire.Messages }

func (batches) LineID(f *dialect.BatchFile, _ string, nth int) string {
	return fmt.Sprint(prefix(f), nth)
}

// prefix begins the ids of the lines of a file.
func prefix(f *dialect.BatchFile) string { return fmt.Sprintf("%s-%d-", f.Batch, f.Part) }

func (batches) Line(id string, nth int, _ wire.Endpoint) (before, after string) {
	before = ","
	if nth == 1 {
		before = `{"requests":[`
	}
	return before + `{"custom_id":"` + id + `","params":`, "}\n"
}

// end closes the body that Line begins.
const end = "]}"

func (batches) Upload(context.Context, *dialect.BatchFile, bool) (string, error) { return "", nil }

// list is the path of all batches.
const list = "/messages/batches"

func path(id string) string { return list + "/" + dialect.Segment(id) }

func (b batches) Create(ctx context.Context, f *dialect.BatchFile) (string, error) {
	r := dialect.BatchRequest{Path: list, Header: f.Header}
	done := f.SendIn(&r, "", end)
	defer done()
	var made batch
	err := b.client.Do(ctx, r, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the provider's answer to a new batch has no id")
	}
	return made.ID, err
}

// batch is a batch in Anthropic's form.
type batch struct {
	ID      string    `json:"id"`
	Status  string    `json:"processing_status"`
	Created time.Time `json:"created_at"`
	Counts  struct {
		Processing int64 `json:"processing"`
		Succeeded  int64 `json:"succeeded"`
		Errored    int64 `json:"errored"`
		Canceled   int64 `json:"canceled"`
		Expired    int64 `json:"expired"`
	} `json:"request_counts"`
}

func (b *batch) ended() bool { return b.Status == "ended" }

// Find implements dialect.Batches. Only the results of a batch say which requests it has. Until they are there, one
// of the same size and time may be the one that is searched for.
func (b batches) Find(
	ctx context.Context, f *dialect.BatchFile, since time.Time,
) (ids []string, unclear bool, err error) {
	since = since.Add(-dialect.ClockSkew)
	all := dialect.BatchRequest{Path: list, Query: "limit=1000"}
	err = dialect.Each(ctx, b.client, all, "after_id", func(one *batch) (string, bool, error) {
		n := one.Counts
		lines := n.Processing + n.Succeeded + n.Errored + n.Canceled + n.Expired
		switch {
		case one.Created.Before(since):
			return "", true, nil
		case lines != int64(f.Lines) || slices.Contains(f.Others, one.ID):
			return one.ID, false, nil
		case !one.ended():
			unclear = true
			return one.ID, false, nil
		}
		mine, err := b.isOf(ctx, one.ID, f)
		if mine {
			ids = append(ids, one.ID)
		}
		return one.ID, false, err
	})
	slices.Reverse(ids) // lists begin with the newest
	return ids, unclear, err
}

// maxResult bounds the result of a request, in bytes.
const maxResult = 64 << 20

// isOf reports whether the results of a batch that has ended are of f.
func (b batches) isOf(ctx context.Context, id string, f *dialect.BatchFile) (bool, error) {
	body, err := b.Results(ctx, id)
	if err != nil {
		return false, err
	}
	defer body.Close()
	var first result
	if err := json.NewDecoder(io.LimitReader(body, maxResult)).Decode(&first); err != nil {
		return false, fmt.Errorf("the provider's results of a batch are not understood: %w", err)
	}
	return strings.HasPrefix(first.CustomID, prefix(f)), nil
}

func (b batches) State(ctx context.Context, id string) (dialect.Batch, error) {
	var one batch
	err := b.client.Do(ctx, dialect.BatchRequest{Method: http.MethodGet, Path: path(id)}, &one)
	if err == nil && one.ID == "" {
		err = errors.New("the provider's answer about a batch has no id")
	}
	state := dialect.Batch{Good: one.Counts.Succeeded, Bad: one.Counts.Errored}
	if !one.ended() {
		return state, err
	}
	state.End, state.Output, state.Whole = "completed", one.ID, true
	switch {
	case one.Counts.Expired > 0:
		state.End = "expired"
	case one.Counts.Canceled > 0:
		state.End = "cancelled"
	}
	return state, err
}

func (b batches) Cancel(ctx context.Context, id string) error {
	return b.client.Do(ctx, dialect.BatchRequest{Path: path(id) + "/cancel"}, nil)
}

func (b batches) Results(ctx context.Context, id string) (io.ReadCloser, error) {
	return b.client(ctx, dialect.BatchRequest{Method: http.MethodGet, Path: path(id) + "/results"})
}

// result is a line of results in Anthropic's form.
type result struct {
	CustomID string `json:"custom_id"`
	Result   struct {
		Type    string          `json:"type"`
		Message json.RawMessage `json:"message"`
		Error   json.RawMessage `json:"error"`
	} `json:"result"`
}

// Result implements dialect.Batches. Lines have no request id, so that of their message stands for it. What is not
// understood is no result, so that its line counts as lost.
func (batches) Result(line []byte) []byte {
	var r result
	if json.Unmarshal(line, &r) != nil {
		return nil
	}
	var message struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(r.Result.Message, &message) // the caller gets any message
	out := map[string]any{"custom_id": r.CustomID}
	switch r.Result.Type {
	case "succeeded":
		out["response"] = map[string]any{
			"status_code": http.StatusOK, "request_id": message.ID, "body": r.Result.Message,
		}
	case "errored":
		e, _ := wire.ParseError(0, r.Result.Error)
		out["response"] = map[string]any{"status_code": e.Status, "body": r.Result.Error}
	case "canceled":
		out["error"] = unrun("batch_cancelled", "This request was not executed because the batch was cancelled.")
	case "expired":
		out["error"] = unrun("batch_expired",
			"This request could not be executed before the completion window expired.")
	default:
		return nil
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // answers stay as they are
	if enc.Encode(out) != nil {
		return nil
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// unrun is why a line did not run, in OpenAI's form.
func unrun(code, message string) map[string]string {
	return map[string]string{"code": code, "message": message}
}

// Delete implements dialect.Batches. A batch is deleted with its results.
func (b batches) Delete(ctx context.Context, id string) error {
	return b.client.Do(ctx, dialect.BatchRequest{Method: http.MethodDelete, Path: path(id)}, nil)
}
