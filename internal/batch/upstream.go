package batch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
)

// crowdedRest is the pause after the account had too much enqueued. Tests shorten it.
var crowdedRest = 2 * time.Minute

// advance does the next operation on a part, and reports whether it did anything.
func (pp *providerParts) advance(ctx context.Context, p *part, ending bool) (bool, error) {
	if p.State == partEnded || p.State == partFetched {
		return true, pp.turn.heavily(ctx, func(ctx context.Context) error { return pp.receive(ctx, p, ending) })
	}
	if !time.Now().Before(pp.turn.b.Expires.Add(lostAfter)) {
		return true, pp.abandon(ctx, p)
	}
	if ending && (p.State == partSealed || p.State == partUploaded && p.Asked == 0) {
		p.State, p.End, p.Again = partEnded, endUnsent, 0
		return true, pp.writePart(ctx, p)
	}
	unsent := p.State == partSealed || p.State == partUploaded
	if p.waits() || unsent && pp.stopped() {
		return false, nil
	}
	api, err := pp.api()
	if err != nil {
		return false, err
	}
	switch p.State {
	case partSealed:
		return true, pp.upload(ctx, api, p)
	case partUploaded:
		return true, pp.makeBatch(ctx, api, p, ending)
	}
	return pp.poll(ctx, api, p, ending)
}

// How a part can end, in addition to the final statuses of a batch.
const (
	endUnsent = "unsent" // no batch was created from it
	endLost   = "lost"   // unknown
)

// abandon gives up a part that the provider has not reported on for days. What is held for
// its lines is charged, because they may have run.
func (pp *providerParts) abandon(ctx context.Context, p *part) error {
	pp.r.log.ErrorContext(ctx, "provider no longer reports a part of a batch, its lines are charged what was held",
		"batch", pp.turn.b.ID, "upstream", p.Job)
	p.State, p.End = partEnded, endLost
	if p.Job == "" && p.Asked == 0 {
		p.End = endUnsent
	}
	return pp.writePart(ctx, p)
}

// upload sends the part's file if it is not there yet.
func (pp *providerParts) upload(ctx context.Context, api providers.Batches, p *part) error {
	again := p.Asked != 0
	p.Asked = time.Now().Unix()
	if err := pp.writePart(ctx, p); err != nil {
		return err
	}
	id, err := api.Upload(ctx, pp.file(ctx, p), again)
	if err != nil {
		return pp.refusedPart(ctx, p, err)
	}
	p.State, p.File = partUploaded, id
	p.Asked, p.Again = 0, 0
	return pp.writePart(ctx, p)
}

// refusedPart handles a provider's refusal of an upload or a batch. An uncertain refusal
// leaves p.Asked set.
func (pp *providerParts) refusedPart(ctx context.Context, p *part, err error) error {
	if !providers.Certain(err) {
		return err
	}
	p.Asked = 0
	var refused *providers.APIError
	switch {
	case !errors.As(err, &refused): // the provider was not reached
		p.later(pp.r.opts.Poll)
	// 401 and 403 are for the operator to fix
	case busy(refused), refused.Status == http.StatusUnauthorized, refused.Status == http.StatusForbidden:
		p.later(max(refused.RetryAfter, pp.r.opts.Poll))
	default:
		p.State, p.End = partEnded, string(Failed)
		p.Problems = []dialect.BatchFault{{Code: refused.Code, Message: refused.Message}}
	}
	pp.r.log.WarnContext(ctx, "provider refused a part of a batch", "batch", pp.turn.b.ID, "part", p.N, "err", err)
	return pp.writePart(ctx, p)
}

// busy reports whether the same request may be executed later.
func busy(refused *providers.APIError) bool {
	later := []int{http.StatusTooManyRequests, http.StatusRequestTimeout, wire.StatusOverloaded}
	return slices.Contains(later, refused.Status)
}

// cancel requests the end of a batch. A refusal is no error, because the batch may have ended.
func cancel(ctx context.Context, api providers.Batches, id string) error {
	err := api.Cancel(ctx, id)
	refused, ok := errors.AsType[*providers.APIError](err)
	if ok && providers.Certain(err) && !busy(refused) {
		return nil
	}
	return err
}

// makeBatch creates a batch from the part's file after making sure that there is none. A
// creation whose answer was lost may still be in progress at the provider, so another one
// is requested only after Options.Doubt, and the later of two is cancelled.
func (pp *providerParts) makeBatch(ctx context.Context, api providers.Batches, p *part, ending bool) error {
	if p.Asked != 0 {
		since := time.Unix(p.Asked, 0)
		ids, unclear, err := api.Find(ctx, pp.file(ctx, p), since)
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			for _, id := range ids[1:] {
				if err := cancel(ctx, api, id); err != nil {
					return err
				}
			}
			return pp.made(ctx, p, ids[0])
		}
		if unclear || time.Since(since) < pp.r.opts.Doubt {
			p.later(min(pp.r.opts.Doubt/4, pp.r.opts.Poll))
			return pp.writePart(ctx, p)
		}
		p.Asked = 0
		if ending {
			return pp.writePart(ctx, p)
		}
	}
	p.Asked, p.Try = time.Now().Unix(), p.Try+1
	if err := pp.writePart(ctx, p); err != nil {
		return err
	}
	id, err := api.Create(ctx, pp.file(ctx, p))
	if err != nil {
		return pp.refusedPart(ctx, p, err)
	}
	return pp.made(ctx, p, id)
}

