package batch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
)

// maxResultLine bounds a line of a provider's output, in bytes. A longer one counts as
// lost.
const maxResultLine = 64 << 20

// What is gathered of a part, in this order.
const (
	stageOutput  = iota
	stageErrors  // the provider's error file
	stageMissing // lines that are in neither
	stageAll
)

// receiving gathers the results of a part that has ended: a chunk at a time, settled line
// by line. The step that counts a chunk records the progress, so that a successor repeats
// at most one chunk; settling twice charges once.
type receiving struct {
	t      *turn
	p      *part
	redact providers.Redactor
	ending bool
	held   map[string]*heldLine // of the part; nil once gathered
	lines  *lineReader
}

// receive collects the results of a part, until the turn ends.
func (pp *providerParts) receive(ctx context.Context, p *part, ending bool) error {
	api, unknown := pp.api()
	if p.State == partEnded {
		if unknown != nil && p.Output+p.Errors != "" {
			return unknown
		}
		if err := errors.Join(pp.fetch(ctx, api, p.Output, p.blob(pp.turn.b, partOutput)),
			pp.fetch(ctx, api, p.Errors, p.blob(pp.turn.b, partErrors))); err != nil {
			return err
		}
		p.State = partFetched
		if err := pp.writePart(ctx, p); err != nil {
			return err
		}
	}
	held, err := pp.heldLines(ctx, p)
	if err != nil {
		return err
	}
	rc := &receiving{t: pp.turn, p: p, redact: api.Redactor(), ending: ending, held: held}
	defer rc.close()
	if err := rc.skip(ctx); err != nil {
		return err
	}
	for p.Stage < stageAll && time.Now().Before(pp.turn.until) {
		if err := rc.chunk(ctx); err != nil {
			return err
		}
		if err := pp.turn.rest(ctx); err != nil {
			return err
		}
	}
	if p.Stage < stageAll {
		return nil
	}
	if unknown == nil {
		pp.tidy(ctx, api, p)
	}
	p.State, p.SeenOK, p.SeenBad = partDone, 0, 0
	return pp.writePart(ctx, p)
}

func (pp *providerParts) api() (api providers.Batches, err error) {
	caller, err := pp.turn.caller()
	if err != nil {
		return api, err
	}
	up, err := pp.r.opts.Guard.Passthrough.Upstream(caller.Org, pp.turn.b.provider)
	if err != nil {
		return api, err
	}
	if up == nil {
		return api, fmt.Errorf("the provider %q of the batch is no longer configured", pp.turn.b.provider)
	}
	api, there := up.Batches()
	if !there {
		return api, fmt.Errorf("the provider %q of the batch no longer has batches", up.ID)
	}
	return api, nil
}

// tidy deletes what the provider stores of a part. What remains costs nothing.
func (pp *providerParts) tidy(ctx context.Context, api providers.Batches, p *part) {
	for _, id := range []string{p.File, p.Output, p.Errors} {
		if id == "" {
			continue
		}
		if err := api.Delete(ctx, id); err != nil && ctx.Err() == nil {
			pp.r.log.WarnContext(ctx, "batch file not deleted at the provider", "batch", pp.turn.b.ID, "file", id, "err", err)
		}
	}
}

func (rc *receiving) close() {
	if rc.lines != nil {
		_ = rc.lines.Close()
		rc.lines = nil
	}
}

// open opens the file of a stage; false if there is none.
func (rc *receiving) open(ctx context.Context, stage int, off int64) (bool, error) {
	rc.close()
	name := []string{partOutput, partErrors, partHolds}[stage]
	body, err := rc.t.parts.opened(ctx, rc.p.blob(rc.t.b, name), off)
	if body == nil || err != nil {
		return false, err
	}
	rc.lines = &lineReader{
		body: body, buf: bufio.NewReaderSize(body, readAhead), at: position{off: off},
		most: maxResultLine,
	}
	return true, nil
}

// skip drops the lines that were already gathered.
func (rc *receiving) skip(ctx context.Context) error {
	for stage := 0; stage <= min(rc.p.Stage, stageErrors); stage++ {
		if there, err := rc.open(ctx, stage, 0); err != nil {
			return err
		} else if !there {
			continue
		}
		for stage < rc.p.Stage || rc.lines.at.off < rc.p.Off {
			line, err := rc.lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil && !errors.Is(err, errLong) {
				return fmt.Errorf("batch: results of part %d: %w", rc.p.N, err)
			}
			if one := parseUpstream(line); err == nil && one != nil {
				delete(rc.held, one.CustomID)
			}
		}
	}
	rc.close()
	return nil
}

// upstreamLine is a line of a provider's output or error file.
type upstreamLine struct {
	CustomID string    `json:"custom_id"`
	Response *response `json:"response"`
	Error    *failure  `json:"error"`
}

func parseUpstream(line []byte) *upstreamLine {
	one := &upstreamLine{}
	if json.Unmarshal(line, one) != nil {
		return nil
	}
	return one
}

