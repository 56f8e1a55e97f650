package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/providers/dialect"
)

// providerParts handles the parts of a turn's batch that its provider runs: it fills,
// sends, polls and gathers them.
type providerParts struct {
	turn   *turn
	r      *Runner
	polled map[int]bool // parts already polled in this round
}

// part is a part of a batch that its provider runs: as many lines as the provider accepts
// in one file, or as the limits could cover. A part is recorded before and after each
// operation at the provider, so that a successor knows what may have happened.
type part struct {
	N        int      `json:"n"`
	Attempt  int      `json:"attempt"` // of its lines' holds
	Lines    int      `json:"lines"`
	Bytes    int64    `json:"bytes"`
	From, To position `json:"-"`

	Span  string    `json:"span"` // From and To
	State partState `json:"state"`
	Try   int       `json:"try,omitempty"` // at creating a batch from it
	// Asked is when an upload or a batch was requested, in Unix seconds, while the
	// answer is unknown.
	Asked int64 `json:"asked,omitempty"`
	// Again is when to continue, in Unix seconds.
	Again     int64 `json:"again,omitempty"`
	Cancelled bool  `json:"cancelled,omitempty"` // at the provider, by us

	File string `json:"file,omitempty"` // at the provider
	Job  string `json:"job,omitempty"`  // its batch there
	// End is how that batch ended, with its files.
	End      string               `json:"end,omitempty"`
	Output   string               `json:"output,omitempty"`
	Errors   string               `json:"errors,omitempty"`
	Problems []dialect.BatchFault `json:"problems,omitempty"`
	// Whole means that its results have every line, so that a missing one is lost.
	Whole bool `json:"whole,omitempty"`

	// Stage and Off are what has been gathered: which file, and up to where.
	Stage int   `json:"stage,omitempty"`
	Off   int64 `json:"off,omitempty"`

	// SeenOK and SeenBad count lines that the provider reports as ended and that are
	// not gathered yet.
	SeenOK  int64 `json:"seen_ok,omitempty"`
	SeenBad int64 `json:"seen_bad,omitempty"`
}

type partState string

// The life of a part.
const (
	partSealed   partState = "sealed"   // its file is in the blob store, its lines are held
	partUploaded partState = "uploaded" // its file is at the provider
	partRunning  partState = "running"  // the provider has a batch of it
	partEnded    partState = "ended"    // that batch has ended
	partFetched  partState = "fetched"  // its results are in the blob store
	partDone     partState = "done"     // all lines are gathered and settled
)

func partField(n int) string { return "part:" + strconv.Itoa(n) }

func (p *part) text() string {
	p.Span = p.From.String() + " " + p.To.String()
	text, _ := json.Marshal(p) // plain members only
	return string(text)
}

func parsePart(text string) (*part, error) {
	p := &part{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, err
	}
	_, err := fmt.Sscan(p.Span, &p.From.line, &p.From.off, &p.To.line, &p.To.off)
	return p, err
}

// blob returns the name of a file of the part in the blob store.
func (p *part) blob(b *Batch, what string) string {
	return fmt.Sprintf("%spart%d-%d-%s", chunkPrefix(b), p.N, p.Attempt, what)
}

// Files of a part in the blob store.
const (
	partInput  = "in"  // as sent to the provider
	partHolds  = "idx" // one heldLine per line
	partOutput = "out" // as received from the provider
	partErrors = "err"
)

func (p *part) waits() bool { return time.Now().Unix() < p.Again }

// later sets when to continue with a part.
func (p *part) later(d time.Duration) { p.Again = time.Now().Add(d).Unix() + 1 }

// writePart records the state of a part.
func (pp *providerParts) writePart(ctx context.Context, p *part) error {
	st := step{}
	st.set(partField(p.N), p.text())
	pp.tellParts(&st)
	return pp.turn.write(ctx, st, InProgress, Cancelling)
}

// tellParts publishes how many lines the provider has run.
func (pp *providerParts) tellParts(st *step) {
	var ok, bad int64
	for _, p := range pp.turn.b.parts {
		ok, bad = ok+p.SeenOK, bad+p.SeenBad
	}
	if ok != pp.turn.b.seenOK || bad != pp.turn.b.seenBad {
		st.seen(ok, bad)
		pp.turn.b.seenOK, pp.turn.b.seenBad = ok, bad
	}
}
