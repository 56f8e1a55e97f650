package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"

	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/ledger"
)

const (
	replayPause   = time.Second     // between attempts to write kept endings
	replayTimeout = 3 * time.Second // of one attempt
	replayFlight  = 256             // endings written in one batch
	stuckRest     = time.Minute     // before retrying a kept ending that the store refused
)

// walRecord is an ending in the journal. Journals outlive program versions, so fields are added but
// never renamed.
type walRecord struct {
	Call       ledger.Call       `json:"call"`
	Part       int               `json:"part,omitempty"` // Call.Part; 0: the first
	Max        Amounts           `json:"max"`
	At         time.Time         `json:"at,omitzero"`
	States     []state           `json:"states,omitempty"`
	Open       bool              `json:"open,omitempty"`  // admitted without the store, not ended yet
	Share      bool              `json:"share,omitempty"` // admitted within the process's share
	Settlement *Settlement       `json:"settlement,omitempty"`
	Caps       []walRecord       `json:"caps,omitempty"` // holds of the spend caps: Call, Max, At, States and Shadow
	Shadow     []ledger.Shadowed `json:"shadow,omitempty"`
}

func (k walRecord) id() string { return k.Call.Org + "/" + k.Call.HoldID() }

func walRecordOf(e Settle) walRecord {
	k := keptHold(e.Hold)
	k.Settlement = e.Settlement
	return k
}

func keptHold(h *Hold) walRecord {
	k := walRecord{
		Call: h.Call, Max: h.Max, At: h.At, States: h.states, Share: len(h.taken) > 0, Shadow: h.shadow,
	}
	if h.Call.Part > 1 {
		k.Part = h.Call.Part
	}
	for _, part := range h.caps {
		k.Caps = append(k.Caps, keptHold(part))
	}
	return k
}

// hold returns the kept call's hold as if it had begun at the given instant.
func (k walRecord) hold(at time.Time) *Hold {
	h := &Hold{
		ID: k.Call.HoldID(), Call: k.Call, Max: k.Max, Expected: k.Max, At: at, states: k.States, shadow: k.Shadow,
	}
	h.Call.Part = k.Part
	for _, part := range k.Caps {
		h.caps = append(h.caps, part.hold(at))
	}
	return h
}

// ending returns how the kept call ends. A call that was open when its process died counts as
// forwarded, like a hold that expires.
func (k walRecord) ending() Settle {
	h := k.hold(k.At)
	if k.Open {
		return Settle{h, &Settlement{Actual: k.Max, Estimated: true, Outcome: "expired"}}
	}
	return Settle{h, k.Settlement}
}

// Deferred keeps endings that the store could not accept, and writes them when it is back.
type Deferred struct {
	rdb     redisconn.DB
	settler *settler
	recent  *recentSettles
	clock   *clock
	metrics outageMetrics
	log     *slog.Logger

	journal   *journal.Journal // Options.Journal
	memory    *journal.Journal // what the durable journal does not accept
	replaying sync.Mutex       // one Replay at a time

	mu      sync.Mutex
	written map[string]func(Settle, Receipt) // called when an ending is written
	open    map[string]bool                  // admitted without the store, by this process
	stuck   map[string]time.Time             // refused by the store; when to try again
	asked   map[string]time.Time             // admitted without the store and ended here; see since
}

func newDeferred(rdb redisconn.DB, o Options, s *settler, recent *recentSettles, m outageMetrics) *Deferred {
	memory, _ := journal.Open("", journal.Options{}) // cannot fail: it opens no file
	d := &Deferred{
		rdb: rdb, settler: s, recent: recent, clock: s.clock, metrics: m, log: o.Log, journal: o.Journal, memory: memory,
		written: map[string]func(Settle, Receipt){}, open: map[string]bool{}, stuck: map[string]time.Time{},
		asked: map[string]time.Time{},
	}
	if d.journal == nil {
		d.journal = memory
	}
	return d
}

