package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// line is a line of a ledger export or of an access log; kind or msg distinguishes them.
type line struct {
	// fields of a ledger entry
	ID          string         `json:"id"`
	Attempt     int            `json:"attempt"`
	Org         string         `json:"org"`
	User        string         `json:"user"`
	Key         string         `json:"key"`
	IP          string         `json:"ip"`
	Labels      recordedLabels `json:"labels"`
	Model       string         `json:"model"`
	Provider    string         `json:"provider"`
	Endpoint    string         `json:"endpoint"`
	Request     string         `json:"request"`
	Run         ledger.RunPath `json:"run"`
	Cause       budget.Cause   `json:"cause"`
	Limit       string         `json:"limit"` // in place of Cause, in records of versions before
	Kind        string         `json:"kind"`
	At          time.Time      `json:"at"`
	Cost        int64          `json:"cost_nano"`
	Total       int64          `json:"total_nano"`
	Overrun     int64          `json:"overrun_nano"`
	Waited      int64          `json:"waited_ms"`
	Took        int64          `json:"took_ms"`
	Held        int64          `json:"held_nano"`
	HeldTokens  int64          `json:"held_tokens"`
	HeldUS      int64          `json:"held_us"`
	QuotaTokens int64          `json:"quota_tokens"`
	Class       string         `json:"class"`
	Stream      bool           `json:"stream"`
	Usage       tokensOfUsage  `json:"usage"`
	// fields of an access record
	Msg        string    `json:"msg"`
	Time       time.Time `json:"time"`
	Route      string    `json:"route"`
	Status     int       `json:"status"`
	TookNS     int64     `json:"took"`
	WaitedNS   int64     `json:"waited"`
	AccessHeld *int64    `json:"held_nano_usd"`
	AccessCost *int64    `json:"cost_nano_usd"`
	Tokens     int64     `json:"tokens"`
	Job        string    `json:"job"`
	Verdict    string    `json:"verdict"`
	Outcome    string    `json:"outcome"`
	Replayed   bool      `json:"replayed"`
}

type tokensOfUsage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// Reader fills a Trace from ledger exports (JSON lines or CSV) and access logs (slog's JSON
// lines), in any order. If there is a ledger, access logs contribute only refused calls,
// because the ledger has all others exactly. It is not safe for concurrent use.
type Reader struct {
	trace  *Trace
	calls  map[string]int // ledger calls that a later entry may correct, by id and attempt
	fixes  []fix
	access []Call
	jobs   map[string]bool // jobs with a record of their worker
	waits  []waiting
	ledger bool
}

// fix is an entry that changes the charge of an earlier one. late is set if it stands on its
// own, because the hold had been lost.
type fix struct {
	id   string
	cost int64
	late *Call
}

// waiting is a call that became a job, according to its proxy's record.
type waiting struct {
	job  string
	call Call
}

// NewReader returns a Reader with an empty Trace.
func NewReader() *Reader {
	return &Reader{trace: NewTrace(), calls: map[string]int{}, jobs: map[string]bool{}}
}

// maxLine limits the length of a log line.
const maxLine = 1 << 20

// Read reads a file completely.
func (r *Reader) Read(ctx context.Context, name string, in io.Reader) error {
	buf := bufio.NewReaderSize(in, 256<<10)
	head, err := buf.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case head[0] != '{':
		return r.readCSV(ctx, name, buf)
	}
	return r.readLines(ctx, name, buf)
}

// lot is a number of lines that are decoded together.
type lot struct {
	first int
	text  [][]byte
	lines []line
	err   error
	done  chan struct{}
}

const lotLines = 2000

// readLines decodes lines on all CPUs and processes them in order.
func (r *Reader) readLines(ctx context.Context, name string, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	work, order := make(chan *lot), make(chan *lot, 2*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for l := range work {
				l.decode()
				close(l.done)
			}
		})
	}
	scanned := make(chan error, 1)
	wg.Go(func() {
		defer close(order)
		defer close(work)
		scanned <- scan(ctx, in, work, order)
	})
	var err error
	for l := range order {
		if err == nil {
			err = l.wait(ctx)
		}
		if err == nil {
			err = r.takeLot(name, l)
		}
		if err != nil {
			cancel()
		}
	}
	cancel()
	wg.Wait()
	if scanErr := <-scanned; err == nil && scanErr != nil {
		err = fmt.Errorf("%s: %w", name, scanErr)
	}
	return err
}

