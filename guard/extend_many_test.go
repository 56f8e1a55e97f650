package guard

import (
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// TestManyGrow lets streams of one user grow under one limit until each is cut off. Charges
// and holds must never exceed it, and no stream may deliver more, or be billed less, than
// was held for it. The provider sends a word when the previous one has arrived.
func TestManyGrow(t *testing.T) {
	const streams, step, input = 12, 20, 8
	const amount = streams*(input+step) + 100
	limit := tokens("t", amount)
	limit.Subject = "user"
	r := growing(t, step, limit)
	calls := map[*Call]*pupil{}
	for range streams {
		p := r.teach()
		calls[r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))] = p
	}
	var all sync.WaitGroup
	for c, p := range calls {
		all.Go(func() { p.untilCut(t, c) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	r.within(done, amount)
	r.settle()
	var charged int64
	entries := r.entries()
	for _, e := range entries {
		charged += e.Usage.Input + e.Usage.Output
		if e.Overrun != 0 || !e.Estimated || e.Outcome != string(Cut) {
			t.Errorf("the ledger has %+v, want a cut call without an overrun", e)
		}
	}
	if used := r.used()["t"]; len(entries) != streams || charged > amount || used != charged {
		t.Errorf("%d entries charge %d and the limit counts %d; want %d entries that charge up to %d",
			len(entries), charged, used, streams, amount)
	}
	// What the cut streams did not use is available to the next call.
	if left := amount - charged; left > input+step {
		c, err := r.guard.admission.begin(t.Context(), r.plan(prompt("gpt-4o", "hi", streamed)), &Attempt{ID: wire.NewCallID(), Number: 1})
		if err != nil {
			t.Fatalf("with %d tokens left: got %v, want that a call begins", left, err)
		}
		c.End(t.Context())
	}
}

// untilCut forwards an endless stream until it is cut off.
func (p *pupil) untilCut(t *testing.T, c *Call) {
	defer c.End(t.Context())
	w, err := p.listen(t.Context(), c, 1000)
	p.hungUp(t)
	res := c.Result
	if err != nil || res.Outcome != Cut {
		t.Errorf("got outcome %s, %v; want %s", res.Outcome, err, Cut)
	}
	if w.got == 0 || res.Usage.Output < int64(w.got) {
		t.Errorf("%d words were passed on and %d tokens billed", w.got, res.Usage.Output)
	}
	if said := p.said.Load(); said > c.bill.held {
		t.Errorf("the provider said %d words, and %d tokens were held", said, c.bill.held)
	}
}

// within checks until done that charges and holds are within an amount.
func (r *rig) within(done <-chan struct{}, amount int64) {
	for {
		list, err := r.guard.Status(r.t.Context(), r.caller())
		if err != nil || list[0].Used > amount {
			r.t.Errorf("%+v are used, %v; want up to %d", list, err, amount)
		}
		select {
		case <-done:
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}