// Lost returns a stand-in for a hold whose answer was lost. Ending it without a Settlement returns
// what the hold and its caps may have taken.
func Lost(c ledger.Call, caps ...Cap) *Hold {
	h := &Hold{ID: c.HoldID(), Call: c}
	for _, spend := range caps {
		h.caps = append(h.caps, Lost(spend.of(c)))
	}
	return h
}

// walRecords encodes endings for the journal.
func walRecords(endings []Settle) ([]journal.Record, error) {
	records := make([]journal.Record, len(endings))
	for i, e := range endings {
		k := walRecordOf(e)
		text, err := json.Marshal(k)
		if err != nil {
			return nil, fmt.Errorf("budget: keep ending: %w", err)
		}
		records[i] = journal.Record{ID: k.id(), Data: text}
	}
	return records, nil
}

// keep writes endings to the journal, or to memory if the journal fails.
func (d *Deferred) keep(
	ctx context.Context, endings []Settle, records []journal.Record, written func(Settle, Receipt),
) error {
	d.expect(endings, records, written)
	err := d.journal.PutAll(ctx, records)
	if err != nil && d.journal.Durable() {
		d.log.Error("journal write failed, settlements kept in memory only", "calls", len(records), "err", err)
		for _, r := range records { // an admission in the journal must not be charged now that its ending is known
			d.journal.Delete(r.ID)
		}
		err = d.memory.PutAll(ctx, records)
	}
	if err != nil {
		return fmt.Errorf("budget: keep ending: %w", err)
	}
	for _, r := range records {
		d.close(r.ID)
	}
	d.metrics.kept.Add(float64(len(records)))
	return nil
}

// Replay writes kept endings to the store and returns how many are left. Run calls it regularly; a
// process that shuts down calls it once more.
func (d *Deferred) Replay(ctx context.Context) (left int, err error) {
	d.replaying.Lock()
	defer d.replaying.Unlock()
	for _, j := range d.journals() {
		err = errors.Join(err, d.replayFrom(ctx, j))
	}
	left, _ = d.kept()
	return left, err
}

func (d *Deferred) journals() []*journal.Journal {
	if d.journal == d.memory {
		return []*journal.Journal{d.memory}
	}
	return []*journal.Journal{d.journal, d.memory}
}

// kept returns the number and size in bytes of the endings waiting for the store, including calls
// that were admitted without it.
func (d *Deferred) kept() (records int, bytes int64) {
	for _, j := range d.journals() {
		n, size := j.Size()
		records, bytes = records+n, bytes+size
	}
	return records, bytes
}

