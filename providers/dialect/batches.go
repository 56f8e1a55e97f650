package dialect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// Batches is the form of a provider's own Batch API. A batch is created from a file of lines. Methods with a context
// send their requests once; if an answer is lost, their user has to find out whether the request was executed.
type Batches interface {
	// Runs reports whether lines can use an endpoint; has reports whether the provider has a wire.
	Runs(ep wire.Endpoint, has func(wire.Endpoint) bool) bool
	// LineID returns the custom_id of the nth line of f, from 1: own, the caller's, or one that no other file has.
	LineID(f *BatchFile, own string, nth int) string
	// Line returns what the file has before and after the body of the nth line.
	Line(id string, nth int, ep wire.Endpoint) (before, after string)
	// Upload uploads a file and returns its id, "" if the file is sent with the batch. again means that an earlier
	// upload may have been executed.
	Upload(ctx context.Context, f *BatchFile, again bool) (string, error)
	// Create creates a batch and returns its id.
	Create(ctx context.Context, f *BatchFile) (string, error)
	// Find searches for batches that Create may have created from f since some time, oldest first. unclear means
	// that there is a batch of which it is not known yet.
	Find(ctx context.Context, f *BatchFile, since time.Time) (ids []string, unclear bool, err error)
	// State returns the current state of a batch, and Cancel requests its end.
	State(ctx context.Context, id string) (Batch, error)
	Cancel(ctx context.Context, id string) error
	// Results opens the results with an id of Batch. Result returns one line of them in OpenAI's form.
	Results(ctx context.Context, id string) (io.ReadCloser, error)
	Result(line []byte) []byte
	// Delete removes the results, or an uploaded file, with an id.
	Delete(ctx context.Context, id string) error
}

// BatchFile is a file of lines from which a batch is created.
type BatchFile struct {
	Batch    string // our id of the batch of which the lines are a part
	Part     int    // its number
	Try      int    // at creating a batch from it
	Lines    int
	Bytes    int64
	Open     func() (io.ReadCloser, error)
	Endpoint wire.Endpoint
	Header   http.Header // of the request that creates the batch
	ID       string      // that Upload returned
	Others   []string    // the provider's batches of other parts
}

// Batch is the state of a batch at a provider.
type Batch struct {
	// End is how it ended: completed, failed, expired or cancelled; "" while it runs.
	End string
	// Output and Errors are ids for Results, "" for none. Whole means that they have a line for each request, also
	// for those that did not run.
	Output, Errors string
	Whole          bool
	Good, Bad      int64 // lines that have ended
	Faults         []BatchFault
}

// BatchFault is a reason why a provider refused a batch, or a line of it, counted from 1; 0 for the batch.
type BatchFault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    int    `json:"line"`
}

// BatchRequest is a request of a Batch API. A request without Method is a POST.
type BatchRequest struct {
	Method, Path, Query, Type string
	Header                    http.Header
	Body                      func() io.Reader // a new reader of the same bytes at each call
	Length                    int64
}

// BatchClient sends a request and returns the body of a successful answer, which its user closes.
type BatchClient func(ctx context.Context, r BatchRequest) (io.ReadCloser, error)

// maxDocument bounds an answer that is not a file, in bytes: a page of 1,000 entries.
const maxDocument = 16 << 20

// Do sends a request and decodes its answer; not if into is nil.
func (c BatchClient) Do(ctx context.Context, r BatchRequest, into any) error {
	body, err := c(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxDocument)).Decode(into); err != nil {
		return fmt.Errorf("the provider's answer to %s is not understood: %w", r.Path, err)
	}
	return nil
}

// ClockSkew is how much the clock of a provider may differ from ours.
const ClockSkew = time.Minute

// maxPages bounds a search; pages have up to 1,000 entries.
const maxPages = 200

// Each calls look for the entries of a list, newest first, until it says that the search is over. cursor is the name
// of the parameter with the last id of the page before.
func Each[T any](ctx context.Context, c BatchClient, list BatchRequest, cursor string,
	look func(*T) (id string, over bool, err error),
) error {
	query := list.Query
	list.Method = http.MethodGet
	for range maxPages {
		var page struct {
			Data    []T  `json:"data"`
			HasMore bool `json:"has_more"`
		}
		if err := c.Do(ctx, list, &page); err != nil {
			return err
		}
		for i := range page.Data {
			id, over, err := look(&page.Data[i])
			if over || err != nil {
				return err
			}
			list.Query = query + "&" + cursor + "=" + url.QueryEscape(id)
		}
		if !page.HasMore || len(page.Data) == 0 {
			return nil
		}
	}
	return fmt.Errorf("more than %d pages of %s at the provider", maxPages, list.Path)
}

// SendIn makes the file between two texts the body of r. Its user calls done after r was sent.
func (f *BatchFile) SendIn(r *BatchRequest, before, after string) (done func()) {
	open := &lazyReader{open: f.Open}
	r.Length = int64(len(before)) + f.Bytes + int64(len(after))
	r.Body = func() io.Reader {
		open.Close()
		return io.MultiReader(strings.NewReader(before), open, strings.NewReader(after))
	}
	return open.Close
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

// Close closes the body if it is open.
func (r *lazyReader) Close() {
	if r.body == nil {
		return
	}
	_ = r.body.Close() // it was only read
	r.body = nil
}
