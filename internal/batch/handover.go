package batch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
)

const (
	// What every provider accepts in one batch, with a margin: OpenAI 50,000 lines and 200
	// MB, Anthropic 100,000 and 256 MB.
	partLines = 50_000
	partBytes = 190 << 20
	// holdSlack is how long after the end of a batch's window its lines are still held,
	// for parts that were handed over late and have a window of their own.
	holdSlack = Window + 2*time.Hour
	// lostAfter is how long after that window a provider that does not answer is still
	// polled.
	lostAfter = Window
	// restEvery is the pause, in polling intervals, after a part that was cut short by
	// a limit.
	restEvery = 5
)

// heldLine is a line that was handed over, with what is needed when its result arrives.
type heldLine struct {
	CustomID string `json:"custom_id"`     // at the provider
	Own      string `json:"own,omitempty"` // the caller's custom_id, if it is another
	Line     int    `json:"line"`          // of the input file
	Nth      int    `json:"nth"`           // of the part, from 1
	guard.Batched
}

// own returns the caller's custom_id.
func (h *heldLine) own() string { return cmp.Or(h.Own, h.CustomID) }

// byProvider does one piece of work for a batch that its provider runs.
func (pp *providerParts) byProvider(ctx context.Context, ending bool) (bool, error) {
	if ending {
		if err := pp.turn.heavily(ctx, pp.giveBack); err != nil {
			return false, err
		}
	}
	worked, open := false, 0
	for _, p := range pp.turn.b.parts {
		if p.State == partDone {
			continue
		}
		open++
		did, err := pp.advance(ctx, p, ending)
		if err != nil {
			return worked, err
		}
		worked = worked || did
	}
	if pp.turn.b.next.line >= pp.turn.b.lastLine {
		if open == 0 {
			return true, pp.turn.toFinish(ctx, ending)
		}
		return worked, nil
	}
	if ending || pp.stopped() || time.Now().Unix() < pp.turn.b.fillAgain {
		return worked, nil
	}
	return true, pp.turn.heavily(ctx, pp.fill)
}

// stopped reports whether the org's spending is stopped. Its batches are kept meanwhile, and
// nothing is handed over.
func (pp *providerParts) stopped() bool { return pp.r.opts.Guard.Stopped(pp.turn.b.Org) != nil }

// filling is a part being created.
type filling struct {
	t        *turn
	p        *part
	api      providers.Batches
	unknown  error // why there is no api
	file     *dialect.BatchFile
	in, idx  *blob.Writer
	failures *chunk // lines that are refused for good
	wait     time.Duration
	full     bool
}

// fill creates the next part: it holds the money for line after line and writes them into a
// file until the input ends, the provider's limits for a file are reached, or a limit has
// no room. It first writes how far it may get, so that what is held for a part that was
// never completed is released.
func (pp *providerParts) fill(ctx context.Context) (err error) {
	last := position{line: pp.turn.b.lastLine}
	if pp.turn.b.page != last {
		if err := pp.turn.reach(ctx, last); err != nil {
			return err
		}
	}
	b := pp.turn.b
	f := &filling{t: pp.turn, failures: pp.turn.newChunk(), p: &part{
		N: len(b.parts) + 1, Attempt: b.fills, From: b.next, To: b.next, State: partSealed,
	}}
	defer f.abort()
	f.api, f.unknown = pp.api()
	f.file = pp.file(ctx, f.p)
	f.in, err = pp.r.s.files.Blobs().Create(ctx, f.p.blob(pp.turn.b, partInput))
	if err != nil {
		return err
	}
	f.idx, err = pp.r.s.files.Blobs().Create(ctx, f.p.blob(pp.turn.b, partHolds))
	if err != nil {
		return err
	}
	for !f.full && f.p.To.line < pp.turn.b.lastLine {
		page, err := pp.turn.page(ctx, f.p.To, pageLines)
		if err != nil {
			return err
		}
		if err := f.take(ctx, page); err != nil {
			return err
		}
		if err := pp.turn.refresh(ctx); err != nil {
			return err
		}
		if pp.turn.b.Status != InProgress {
			return errMoved
		}
		if err := pp.turn.rest(ctx); err != nil {
			return err
		}
	}
	return f.seal(ctx)
}

func (f *filling) abort() {
	f.failures.abort()
	for _, w := range []*blob.Writer{f.in, f.idx} {
		if w != nil {
			w.Abort()
		}
	}
}

func (f *filling) take(ctx context.Context, page []entry) error {
	for _, e := range page {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f.p.Lines >= f.t.r.opts.PartLines || f.p.Bytes+int64(len(e.body)) > partBytes {
			f.full = true
		}
		var refused *wire.Error
		var err error
		if !f.full {
			refused, err = f.line(ctx, e)
		}
		if err == nil && refused != nil {
			err = f.failures.add(ctx, f.t.refusal(e.line, e.customID, refused))
		}
		if err != nil {
			return err
		}
		if f.full {
			f.t.close() // the reader is past the part's end
			return nil
		}
		f.p.To = e.end
	}
	return nil
}

