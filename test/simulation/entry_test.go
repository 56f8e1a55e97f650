package simulation

import (
	"encoding/json"
	"fmt"
)

// entry holds the fields of a ledger entry that the run uses.
type entry struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Cost int64  `json:"cost_nano"`
}

func entryOf(text string) (entry, error) {
	var e entry
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return e, fmt.Errorf("ledger entry %.100q: %w", text, err)
	}
	return e, nil
}

// readReconciled marks the calls on an org's reconciliation list.
func (w *world) readReconciled(o *org) error {
	list, err := w.store.rdb.LRange(w.ctx, "lg:{"+o.id+"}:reconcile", 0, -1).Result()
	if err != nil {
		return fmt.Errorf("reconciliation list of %s: %w", o.id, err)
	}
	for _, text := range list {
		e, err := entryOf(text)
		if err != nil {
			return err
		}
		if c := w.byID[e.ID]; c != nil {
			c.listed = true
			w.note("listed for reconciliation: %s", c.ID[20:])
		}
	}
	return nil
}