// file describes the part's file to the provider's API.
func (pp *providerParts) file(ctx context.Context, p *part) *dialect.BatchFile {
	b := pp.turn.b
	f := &dialect.BatchFile{
		Batch: b.ID, Part: p.N, Try: p.Try, Lines: p.Lines, Bytes: p.Bytes, Endpoint: b.Endpoint, Header: b.Header,
		ID: p.File,
		Open: func() (io.ReadCloser, error) {
			return pp.r.s.files.Blobs().Open(ctx, p.blob(b, partInput), 0)
		},
	}
	for _, other := range b.parts {
		if other != p && other.Job != "" {
			f.Others = append(f.Others, other.Job)
		}
	}
	return f
}

func (pp *providerParts) made(ctx context.Context, p *part, id string) error {
	p.State, p.Job = partRunning, id
	p.Asked, p.Again = 0, 0
	pp.r.log.InfoContext(ctx, "part of a batch submitted to the provider", "batch", pp.turn.b.ID, "part", p.N, "lines",
		p.Lines, "upstream", id)
	return pp.writePart(ctx, p)
}

// poll reads the provider's batch once a round, and records its end. If the batch is
// ending, it is cancelled first.
func (pp *providerParts) poll(ctx context.Context, api providers.Batches, p *part, ending bool) (bool, error) {
	if ending && !p.Cancelled {
		if err := cancel(ctx, api, p.Job); err != nil {
			return false, err
		}
		p.Cancelled = true
		return true, pp.writePart(ctx, p)
	}
	if pp.polled[p.N] {
		return false, nil
	}
	pp.polled[p.N] = true
	seen, err := api.State(ctx, p.Job)
	if err != nil {
		return false, err
	}
	if seen.End == "" {
		if p.SeenOK == seen.Good && p.SeenBad == seen.Bad {
			return false, nil
		}
		p.SeenOK, p.SeenBad = seen.Good, seen.Bad
		return false, pp.writePart(ctx, p)
	}
	return true, pp.over(ctx, p, &seen, ending)
}

// over records how the provider's batch ended. One that failed because the account already
// has too much enqueued is retried.
func (pp *providerParts) over(ctx context.Context, p *part, seen *dialect.Batch, ending bool) error {
	problems := seen.Faults[:min(len(seen.Faults), maxProblems)]
	crowded := slices.ContainsFunc(problems, func(f dialect.BatchFault) bool {
		return strings.HasSuffix(f.Code, "limit_exceeded")
	})
	if seen.End == string(Failed) && crowded && !ending {
		p.State, p.Job = partUploaded, ""
		p.SeenOK, p.SeenBad = 0, 0
		p.later(crowdedRest)
		return pp.writePart(ctx, p)
	}
	p.State, p.End, p.Problems = partEnded, seen.End, problems
	p.Output, p.Errors, p.Whole = seen.Output, seen.Errors, seen.Whole
	p.SeenOK, p.SeenBad = seen.Good, seen.Bad
	return pp.writePart(ctx, p)
}

// fetch copies results from the provider into the blob store, in OpenAI's form.
func (pp *providerParts) fetch(ctx context.Context, api providers.Batches, id string, name string) error {
	if id == "" {
		return nil
	}
	body, err := api.Results(ctx, id)
	if refused, ok := errors.AsType[*providers.APIError](err); ok && refused.Status == http.StatusNotFound {
		pp.r.log.ErrorContext(ctx, "result file missing at the provider", "batch", pp.turn.b.ID, "file", id)
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	lines := &lineReader{body: body, buf: bufio.NewReaderSize(body, readAhead), most: maxResultLine}
	first, _ := lines.buf.Peek(readAhead)
	if wire.IsErrorDocument(first) || bytes.HasPrefix(bytes.TrimSpace(first), []byte("<")) {
		return fmt.Errorf("batch: fetch %s: the provider answered with an error in place of the file", id)
	}
	w, err := pp.r.s.files.Blobs().Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return w.Commit()
		case errors.Is(err, errLong): // it counts as lost
			continue
		case err == nil:
			_, err = w.Write(append(api.Result(line), '\n'))
		}
		if err != nil {
			return fmt.Errorf("batch: fetch %s: %w", id, err)
		}
	}
}

// opened opens a blob that may not exist.
func (pp *providerParts) opened(ctx context.Context, name string, off int64) (io.ReadCloser, error) {
	r, err := pp.r.s.files.Blobs().Open(ctx, name, off)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, nil
	}
	return r, err
}
