package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// AuditEntry records who changed what, and why. It contains no secrets and no key hashes.
type AuditEntry struct {
	// ID is its position in the log, set when it is read.
	ID     string    `json:"id,omitempty"`
	At     time.Time `json:"at" col:"time;second"`
	Actor  string    `json:"actor" col:"who"`     // an administrator's key id, local:<user>@<host>, or signal
	Action string    `json:"action" col:"action"` // such as key.create
	Org    string    `json:"org,omitempty" col:"org"`
	Target string    `json:"target,omitempty" col:"target;path"` // id of the changed thing
	Reason string    `json:"reason,omitempty" col:"reason"`
	// Before and After are the record; null if there was or is none.
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	IP        string          `json:"ip,omitempty"`
}

// AuditFilter selects entries; zero fields match all.
type AuditFilter struct {
	Org, Actor, Action string
	From, To           time.Time // [From, To)
	After              string    // only entries older than the one with this ID
}

func (f AuditFilter) picks(e *AuditEntry) bool {
	return (f.Org == "" || e.Org == f.Org) && (f.Actor == "" || e.Actor == f.Actor) &&
		(f.Action == "" || e.Action == f.Action)
}

// Audit returns up to limit entries, newest first, and whether there may be more. The log keeps
// about 100,000.
func (s *Store) Audit(ctx context.Context, f AuditFilter, limit int) (list []AuditEntry, more bool, err error) {
	newest, oldest := "+", "-"
	if !f.To.IsZero() {
		newest = strconv.FormatInt(f.To.UnixMilli()-1, 10)
	}
	if f.After != "" {
		newest = "(" + f.After
	}
	if !f.From.IsZero() {
		oldest = strconv.FormatInt(f.From.UnixMilli(), 10)
	}
	for {
		page, err := s.rdb.XRevRangeN(ctx, auditKey, newest, oldest, scanStep).Result()
		if err != nil {
			return nil, false, unavailable("read the audit", err)
		}
		for _, m := range page {
			text, _ := m.Values["e"].(string)
			var e AuditEntry
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return nil, false, fmt.Errorf("tenants: audit entry %s: %w", m.ID, err)
			}
			e.ID = m.ID
			if !f.picks(&e) {
				continue
			}
			if len(list) == limit {
				return list, true, nil
			}
			list = append(list, e)
		}
		if len(page) < scanStep {
			return list, false, nil
		}
		newest = "(" + page[len(page)-1].ID
	}
}
