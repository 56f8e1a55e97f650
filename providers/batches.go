package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Batches is a client of the provider's own Files and Batch API. It sends each request once; if an
// answer is lost, its user has to find out whether the request was executed.
type Batches struct{ p *Provider }

// Batches returns the provider's Batch API.
func (p *Provider) Batches() Batches { return Batches{p} }

// Redactor returns the Redactor for errors in result files, which are stored as the provider wrote
// them.
func (b Batches) Redactor() Redactor {
	if b.p == nil { // no longer configured
		return Redactor{}
	}
	return b.p.hidden
}

// APIError is a refusal by the provider.
type APIError struct {
	Status        int
	Code, Message string
	RetryAfter    time.Duration // 0 if not given
}

func (e *APIError) Error() string {
	return fmt.Sprintf("the provider answered %d: %.300s", e.Status, e.Message)
}

// Certain reports whether an error means that the request was not executed: it was not sent, or was
// refused.
func Certain(err error) bool {
	var refused *APIError
	var unsent *SendError
	return errors.As(err, &refused) && refused.Status < 500 || errors.As(err, &unsent) && !unsent.Sent
}

// UpstreamFile is a file that the provider stores.
type UpstreamFile struct {
	ID       string `json:"id"`
	Bytes    int64  `json:"bytes"`
	Filename string `json:"filename"`
}

// UpstreamBatch is a batch at the provider.
type UpstreamBatch struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Input     string `json:"input_file_id"`
	Output    string `json:"output_file_id"`
	ErrorFile string `json:"error_file_id"`
	Created   int64  `json:"created_at"`
	Counts    struct {
		Total     int64 `json:"total"`
		Completed int64 `json:"completed"`
		Failed    int64 `json:"failed"`
	} `json:"request_counts"`
	Errors *struct {
		Data []UpstreamProblem `json:"data"`
	} `json:"errors"`
	Metadata map[string]string `json:"metadata"`
}

// UpstreamProblem is a reason why the provider refused a batch.
type UpstreamProblem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    *int   `json:"line"`
}

// Upload uploads a file of requests. content opens its data, which has size bytes.
func (b Batches) Upload(ctx context.Context, name string, size int64,
	content func() (io.ReadCloser, error),
) (UpstreamFile, error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	_ = form.WriteField("purpose", "batch")
	_, _ = form.CreateFormFile("file", name) // writing to a buffer cannot fail
	before := head.Len()
	_ = form.Close()
	frame := head.Bytes()
	var file UpstreamFile
	open := &lazyReader{open: content}
	defer open.Close()
	err := b.do(ctx, Request{
		Path: "/files", Type: form.FormDataContentType(), Length: int64(len(frame)) + size,
		Body: func() io.Reader {
			open.Close()
			return io.MultiReader(bytes.NewReader(frame[:before]), open, bytes.NewReader(frame[before:]))
		},
	}, &file)
	if err == nil && file.ID == "" {
		err = errors.New("the provider's answer to an upload has no id")
	}
	return file, err
}

// lazyReader opens its body at the first read, and again after Close.
type lazyReader struct {
	open func() (io.ReadCloser, error)
	body io.ReadCloser
}

func (r *lazyReader) Read(p []byte) (int, error) {
	if r.body == nil {
		var err error
		r.body, err = r.open()
		if err != nil {
			return 0, err
		}
	}
	return r.body.Read(p)
}

func (r *lazyReader) Close() error {
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}

// FindFile returns a file with the given name, nil if there is none.
func (b Batches) FindFile(ctx context.Context, name string) (*UpstreamFile, error) {
	return find(ctx, b, "/files", "purpose=batch&limit=1000", func(f *UpstreamFile) (id string, found, over bool) {
		return f.ID, f.Filename == name, false
	})
}

// Create creates a batch from a file.
func (b Batches) Create(ctx context.Context, file, endpoint string, metadata map[string]string) (UpstreamBatch, error) {
	body, err := json.Marshal(map[string]any{
		"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", "metadata": metadata,
	})
	if err != nil {
		return UpstreamBatch{}, err
	}
	var made UpstreamBatch
	err = b.do(ctx, Request{Path: "/batches", Body: func() io.Reader {
		return bytes.NewReader(body)
	}, Length: int64(len(body))}, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the provider's answer to a new batch has no id")
	}
	return made, err
}