// line holds a line and writes it. refused is its result if it can never run. A line that
// is currently over a limit ends the part.
func (f *filling) line(ctx context.Context, e entry) (refused *wire.Error, err error) {
	t := f.t
	plan, refused, err := t.prepare(ctx, e)
	if refused != nil || err != nil {
		return refused, err
	}
	if plan.Target.Provider.ID != t.b.provider {
		return wire.BadRequest("previous_response_id", "invalid_value",
			"This request refers to an object stored at a different provider than the one that runs its batch"), nil
	}
	if f.unknown != nil {
		return nil, f.unknown
	}
	held, err := t.r.opts.Guard.Batches.Hold(ctx, plan, t.parts.callID(e.customID), f.p.Attempt,
		time.Until(t.b.Expires)+holdSlack)
	var refusal *guard.Refusal
	var stopped *guard.StoppedError
	switch {
	case errors.As(err, &stopped):
		f.full = true
		return nil, nil
	case errors.As(err, &refusal) && refusal.Final():
		t.countRefused(e, err, guard.Refusing(err, plan.Caller, plan))
		return refusal.Public(), nil
	case errors.As(err, &refusal):
		f.full, f.wait = true, refusal.Binding.Wait
		return nil, nil
	case errors.Is(err, budget.ErrEnded): // released by a spend cap in an earlier attempt
		f.full = true
		return nil, nil
	case err != nil:
		return nil, err
	}
	return nil, f.write(e, plan.Body(), held)
}

// write adds a held line to the part's files.
func (f *filling) write(e entry, body wire.Body, held guard.Batched) error {
	size := f.in.Size()
	f.p.Lines++
	h := heldLine{Line: e.line, Nth: f.p.Lines, Batched: held}
	h.CustomID = f.api.LineID(f.file, e.customID, h.Nth)
	if h.CustomID != e.customID {
		h.Own = e.customID
	}
	before, after := f.api.Line(h.CustomID, h.Nth, f.t.b.Endpoint)
	line := io.MultiReader(strings.NewReader(before), body.Reader(), strings.NewReader(after))
	if _, err := io.Copy(f.in, line); err != nil { // the body was on one line
		return err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	f.p.Bytes += f.in.Size() - size
	_, err = f.idx.Write(append(text, '\n'))
	return err
}

// seal records the part. From then on its lines are handed over and no longer released.
func (f *filling) seal(ctx context.Context) error {
	t, st := f.t, step{}
	if f.p.Lines > 0 {
		if err := errors.Join(f.in.Commit(), f.idx.Commit()); err != nil {
			return err
		}
		st.set(partField(f.p.N), f.p.text())
	}
	again := int64(0)
	if f.full {
		again = time.Now().Add(max(f.wait, restEvery*t.r.opts.Poll)).Unix() + 1
		if f.p.Lines >= t.r.opts.PartLines || f.wait == 0 && f.p.Lines > 0 {
			again = 0
		}
	}
	st.set("next", f.p.To.String())
	st.set("page", f.p.To.String())
	st.set("fills", strconv.Itoa(t.b.fills+1))
	st.set("fill_again", strconv.FormatInt(again, 10))
	if err := t.commitChunk(ctx, &st, f.failures, InProgress); err != nil {
		return err
	}
	t.b.next, t.b.page = f.p.To, f.p.To
	t.b.fills, t.b.fillAgain = t.b.fills+1, again
	if f.p.Lines > 0 {
		t.b.parts = append(t.b.parts, f.p)
	}
	return nil
}

// callID returns the id of a line's call, always the same.
func (pp *providerParts) callID(customID string) string {
	return wire.DerivedCallID(pp.turn.b.Created, pp.turn.b.ID+" "+customID)
}

// giveBack records the lines that were never handed over, because the batch was cancelled
// or its time is up, as not run, and releases what is held for those of a part that was
// never sealed.
func (pp *providerParts) giveBack(ctx context.Context) error {
	for pp.turn.b.next.line < pp.turn.b.lastLine {
		page, err := pp.turn.page(ctx, pp.turn.b.next, pageLines)
		if err != nil {
			return err
		}
		unrun := make([]result, 0, len(page))
		var held []guard.BatchedEnd
		for _, e := range page {
			unrun = append(unrun, pp.turn.unrun(e.line, e.customID))
			if e.line <= pp.turn.b.page.line && e.customID != "" {
				held = append(held, guard.BatchedEnd{Batched: pp.mine(guard.Batched{
					ID: pp.callID(e.customID), Attempt: pp.turn.b.fills, At: time.Now().Unix(),
				})})
			}
		}
		if err := pp.settle(ctx, held); err != nil {
			return err
		}
		end, st := page[len(page)-1].end, step{}
		st.set("next", end.String())
		if err := pp.turn.commit(ctx, &st, unrun, pp.turn.b.Status); err != nil {
			return err
		}
		pp.turn.b.next = end
		if err := pp.turn.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// mine fills in what is the same for all lines of the batch.
func (pp *providerParts) mine(b guard.Batched) guard.Batched {
	of := pp.turn.b
	b.Provider, b.Model, b.Upstream, b.Endpoint = of.provider, of.Model, of.upstream, of.Endpoint
	return b
}

func (pp *providerParts) settle(ctx context.Context, ends []guard.BatchedEnd) error {
	if len(ends) == 0 {
		return nil
	}
	caller, err := pp.turn.caller()
	if err != nil { // the org is gone, but its holds are not
		caller = guard.Caller{
			Org: &guard.Org{Org: settings.Org{ID: pp.turn.b.Org}}, User: pp.turn.b.User, Key: pp.turn.b.Key, IP: pp.turn.b.IP,
			Batched: true, Batch: pp.turn.b.ID,
		}
	}
	return pp.r.opts.Guard.Batches.End(ctx, caller, ends)
}

// heldLines reads the lines of a part.
func (pp *providerParts) heldLines(ctx context.Context, p *part) (map[string]*heldLine, error) {
	r, err := pp.r.s.files.Blobs().Open(ctx, p.blob(pp.turn.b, partHolds), 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines := make(map[string]*heldLine, p.Lines)
	for dec := json.NewDecoder(bufio.NewReaderSize(r, readAhead)); ; {
		h := &heldLine{}
		switch err := dec.Decode(h); {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, fmt.Errorf("batch: holds of part %d: %w", p.N, err)
		}
		h.Batched = pp.mine(h.Batched)
		lines[h.CustomID] = h
	}
}
