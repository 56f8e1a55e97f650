package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Batches implements dialect.Dialect.
func (Dialect) Batches(c dialect.BatchClient) dialect.Batches { return batches{c} }

// batches is OpenAI's Files and Batch API.
type batches struct{ client dialect.BatchClient }

// Runs implements dialect.Batches. Servers without /responses are not OpenAI's and have no batches.
func (batches) Runs(ep wire.Endpoint, has func(wire.Endpoint) bool) bool {
	return !ep.Traits().Foreign && has(wire.Responses)
}

func (batches) LineID(_ *dialect.BatchFile, own string, _ int) string { return own }

func (batches) Line(id string, _ int, ep wire.Endpoint) (before, after string) {
	text, _ := json.Marshal(id) // cannot fail for a string
	return fmt.Sprintf(`{"custom_id":%s,"method":"POST","url":"/v1%s","body":`, text, ep.Path()), "}\n"
}

// name is the name of a file at the provider.
func name(f *dialect.BatchFile) string { return fmt.Sprintf("llmguard-%s-%d.jsonl", f.Batch, f.Part) }

func (b batches) Upload(ctx context.Context, f *dialect.BatchFile, again bool) (string, error) {
	if again {
		id, err := b.uploaded(ctx, f)
		if id != "" || err != nil {
			return id, err
		}
	}
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	_ = form.WriteField("purpose", "batch")
	_, _ = form.CreateFormFile("file", name(f)) // writing to a buffer cannot fail
	before := head.String()
	_ = form.Close()
	r := dialect.BatchRequest{Path: "/files", Type: form.FormDataContentType()}
	done := f.SendIn(&r, before, head.String()[len(before):])
	defer done()
	var file struct {
		ID string `json:"id"`
	}
	err := b.client.Do(ctx, r, &file)
	if err == nil && file.ID == "" {
		err = errors.New("the provider's answer to an upload has no id")
	}
	return file.ID, err
}

// uploaded returns the id of the file if it is complete at the provider, else "".
func (b batches) uploaded(ctx context.Context, f *dialect.BatchFile) (id string, err error) {
	type file struct {
		ID       string `json:"id"`
		Bytes    int64  `json:"bytes"`
		Filename string `json:"filename"`
	}
	list := dialect.BatchRequest{Path: "/files", Query: "purpose=batch&limit=1000"}
	err = dialect.Each(ctx, b.client, list, "after", func(one *file) (string, bool, error) {
		found := one.Filename == name(f)
		if found && one.Bytes == f.Bytes {
			id = one.ID
		}
		return one.ID, found, nil
	})
	return id, err
}

const (
	batchLabel = "llmguard_batch"
	// tryLabel distinguishes batches of the same file.
	tryLabel = "llmguard_try"
)

func (b batches) Create(ctx context.Context, f *dialect.BatchFile) (string, error) {
	body, err := json.Marshal(map[string]any{
		"input_file_id": f.ID, "endpoint": "/v1" + f.Endpoint.Path(), "completion_window": "24h",
		"metadata": map[string]string{batchLabel: f.Batch, tryLabel: strconv.Itoa(f.Try)},
	})
	if err != nil {
		return "", err
	}
	var made batch
	err = b.client.Do(ctx, dialect.BatchRequest{
		Path: "/batches", Body: func() io.Reader { return bytes.NewReader(body) }, Length: int64(len(body)),
	}, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the provider's answer to a new batch has no id")
	}
	return made.ID, err
}

// batch is a batch in OpenAI's form.
type batch struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Input     string `json:"input_file_id"`
	Output    string `json:"output_file_id"`
	ErrorFile string `json:"error_file_id"`
	Created   int64  `json:"created_at"`
	Counts    struct {
		Completed int64 `json:"completed"`
		Failed    int64 `json:"failed"`
	} `json:"request_counts"`
	Errors struct {
		Data []dialect.BatchFault `json:"data"`
	} `json:"errors"`
	Metadata map[string]string `json:"metadata"`
}

func (b batches) Find(ctx context.Context, f *dialect.BatchFile, since time.Time) (ids []string, _ bool, err error) {
	list := dialect.BatchRequest{Path: "/batches", Query: "limit=100"}
	err = dialect.Each(ctx, b.client, list, "after", func(one *batch) (string, bool, error) {
		if one.isOf(f, since) {
			ids = append(ids, one.ID)
		}
		return one.ID, one.Created > 0 && time.Unix(one.Created, 0).Before(since.Add(-time.Hour)), nil
	})
	slices.Reverse(ids) // lists begin with the newest
	return ids, false, err
}

// isOf reports whether a batch is from the last try to create one from f.
func (b *batch) isOf(f *dialect.BatchFile, since time.Time) bool {
	try, kept := b.Metadata[tryLabel]
	if !kept { // not every provider stores metadata
		return b.Input == f.ID && b.Created >= since.Add(-dialect.ClockSkew).Unix()
	}
	return b.Input == f.ID && try == strconv.Itoa(f.Try)
}

func (b batches) State(ctx context.Context, id string) (dialect.Batch, error) {
	var one batch
	err := b.client.Do(ctx, dialect.BatchRequest{Method: http.MethodGet, Path: path(id)}, &one)
	if err == nil && one.ID == "" {
		err = errors.New("the provider's answer about a batch has no id")
	}
	state := dialect.Batch{
		Output: one.Output, Errors: one.ErrorFile, Good: one.Counts.Completed, Bad: one.Counts.Failed,
		Faults: one.Errors.Data,
	}
	if slices.Contains([]string{"completed", "failed", "expired", "cancelled"}, one.Status) {
		state.End = one.Status
	}
	return state, err
}

func path(id string) string { return "/batches/" + dialect.Segment(id) }

func (b batches) Cancel(ctx context.Context, id string) error {
	return b.client.Do(ctx, dialect.BatchRequest{Path: path(id) + "/cancel"}, nil)
}

func (b batches) Results(ctx context.Context, id string) (io.ReadCloser, error) {
	return b.client(ctx, dialect.BatchRequest{
		Method: http.MethodGet, Path: "/files/" + dialect.Segment(id) + "/content",
	})
}

func (batches) Result(line []byte) []byte { return line }

func (b batches) Delete(ctx context.Context, id string) error {
	return b.client.Do(ctx, dialect.BatchRequest{Method: http.MethodDelete, Path: "/files/" + dialect.Segment(id)}, nil)
}
