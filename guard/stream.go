package guard

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/tokenizer"
)

// relay forwards one event stream from the provider to the caller.
type relay struct {
	errand  *upstreamCall
	call    *Call
	out     http.ResponseWriter
	redact  providers.Redactor // of the provider's errors
	flush   func() error
	events  wire.Events
	made    *neutral.Stream   // translates them for the caller; nil if it speaks the provider's wire
	room    spool.Room        // memory for buffered parts of events
	count   *tokenizer.Stream // visible output
	tells   bool              // the visible output determines the bill
	apart   int64             // tokens of output counted chunk by chunk
	factor  int64             // what may be billed per token of ours, in thousandths
	allowed int64             // count of ours above which the output limit was exceeded
	text    []byte
	bytes   int64 // of visible output
	summary int64 // tokens of count that are a summary of reasoning

	named   string    // the model, from the last event that names one
	seen    time.Time // when the last text arrived
	hidden  bool      // the usage reports hidden output
	gone    bool      // the caller accepts no more bytes
	answer  wire.Answer
	usage   bool         // answer holds usage
	counted int64        // the count when that usage arrived
	used    time.Time    // when it arrived
	began   time.Time    // when the first usage arrived
	created wire.Created // of a creation, in place of answer
	ends    int64        // chunks with a finish_reason; each choice has one
	done    bool         // [DONE] was seen
	failed  bool         // the provider sent an error event
	failure []byte       // its data
	told    bool         // it has the usage
	instead []byte       // to be written in place of the event, which clients would not take for an error

	heard bool     // a chunk has arrived
	shows bool     // one with content has
	begin func()   // writes the head; nil once it is written
	early [][]byte // events that were not written yet, because the answer may still be an error

	closes bool // its caller is better off with a message that ends than with an error
	blocks wire.MessageBlocks

	sequence int64 // of the next Responses event
	noted    bool  // the response's id was recorded

	full bool // the answer is too long to be translated

	state   sync.Mutex  // guards what is known of the stream while its hold grows; see guarded
	refused *wire.Error // why the hold could not grow
	dropped bool        // an event was not forwarded because its cost is not held
}

// whole reports whether all choices are complete.
func (r *relay) whole() bool { return r.done || r.ends >= r.call.Plan.Request.Answers() }

// atEnd reports whether nothing can follow: the end that the endpoint's wire sends has come.
func (r *relay) atEnd() bool {
	return r.done || !r.call.Plan.sent.Endpoint.Traits().Chunks && r.whole()
}

// readBuffers hold what one read of an answer returns. Every stream has one for its whole
// duration, so they are small.
var readBuffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// relayStream forwards the provider's events byte for byte as they arrive, drops the usage
// chunk if the caller did not request it, and settles the result.
func (e *upstreamCall) relayStream(w http.ResponseWriter, resp *http.Response) error {
	c := e.call
	r := &relay{errand: e, call: c, out: w, redact: e.redact, flush: http.NewResponseController(w).Flush}
	r.count, r.tells = tokenizer.NewStream(tokenizer.EncodingFor(c.Plan.Target.Model)), !c.Plan.hidesOutput()
	_, most := tokenizer.Multiplier(c.Plan.Target.Model)
	r.factor, r.allowed = int64(most), c.bill.mostCount()
	r.closes = e.closes
	r.room = c.guard.spool.Room(c.Plan.Caller.Org.ID, c.guard.answerWait)
	defer r.room.Close()
	if c.Plan.translated() {
		from, to := e.wires(true)
		r.made = &neutral.Stream{From: from, To: to}
	}
	r.begin = func() {
		c.dropBody(e.sent)
		c.head(w, resp)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("X-Accel-Buffering", "no")
		w.WriteHeader(resp.StatusCode)
	}

	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	stop := r.keepAhead()
	defer stop()
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 || err == nil {
			e.behind.taken()
			if end := r.take((*buf)[:n]); end != nil {
				err = end
			}
			e.behind.passed()
		}
		if err != nil {
			stop()
			if r.refused != nil && !r.whole() {
				err = errCut
			}
			return r.close(resp, err)
		}
	}
}

// take forwards the events completed by p. The error is errCut, an event without end, or an
// event that does not fit in memory.
func (r *relay) take(p []byte) error {
	if err := r.events.Feed(p); err != nil {
		return err
	}
	if err := r.room.Resize(r.errand.upstream, r.kept()); err != nil { // a slow caller keeps them in memory
		return err
	}
	wrote := false
	for {
		event, ok := r.events.Next()
		if !ok {
			break
		}
		pass := false
		r.guarded(func() { pass = r.regard(event) })
		if r.begin != nil && r.isNone(r.done) { // it can be answered by its status
			return io.EOF
		}
		if r.dropped {
			continue
		}
		switch {
		case r.made != nil:
			wrote = r.passMade(event) || wrote
		case pass:
			wrote = r.pass(event) || wrote
		}
	}
	if wrote && !r.gone && r.flush() != nil {
		r.lost()
	}
	if r.errand.behind.catching.Load() {
		r.errand.behind.read.Store(r.visible())
	}
	if r.full {
		return io.EOF
	}
	cut := false
	r.guarded(func() { cut = r.refused != nil && (r.dropped || !r.whole()) })
	if cut {
		return errCut
	}
	return nil
}