// chunk gathers some lines and settles them.
func (rc *receiving) chunk(ctx context.Context) error {
	t, p := rc.t, rc.p
	if rc.lines == nil {
		if there, err := rc.open(ctx, p.Stage, p.Off); err != nil {
			return err
		} else if !there {
			p.Stage, p.Off = p.Stage+1, 0
			return nil // recorded with the next chunk or the end
		}
	}
	results, ends, over, err := rc.read(ctx)
	if err != nil {
		return err
	}
	if err := t.parts.settle(ctx, ends); err != nil {
		return err
	}
	c := t.newChunk()
	defer c.abort()
	for _, r := range results {
		if err := c.add(ctx, r); err != nil {
			return err
		}
	}
	p.Off = rc.lines.at.off
	if over {
		p.Stage, p.Off = p.Stage+1, 0
		rc.close()
	}
	p.SeenOK, p.SeenBad = max(0, p.SeenOK-c.good), max(0, p.SeenBad-c.bad)
	st := step{}
	st.set(partField(p.N), p.text())
	t.parts.tellParts(&st)
	return t.commitChunk(ctx, &st, c, InProgress, Cancelling)
}

// read returns the next lines, each with how its call ended. over means the end of the file
// was reached.
func (rc *receiving) read(ctx context.Context) (results []result, ends []guard.BatchedEnd, over bool, err error) {
	for size := 0; len(ends) < gatherAt && size < gatherBytes; {
		line, err := rc.lines.next()
		if errors.Is(err, io.EOF) {
			return results, ends, true, nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return nil, nil, false, fmt.Errorf("batch: results of part %d: %w", rc.p.N, err)
		}
		if ctx.Err() != nil {
			return nil, nil, false, context.Cause(ctx)
		}
		one := parseUpstream(line)
		if err != nil || one == nil {
			continue
		}
		h := rc.held[one.CustomID]
		// duplicate or unknown; in the list of holds: gathered before
		if h == nil {
			continue
		}
		delete(rc.held, one.CustomID)
		size += len(line)
		r, end := rc.result(h, one)
		results, ends = append(results, r), append(ends, end)
	}
	return results, ends, false, nil
}

// result returns the result of a line and how its call ended.
func (rc *receiving) result(h *heldLine, one *upstreamLine) (result, guard.BatchedEnd) {
	t := rc.t
	r, end := t.newResult(h.Line, h.own()), guard.BatchedEnd{Batched: h.Batched}
	switch {
	case one.Response != nil && one.Response.StatusCode > 0:
		if len(one.Response.Body) == 0 {
			one.Response.Body = json.RawMessage("null")
		}
		a, ok := wire.ParseUsage(t.b.Endpoint, one.Response.Body)
		if !wire.IsAnswer(one.Response.StatusCode) || a.Failed { // an error, whatever its status
			named, _ := wire.ParseError(one.Response.StatusCode, one.Response.Body)
			one.Response.StatusCode = named.Status
		} else if ok {
			r.usage = a.Usage
		}
		r.Response = rc.redacted(*one.Response)
		end.Status, end.RequestID, end.Body = r.Response.StatusCode, r.Response.RequestID, one.Response.Body
		r.Response.RequestID = cmp.Or(r.Response.RequestID, h.ID)
	case one.Error != nil && !(rc.ending && strings.HasPrefix(one.Error.Code, "batch_")):
		r.Error = &failure{rc.redact.Redact(one.Error.Code), rc.redact.Redact(one.Error.Message)}
	case one.Error != nil:
		r = t.unrun(h.Line, h.own())
	default:
		r.Error, end.Lost = rc.missing(h)
	}
	return r, end
}

// redacted returns a provider's answer as the caller may see it.
func (rc *receiving) redacted(r response) *response {
	r.RequestID = rc.redact.Redact(r.RequestID)
	if r.StatusCode < http.StatusMultipleChoices {
		r.Body = rc.redact.Failure(r.Body)
	} else {
		r.Body = []byte(rc.redact.Redact(string(r.Body)))
	}
	if !json.Valid(r.Body) { // a redacted name was a number
		r.Body = json.RawMessage("null")
	}
	return &r
}

// missing returns why a line is in neither file, and whether it may still have run.
func (rc *receiving) missing(h *heldLine) (why *failure, lost bool) {
	p := rc.p
	switch {
	case p.End == string(Failed):
		return p.fault(h.Nth), false
	case p.Whole:
		return &failure{CodeLost, noResult}, true
	case rc.ending && p.End != endLost, p.End == string(Expired), p.End == endUnsent:
		return rc.t.unrun(h.Line, h.own()).Error, false
	case p.End == string(Cancelled):
		return &failure{CodeCancelled, "This request was not executed because the provider's batch was cancelled."}, false
	}
	return &failure{CodeLost, noResult}, true
}

const noResult = "The provider returned no result for this request."

// fault returns why the provider did not accept the part, for its nth line.
func (p *part) fault(nth int) *failure {
	i := slices.IndexFunc(p.Problems, func(f dialect.BatchFault) bool { return f.Line == nth })
	if i < 0 {
		i = slices.IndexFunc(p.Problems, func(f dialect.BatchFault) bool { return f.Line == 0 })
	}
	if i < 0 {
		return &failure{"batch_failed", "The provider rejected the batch that this request was in."}
	}
	code := cmp.Or(p.Problems[i].Code, "batch_failed")
	return &failure{code, "The provider rejected the batch that this request was in: " + p.Problems[i].Message}
}

// expiredThere reports whether a part expired at the provider.
func (pp *providerParts) expiredThere() bool {
	return slices.ContainsFunc(pp.turn.b.parts, func(p *part) bool { return p.End == string(Expired) })
}