func scan(ctx context.Context, in io.Reader, work, order chan<- *lot) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	l := &lot{first: 1, done: make(chan struct{})}
	send := func() error {
		next := l.first + len(l.text) // the decoder empties it
		for _, to := range []chan<- *lot{order, work} {
			select {
			case to <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l = &lot{first: next, done: make(chan struct{})}
		return nil
	}
	for lines.Scan() {
		l.text = append(l.text, bytes.Clone(lines.Bytes()))
		if len(l.text) == lotLines {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := send(); err != nil {
		return err
	}
	return lines.Err()
}

// wait waits until the lines are decoded, which may never happen once ctx is done.
func (l *lot) wait(ctx context.Context) error {
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lot) decode() {
	l.lines = make([]line, len(l.text))
	for i, text := range l.text {
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := json.Unmarshal(text, &l.lines[i]); err != nil {
			l.err = fmt.Errorf("line %d: %w", l.first+i, err)
			return
		}
	}
	l.text = l.text[:0:0]
}

func (r *Reader) takeLot(name string, l *lot) error {
	if l.err != nil {
		return fmt.Errorf("%s: %w", name, l.err)
	}
	for i := range l.lines {
		if err := r.take(&l.lines[i]); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, l.first+i, err)
		}
	}
	return nil
}

func (r *Reader) take(l *line) error {
	switch {
	case l.Kind != "":
		return r.entry(l)
	case l.Msg == "call" && l.Org != "" && l.AccessHeld != nil && !l.Replayed:
		r.visit(l)
	case l.Msg == "job" && l.AccessHeld != nil:
		r.ran(l)
	}
	return nil
}

// Entry adds a ledger entry, as read from Redis.
func (r *Reader) Entry(e ledger.Entry) error {
	return r.entry(&line{
		ID: e.ID, Attempt: e.Attempt, Org: e.Org, User: e.User, Key: e.Key, IP: e.IP, Labels: recordedLabels(e.Labels),
		Request: e.Request, Run: e.Run, Model: e.Model, Provider: e.Provider, Endpoint: e.Endpoint, Kind: e.Kind, At: e.At,
		Cost: int64(e.Cost), Total: int64(e.Total), Overrun: int64(e.Overrun),
		Waited: e.WaitedMS, Took: e.TookMS, Held: e.HeldNano, HeldTokens: e.HeldTokens, HeldUS: e.HeldUS,
		QuotaTokens: e.QuotaTokens, Class: e.Class, Stream: e.Stream, Outcome: e.Outcome,
		Usage: tokensOfUsage{e.Usage.Input, e.Usage.Output},
	})
}

// entry adds a line of a ledger.
func (r *Reader) entry(l *line) error {
	r.ledger = true
	id := fmt.Sprintf("%s/%d", l.ID, l.Attempt)
	switch l.Kind {
	case ledger.KindSettle:
	case ledger.KindExpire, ledger.KindCharge:
		r.calls[id] = r.trace.Len()
	case ledger.KindLate:
		c := l.charged()
		r.fixes = append(r.fixes, fix{id, l.Cost, &c})
		return nil
	case ledger.KindVoid:
		r.fixes = append(r.fixes, fix{id, l.Cost, nil})
		return nil
	default:
		r.trace.Skipped["manual corrections"]++
		return nil
	}
	return r.trace.Add(l.charged())
}

// charged returns the call of an entry.
func (l *line) charged() Call {
	c := Call{
		Org: l.Org, User: l.User, Key: l.Key, IP: l.IP, Labels: ledger.Labels(l.Labels), Request: l.Request, Run: l.Run,
		Model: l.Model, Provider: l.Provider, Endpoint: l.Endpoint,
		Cost: pricing.Nano(l.Total), Held: pricing.Nano(l.Held), HeldTokens: l.HeldTokens,
		Tokens:      l.Usage.Input + l.Usage.Output,
		QuotaTokens: l.QuotaTokens, Class: l.Class, Stream: l.Stream,
		Failed: guard.Outcome(l.Outcome).Failed() || l.Kind == ledger.KindExpire,
	}
	admitted := l.admitted()
	c.At, c.Took = admitted.Add(-time.Duration(l.Waited)*time.Millisecond), max(l.At.Sub(admitted), 0)
	if l.Held == 0 && l.HeldTokens == 0 { // an entry of an older version, or an expired hold
		c.Held, c.HeldTokens = pricing.Nano(l.Total-l.Overrun), c.Tokens
	}
	c.QuotaTokens = cmp.Or(c.QuotaTokens, c.HeldTokens)
	return c
}

// admitted returns when the call was admitted, from the entry or else from its id and end.
func (l *line) admitted() time.Time {
	if l.HeldUS > 0 {
		return time.UnixMicro(l.HeldUS)
	}
	at := l.At.Add(-time.Duration(l.Took) * time.Millisecond)
	if born, ok := wire.CallTime(l.ID); ok && l.Took == 0 && born.Before(l.At) {
		return born
	}
	return at
}

// call returns what access records of calls and of jobs have in common.
func (l *line) call() Call {
	endpoint := l.Endpoint
	endpoint = cmp.Or(endpoint, l.Route)
	c := Call{
		Org: l.Org, User: l.User, Key: l.Key, IP: l.IP, Labels: ledger.Labels(l.Labels), Model: l.Model, Endpoint: endpoint,
		Request: l.Request, Run: l.Run, Held: pricing.Nano(*l.AccessHeld), HeldTokens: l.HeldTokens, Tokens: l.Tokens,
		QuotaTokens: l.QuotaTokens, Class: l.Class, Stream: l.Stream, Took: time.Duration(l.TookNS),
		Failed: guard.Outcome(l.Outcome).Failed(),
	}
	c.QuotaTokens = cmp.Or(c.QuotaTokens, c.HeldTokens)
	if l.AccessCost != nil {
		c.Cost = pricing.Nano(*l.AccessCost)
	}
	c.At = l.Time.Add(-c.Took)
	return c
}

// free are the outcomes that are not charged and leave no other trace.
var free = map[string]bool{"rejected": true, "busy": true, "unsent": true}

// visit adds a proxy's record.
func (r *Reader) visit(l *line) {
	c := l.call()
	switch {
	case l.Job != "": // its worker may have a record with more details
		c.Took = max(c.Took-time.Duration(l.WaitedNS), 0)
		c.Refused = l.AccessCost == nil
		r.waits = append(r.waits, waiting{l.Job, c})
	case (wire.OverLimit(l.Status) || l.braked()) && l.AccessCost == nil:
		c.Refused, c.Took = true, 0
		r.access = append(r.access, c)
	case l.AccessCost != nil && !free[l.Outcome]:
		r.access = append(r.access, c)
	}
}

// braked reports whether a brake refused the call of an access record.
func (l *line) braked() bool {
	return budget.ParseCause(cmp.Or(string(l.Cause), l.Limit)).Kind() == budget.CauseBrake
}

// ran adds a worker's record.
func (r *Reader) ran(l *line) {
	r.jobs[l.Job] = true
	if free[l.Outcome] {
		return
	}
	c := l.call()
	c.At = c.At.Add(-time.Duration(l.WaitedNS))
	r.access = append(r.access, c)
}

// Trace returns what was read, sorted.
func (r *Reader) Trace() (*Trace, error) {
	for _, f := range r.fixes {
		if i, ok := r.calls[f.id]; ok {
			c := &r.trace.calls[i]
			c.cost = max(c.cost+f.cost, 0)
		} else if f.late != nil {
			if err := r.trace.Add(*f.late); err != nil {
				return nil, err
			}
		}
	}
	for _, w := range r.waits {
		if !r.jobs[w.job] && (w.call.Refused || !r.ledger) {
			r.access = append(r.access, w.call)
		}
	}
	for _, c := range r.access {
		if r.ledger && !c.Refused {
			continue
		}
		if err := r.trace.Add(c); err != nil {
			return nil, err
		}
	}
	r.access = nil
	r.waits = nil
	r.fixes = nil
	r.trace.Sort()
	return r.trace, nil
}
