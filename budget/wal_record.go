package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
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

// keeping encodes endings for the journal. written, if not nil, is called for each settlement that this process
// writes.
func keeping(endings []Settle, written func(Settle, Receipt)) ([]outage.Kept[Receipt], error) {
	kept := make([]outage.Kept[Receipt], len(endings))
	for i, e := range endings {
		k := walRecordOf(e)
		text, err := json.Marshal(k)
		if err != nil {
			return nil, fmt.Errorf("budget: keep ending: %w", err)
		}
		kept[i] = outage.Kept[Receipt]{ID: k.id(), Data: text, Admitted: e.Hold.without, Asked: e.Hold.asked}
		if written != nil && e.Settlement != nil {
			about := Settle{&Hold{ID: e.Hold.ID, Call: e.Hold.Call}, e.Settlement} // the rest of the hold is not kept in memory
			kept[i].Written = func(r Receipt) { written(about, r) }
		}
	}
	return kept, nil
}

// fill counts what earlier processes left in the journal, so that a restart while the store is
// unreachable does not grant a new share.
func (o *Offline) fill(now time.Time) {
	for _, r := range o.deferred.Records() {
		var k walRecord
		if json.Unmarshal(r.Data, &k) != nil {
			continue // Replay reports it
		}
		e := k.ending()
		if e.Settlement == nil {
			continue
		}
		for _, part := range append([]walRecord{k}, k.Caps...) {
			if !part.Share {
				continue
			}
			for _, st := range part.States {
				if n := st.Metric.settled(e.Settlement.Actual); n > 0 {
					o.shares.Before(shareKey(part.Call, &st), now.Sub(part.At), n)
				}
			}
		}
	}
}

// endingStore is where endings are written that the store could not accept before.
type endingStore struct {
	rdb     redisconn.DB
	settler *settler
	recent  *outage.Recent[Settle]
}

// Decode implements outage.Store.
func (s *endingStore) Decode(data []byte, began func(at time.Time) time.Time) (Settle, error) {
	var k walRecord
	if err := json.Unmarshal(data, &k); err != nil {
		return Settle{}, err
	}
	if err := validateCall(k.Call); err != nil {
		return Settle{}, err
	}
	k.At = began(k.At)
	return k.ending(), nil
}

// Reachable implements outage.Store.
func (s *endingStore) Reachable(ctx context.Context, endings []Settle) []error {
	pipe := s.rdb.Pipeline()
	asked := map[string]redisconn.Cmd[bool]{}
	for _, e := range endings {
		if place := e.Hold.Call.Place(); asked[place] == nil {
			asked[place] = pipe.PExpire(ctx, ledger.Key(place, "leases"), recordLife)
			ledger.NotePart(ctx, pipe, place)
		}
	}
	_ = pipe.Exec(ctx) // each command has its own error
	errs := make([]error, len(endings))
	for i, e := range endings {
		if err := asked[e.Hold.Call.Place()].Err(); err != nil {
			errs[i] = storeError("replay", err)
		}
	}
	return errs
}

// Write implements outage.Store.
func (s *endingStore) Write(ctx context.Context, endings []Settle) []outage.Written[Receipt] {
	out := s.again(ctx, endings)
	for i, e := range endings {
		remember(s.recent, e, out[i].Err)
	}
	return out
}

// again writes endings that are remembered already.
func (s *endingStore) again(ctx context.Context, endings []Settle) []outage.Written[Receipt] {
	out := make([]outage.Written[Receipt], len(endings))
	for i, done := range s.settler.all(ctx, endings) {
		out[i] = outage.Written[Receipt]{
			Receipt: done.Receipt, Known: done.Receipt.Replayed, Err: done.Err, Late: errors.Is(done.Err, ErrTooOld),
		}
	}
	return out
}

// remember remembers an ending that the store accepted, for the case that the store forgets it.
func remember(recent *outage.Recent[Settle], e Settle, err error) {
	if err == nil && recent.Remembers() {
		e.Hold = e.Hold.bare()
		recent.Answered(e, time.Now())
	}
}
