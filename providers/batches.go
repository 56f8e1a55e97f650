package providers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/dialect"
)

// Batches is a client of the provider's own Batch API. The zero value has none, and only its Redactor can be used.
type Batches struct {
	dialect.Batches
	p *Provider
}

// Batches returns the provider's Batch API, and whether there is one.
func (p *Provider) Batches() (Batches, bool) {
	form := p.Dialect.Batches(p.sendBatch)
	return Batches{form, p}, form != nil
}

// RunsBatches reports whether the provider's own Batch API runs lines of an endpoint.
func (p *Provider) RunsBatches(ep wire.Endpoint) bool {
	form := p.Dialect.Batches(nil)
	return form != nil && form.Runs(ep, func(own wire.Endpoint) bool { return p.Wire(own) == own })
}

// Redactor returns the Redactor for errors in result files, which are stored as the provider wrote
// them.
func (b Batches) Redactor() Redactor {
	if b.p == nil { // no longer configured
		return Redactor{}
	}
	return b.p.hidden
}

// State implements dialect.Batches without what identifies the account.
func (b Batches) State(ctx context.Context, id string) (dialect.Batch, error) {
	one, err := b.Batches.State(ctx, id)
	for i := range one.Faults {
		fault := &one.Faults[i]
		fault.Code, fault.Message = b.p.hidden.Redact(fault.Code), b.p.hidden.Redact(fault.Message)
	}
	return one, err
}

// Delete implements dialect.Batches; it is not an error if there is nothing with this id.
func (b Batches) Delete(ctx context.Context, id string) error {
	err := b.Batches.Delete(ctx, id)
	if refused, ok := errors.AsType[*APIError](err); ok && refused.Status == http.StatusNotFound {
		return nil
	}
	return err
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
	if refused, ok := errors.AsType[*APIError](err); ok {
		return refused.Status < 500 || refused.Status == wire.StatusOverloaded
	}
	var unsent *SendError
	return errors.As(err, &unsent) && !unsent.Sent
}

// sendBatch is a dialect.BatchClient. An answer without success is an *APIError.
func (p *Provider) sendBatch(ctx context.Context, r dialect.BatchRequest) (io.ReadCloser, error) {
	resp, err := p.Send(ctx, Request{
		Method: r.Method, Path: r.Path, Query: r.Query, Header: r.Header, Type: r.Type, Body: r.Body, Length: r.Length,
	})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, errorMost))
	said, _ := wire.ParseError(resp.StatusCode, text)
	wait, _ := wire.ParseRetryAfter(resp.Header, time.Now())
	return nil, &APIError{Status: resp.StatusCode, Code: said.Code, Message: said.Message, RetryAfter: wait}
}