// FindBatch searches for a batch among those created since some time and returns nil if there is
// none. If there are several, it returns the oldest, and the ids of the others.
func (b Batches) FindBatch(ctx context.Context, since time.Time,
	wanted func(*UpstreamBatch) bool,
) (oldest *UpstreamBatch, others []string, err error) {
	_, err = find(ctx, b, "/batches", "limit=100", func(one *UpstreamBatch) (id string, found, over bool) {
		if wanted(one) {
			if oldest != nil {
				others = append(others, oldest.ID)
			}
			oldest = one
		}
		return one.ID, false, one.Created > 0 && time.Unix(one.Created, 0).Before(since.Add(-time.Hour))
	})
	return oldest, others, err
}

// mostPages bounds a search; pages have up to 1,000 entries.
const mostPages = 200

// find iterates over a list, newest first.
func find[T any](ctx context.Context, b Batches, path, query string,
	look func(*T) (id string, found, over bool),
) (*T, error) {
	after := ""
	for range mostPages {
		var page struct {
			Data    []T  `json:"data"`
			HasMore bool `json:"has_more"`
		}
		if err := b.do(ctx, Request{Method: http.MethodGet, Path: path, Query: query + after}, &page); err != nil {
			return nil, err
		}
		for i := range page.Data {
			id, found, over := look(&page.Data[i])
			if found {
				return &page.Data[i], nil
			}
			if over {
				return nil, nil
			}
			after = "&after=" + url.QueryEscape(id)
		}
		if !page.HasMore || len(page.Data) == 0 {
			return nil, nil
		}
	}
	return nil, fmt.Errorf("more than %d pages of %s at the provider", mostPages, path)
}

// Batch returns the current state of a batch.
func (b Batches) Batch(ctx context.Context, id string) (UpstreamBatch, error) {
	var one UpstreamBatch
	err := b.do(ctx, Request{Method: http.MethodGet, Path: "/batches/" + dialect.Segment(id)}, &one)
	if err == nil && one.ID == "" {
		err = errors.New("the provider's answer about a batch has no id")
	}
	if one.Errors != nil {
		for i := range one.Errors.Data {
			problem := &one.Errors.Data[i]
			problem.Code, problem.Message = b.p.hidden.Redact(problem.Code), b.p.hidden.Redact(problem.Message)
		}
	}
	return one, err
}

// Cancel requests the cancellation of a batch.
func (b Batches) Cancel(ctx context.Context, id string) error {
	return b.do(ctx, Request{Path: "/batches/" + dialect.Segment(id) + "/cancel"}, nil)
}

// Content opens a file's content; the caller closes it.
func (b Batches) Content(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := b.p.Send(ctx, Request{Method: http.MethodGet, Path: "/files/" + dialect.Segment(id) + "/content"})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, apiError(resp)
	}
	return resp.Body, nil
}

// Delete removes a file; it is not an error if the file does not exist.
func (b Batches) Delete(ctx context.Context, id string) error {
	err := b.do(ctx, Request{Method: http.MethodDelete, Path: "/files/" + dialect.Segment(id)}, nil)
	if refused, ok := errors.AsType[*APIError](err); ok && refused.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// maxDocument bounds an answer that is not a file: a page of 1,000 entries.
const maxDocument = 16 << 20

func (b Batches) do(ctx context.Context, r Request, into any) error {
	resp, err := b.p.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return apiError(resp)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("the provider's answer to %s is not understood: %w", r.Path, err)
	}
	return nil
}

func apiError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, errorMost))
	said, _ := wire.ParseError(resp.StatusCode, text)
	wait, _ := wire.ParseRetryAfter(resp.Header, time.Now())
	return &APIError{Status: resp.StatusCode, Code: said.Code, Message: said.Message, RetryAfter: wait}
}