// regard counts an event, keeps the hold ahead of it, and reports whether to forward it.
func (r *relay) regard(event []byte) bool {
	pass, began := r.inspect(event), time.Now()
	if r.ahead() {
		r.call.watch.redis(began)
	}
	r.within()
	if !r.covered() { // the rest is still counted to its end
		r.dropped = true
	}
	return pass
}

// kept returns how many bytes of the stream are in memory.
func (r *relay) kept() int {
	n := r.events.Held()
	for _, event := range r.early {
		n += len(event)
	}
	if r.made != nil {
		n += r.made.Held()
	}
	return n
}

// lost records that the caller accepts no more bytes, which counts as having left.
func (r *relay) lost() {
	r.gone = true
	r.errand.hangUp()
}

// isNone reports whether a stream is no answer: it fails before it has shown anything, or is over
// without a chunk.
func (r *relay) isNone(over bool) bool { return r.failed || over && !r.heard || r.done && !r.shows }

// mostEarly is how many events without content are held back at the start of a stream: two usually
// come before the first text. If an error follows them, its status can still be sent. A call that will
// be repeated has no caller who waits for them, so mostRepeated of its events are held back.
const (
	mostEarly    = 2
	mostRepeated = 1000
)

// pass writes an event of the provider, unless it is held back.
func (r *relay) pass(event []byte) bool {
	event = r.redact.Event(event)
	if r.instead != nil {
		event, r.instead = r.instead, nil
	}
	return r.hold(event)
}

// hold writes an event unless it is one of the first, which are held back.
func (r *relay) hold(event []byte) bool {
	if r.begin != nil && !r.shows && (len(r.early) < mostEarly || r.errand.repeats && len(r.early) < mostRepeated) {
		r.early = append(r.early, bytes.Clone(event))
		return false
	}
	r.write(event)
	return true
}

func (r *relay) passMade(event []byte) bool {
	out, failed := r.made.Event(r.redact.Event(event))
	if failed != nil {
		r.fails(failed.JSON(), true)
		r.full = true
	}
	return r.passOwn(out)
}

// passOwn passes events in the caller's form that were made here.
func (r *relay) passOwn(events []byte) bool {
	if len(events) == 0 {
		return false
	}
	if r.closes || r.call.Plan.Request.Endpoint.Traits().Numbered {
		r.followMade(events)
	}
	return r.hold(events)
}

// followMade records what the events of a response show.
func (r *relay) followMade(events []byte) {
	var list wire.Events
	if list.Feed(events) != nil {
		return
	}
	for event, ok := list.Next(); ok; event, ok = list.Next() {
		if r.closes {
			r.blocks.Note(wire.EventData(event))
			continue
		}
		chunk, err := wire.ScanEvent(r.call.Plan.Request.Endpoint, wire.EventData(event), nil)
		if err == nil {
			r.follow(chunk)
		}
	}
}

func (r *relay) write(p []byte) {
	if begin := r.begin; begin != nil {
		r.begin = nil
		r.guarded(begin) // it tells of the hold
		for _, event := range r.early {
			r.write(event)
		}
		r.early = nil
	}
	if r.gone {
		return
	}
	if _, err := r.out.Write(p); err != nil {
		r.lost()
	}
}

// inspect reads what an event says about the bill and reports whether to forward it.
func (r *relay) inspect(event []byte) bool {
	data := wire.EventData(event)
	if len(data) == 0 {
		return true
	}
	if string(data) == wire.EndMark {
		r.done = true
		return true
	}
	if wire.IsErrorEvent(event) { // whatever its data is
		r.fails(data, false)
	}
	if r.call.Plan.Request.Creation != nil {
		r.inspectCreated(data)
		return true
	}
	ep := r.call.Plan.sent.Endpoint
	if r.closes && r.made == nil {
		r.blocks.Note(data)
	}
	r.heard = r.heard || data[0] == '{'
	chunk, err := wire.ScanEvent(ep, wire.EventJSON(data), r.text[:0])
	if err != nil {
		return true // not ours to judge; its missing usage will show
	}
	r.call.Plan.Target.Provider.Dialect.Usage(ep, data, &chunk.Answer)
	r.text = chunk.Text
	if r.made == nil && (ep.Traits().Numbered || r.call.Plan.Request.Store) {
		r.follow(chunk)
	}
	r.named = chunk.Named(r.named)
	if len(chunk.Text) > 0 {
		r.tally(chunk)
		r.seen = time.Now()
	}
	if chunk.Finish {
		r.ends++
	}
	r.shows = r.shows || len(chunk.Text) > 0 || chunk.Finish || chunk.HasUsage
	if chunk.Error {
		r.fails(data, chunk.Framed)
		r.told = chunk.HasUsage && r.call.bill.faultOf(chunk.Answer) == ""
	}
	if !chunk.HasUsage && chunk.Fault == "" {
		return true
	}
	r.account(chunk.Answer)
	return !ep.Traits().Chunks || chunk.Error || !chunk.ChoicesEmpty || r.call.Plan.Request.IncludeUsage
}