// replayFrom writes the endings of one journal until the store is found unreachable.
func (d *Deferred) replayFrom(ctx context.Context, j *journal.Journal) error {
	records := d.ripe(j.Records())
	for len(records) > 0 {
		n := min(len(records), replayFlight)
		if err := d.replayFlight(ctx, j, records[:n]); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// replayFlight writes a batch of endings. It deletes those that the store answers; an error means
// that the store is unreachable.
func (d *Deferred) replayFlight(ctx context.Context, j *journal.Journal, records []journal.Record) error {
	endings := make([]Settle, 0, len(records))
	ids := make([]string, 0, len(records))
	began := d.clock.now()
	for _, r := range records {
		var k walRecord
		if err := json.Unmarshal(r.Data, &k); err != nil || validateCall(k.Call) != nil {
			d.rest(r.ID)
			d.log.Error("journal record unreadable, it will not be charged", "id", r.ID)
			continue
		}
		k.At = d.since(r.ID, k.At, began)
		endings, ids = append(endings, k.ending()), append(ids, r.ID)
	}
	once, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	endings, ids, away := d.reachable(once, endings, ids)
	for i, done := range d.settler.all(once, endings) {
		d.recent.answered(endings[i], done.Err)
		switch {
		case done.Err == nil || errors.Is(done.Err, ErrTooOld):
			j.Delete(ids[i])
			d.replayed(ids[i], endings[i], done)
		case errors.Is(done.Err, ErrUnavailable):
			away = done.Err
			d.ask(ids[i], began)
		default:
			d.rest(ids[i])
			d.log.Error("store refused a settlement, will retry", "id", ids[i], "err", done.Err)
		}
	}
	return away
}

// reachable returns the endings whose servers accept a write that changes nothing. Nothing is sent
// to an unreachable server, so that no write arrives without an answer.
func (d *Deferred) reachable(
	ctx context.Context, all []Settle, allIDs []string,
) (endings []Settle, ids []string, away error) {
	pipe := d.rdb.Pipeline()
	asked := map[string]redisconn.Cmd[bool]{}
	for _, e := range all {
		if place := e.Hold.Call.Place(); asked[place] == nil {
			asked[place] = pipe.PExpire(ctx, ledger.Key(place, "leases"), recordLife)
			ledger.NotePart(ctx, pipe, place)
		}
	}
	_ = pipe.Exec(ctx) // each command has its own error
	for i, e := range all {
		if err := asked[e.Hold.Call.Place()].Err(); err != nil {
			away = storeError("replay", err)
			continue
		}
		endings, ids = append(endings, e), append(ids, allIDs[i])
	}
	return endings, ids, away
}

// replayed reports an ending that the store has now.
func (d *Deferred) replayed(id string, e Settle, done Settled) {
	d.mu.Lock()
	written := d.written[id]
	delete(d.written, id)
	delete(d.stuck, id)
	delete(d.asked, id)
	d.mu.Unlock()
	d.metrics.replayed.WithLabelValues("journal", result(done)).Inc()
	if done.Err != nil {
		d.log.Error("settlement too late to detect a repeat, see llmguard usage reconcile", "id", id)
	} else if written != nil && e.Settlement != nil {
		written(e, done.Receipt)
	}
}

// result returns the metric label for a replayed ending.
func result(done Settled) string {
	switch {
	case done.Err != nil:
		return "listed"
	case done.Receipt.Replayed:
		return "known"
	default:
		return "new"
	}
}

// ripe selects what may be written now: not open calls, and not what the store refused a moment
// ago.
func (d *Deferred) ripe(records []journal.Record) []journal.Record {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(records, func(r journal.Record) bool {
		return d.open[r.ID] || now.Before(d.stuck[r.ID])
	})
}

func (d *Deferred) expect(endings []Settle, records []journal.Record, written func(Settle, Receipt)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, r := range records {
		if endings[i].Hold.without {
			d.asked[r.ID] = endings[i].Hold.asked
		}
		if written != nil {
			d.written[r.ID] = written
		}
	}
}

// since returns the instant before which the store cannot have received the ending. The store
// recognizes repetitions for the horizon only, so an older ending may already be charged: by a
// settle whose answer was lost, or by the process that expired the hold. A call that was admitted
// without the store has no hold, so its ending is as new as the first attempt of this process that
// may have arrived. Nothing is known about attempts of other processes.
func (d *Deferred) since(id string, began, now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, own := d.asked[id]
	switch {
	case !own:
		return began
	case first.IsZero():
		return now
	default:
		return first
	}
}

// ask records a failed attempt that may have arrived anyway.
func (d *Deferred) ask(id string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, own := d.asked[id]; own && first.IsZero() {
		d.asked[id] = at
	}
}

// begin marks a call as open, so that it is not written; close removes the mark.
func (d *Deferred) begin(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[id] = true
}

func (d *Deferred) close(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}

func (d *Deferred) rest(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck[id] = time.Now().Add(stuckRest)
}

// run replays kept endings until ctx ends. It is part of Run.
func (d *Deferred) run(ctx context.Context) {
	tick := time.NewTicker(replayPause)
	defer tick.Stop()
	away := false
	for {
		if left, err := d.Replay(ctx); err == nil && away {
			d.log.Info("stored settlements written", "left", left)
			away = false
		} else if err != nil && !away && ctx.Err() == nil {
			d.log.Warn("settlements not accepted by redis, will retry", "calls", left, "err", err)
			away = true
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