// fails records an error event of the provider. framed means that clients know its form.
func (r *relay) fails(data []byte, framed bool) {
	r.failed, r.failure = true, []byte(r.redact.Redact(string(data)))
	e := wire.ParseErrorEvent(r.failure)
	r.call.Result.Ending = e
	r.instead = nil
	if !framed {
		r.instead = r.frame(e)
	}
}

func (r *relay) frame(e *wire.Error) []byte {
	return e.Frame(r.call.Plan.Request.Endpoint, r.sequence)
}

// follow records what an event shows of what the provider stores.
func (r *relay) follow(chunk wire.Chunk) {
	r.sequence = max(r.sequence, chunk.Sequence+1)
	r.call.Result.identify(chunk.ID)
	// immediately, so that it can be fetched while it is generated
	if chunk.ID != "" && (!r.noted || chunk.HasUsage) {
		r.noted = true
		r.errand.note(chunk.Answer)
	}
}

// close settles the stream after the provider's last byte or a failure, and reports a
// failure to the caller in a way that no client mistakes for success.
func (r *relay) close(resp *http.Response, err error) error {
	if errors.Is(err, errCut) {
		return r.sever()
	}
	rest, ended := r.events.Rest(), errors.Is(err, io.EOF)
	pass := len(rest) > 0 && ended && r.inspect(rest)
	r.over()
	c := r.call
	r.naming()
	r.answer.HasUsage = r.usage
	none := r.isNone(ended)
	if r.begin != nil && none {
		c.Result.Ending = nil
		return r.errand.relayError(r.out, resp, &failure{r.failure, r.answer})
	}
	if r.failed {
		r.errand.judged(resp, c.Result.Ending.Status, r.failure)
	}
	complete := r.whole() && (ended || r.atEnd()) && !r.failed
	switch {
	case none && !r.shows: // only the head and comments are out
		c.bill.failed(wire.ParseErrorEvent(r.failure), r.answer)
	case c.Plan.Request.Creation != nil && complete:
		c.bill.chargeCreated(r.created)
	case r.usage && (r.whole() || r.told):
		r.charge()
	case complete && r.tells && !r.hidden && c.bill.bounded():
		c.bill.chargeEstimate(NoUsage, r.visible())
	case complete:
		c.bill.chargeHold(NoUsage)
	case r.usage && !r.hidden:
		r.chargePart()
	case r.errand.left() && !r.hidden:
		c.bill.left(r.sent(), r.reached())
	case c.bill.paced():
		c.bill.chargeEstimate(Broken, r.reached())
	default:
		c.bill.chargeHold(Broken)
	}
	c.bill.reported(r.answer)
	c.Result.Failed = r.failed
	if !complete && !r.failed {
		if r.errand.gone() {
			return ErrGone
		}
		return r.fail(brokenOff(err)) // half an event would corrupt the error's frame, so it is dropped
	}
	switch {
	case r.made != nil && ended:
		r.passMade(rest)
		r.passOwn(r.made.Close())
	case pass:
		r.write(append(r.redact.Event(rest), "\n\n"...)) // without the blank line most clients drop the event
	}
	err = r.finish()
	c.Result.Ended = complete && r.atEnd()
	c.Result.Relayed = (complete || r.failed) && !r.gone
	return err
}

// naming sets the model that the stream named as the one to price by, even if no usage
// arrived.
func (r *relay) naming() {
	r.answer.Model = cmp.Or(r.answer.Model, r.named)
	r.call.Result.Model = r.answer.Model
}

// finish puts the exact cost in a trailer, because the headers have long been sent.
func (r *relay) finish() error {
	r.call.trail(r.out.Header())
	r.gone = r.gone || r.flush() != nil
	if r.gone || r.errand.gone() {
		return ErrGone
	}
	return nil
}

// brokenOff returns the error shown to the caller of a stream that the provider broke off.
func brokenOff(err error) *wire.Error {
	text := "The provider's stream ended before the answer was complete"
	if !errors.Is(err, io.EOF) {
		text = "The provider's stream was interrupted"
	}
	return wire.BadGateway(text+". The answer above is incomplete", err)
}

// fail ends the stream with an error frame (docs/errors.md, Errors in a stream), and reports
// its cost in a trailer. If nothing was written, it returns the error.
func (r *relay) fail(e *wire.Error) error {
	if r.begin != nil {
		return e
	}
	r.call.Result.Ending = e
	if r.closes && !r.blocks.Calls() {
		r.write(e.Closing(r.blocks, r.call.Plan.Request.Model))
	} else {
		r.write(r.frame(e))
	}
	return r.finish()
}
