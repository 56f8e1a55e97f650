package admin

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// recorder commits changes of records and records them in the audit. It also serves the audit.
type recorder struct{ opts *Options }

var auditParameters = []parameter{
	{name: "org", text: "Only entries about this org"},
	{name: "actor", text: "Only actions of this administrator"},
	{name: "action", text: "Only this action, such as key.create"},
	periodParameters[0], periodParameters[1],
	{name: "after", text: "Continue after the entry with this id"},
	{name: "limit", text: "Maximum number, 1 to 1000; default: 100"},
}

type auditPage struct {
	Object  string               `json:"object"`
	Data    []tenants.AuditEntry `json:"data"`
	HasMore bool                 `json:"has_more"`
}

func (h *recorder) listAudit(c *call) (any, error) {
	q := c.r.URL.Query()
	f := tenants.AuditFilter{Org: q.Get("org"), Actor: q.Get("actor"), Action: q.Get("action"), After: q.Get("after")}
	var err error
	f.From, f.To, err = c.period()
	if err != nil {
		return nil, err
	}
	if f.After != "" && !auditID(f.After) {
		return nil, wire.BadRequest("after", "invalid_value", "after must be the id of an audit entry")
	}
	limit, err := c.most(100)
	if err != nil {
		return nil, err
	}
	entries, more, err := h.opts.Tenants.Audit(c.r.Context(), f, limit)
	if err != nil {
		return nil, err
	}
	return auditPage{"list", listOf(entries).Data, more}, nil
}

// auditID reports whether a text has the form of an entry id: a Redis stream id.
func auditID(text string) bool {
	ms, n, _ := strings.Cut(text, "-")
	at, wrongTime := strconv.ParseUint(ms, 10, 64)
	_, wrongNumber := strconv.ParseUint(n, 10, 64)
	return wrongTime == nil && wrongNumber == nil && at > 0
}

// note adds an entry about something that has no record of its own.
func (h *recorder) note(ctx context.Context, e tenants.AuditEntry, after any) error {
	var err error
	e.After, err = shown(after)
	if err != nil {
		return err
	}
	return h.opts.Tenants.Commit(ctx, e)
}

// entry returns a new audit entry for the call's operation.
func (c *call) entry(org, target string) tenants.AuditEntry {
	return c.newEntry(c.op.Audit, org, target)
}

// entryOf returns one for another operation that the call does as well.
func (c *call) entryOf(operation, org, target string) tenants.AuditEntry {
	return c.newEntry(OperationOf(operation).Audit, org, target)
}

func (c *call) newEntry(action, org, target string) tenants.AuditEntry {
	e := tenants.AuditEntry{
		At: c.start.UTC(), Actor: c.actor.id, Action: action, Org: org, Target: target,
		RequestID: c.id,
	}
	if c.ip.IsValid() {
		e.IP = c.ip.String()
	}
	return e
}

// commit commits changes with their audit entry. before and after are shown in the audit,
// changes are stored.
func (h *recorder) commit(c *call, e tenants.AuditEntry, before, after any, changes ...tenants.Change) error {
	var err error
	e.Reason, err = c.reason(e.Reason)
	if err != nil {
		return err
	}
	e.Before, err = shown(before)
	if err != nil {
		return err
	}
	e.After, err = shown(after)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		if err := h.check(changes); err != nil {
			return err
		}
	}
	if err := h.opts.Tenants.Commit(c.r.Context(), e, changes...); err != nil {
		return err
	}
	c.logEntry(e)
	if len(changes) > 0 {
		h.opts.Applied()
	}
	return nil
}

// unpark tries an org's parked jobs again, those of all orgs if it is "", because what they wait for was
// given back.
func (h *recorder) unpark(c *call, org string) {
	if h.opts.Queue == nil {
		return
	}
	q, err := h.opts.Queue(c.r.Context())
	if err == nil {
		var orgs map[string]bool
		if org != "" {
			orgs = map[string]bool{org: true}
		}
		err = q.Unpark(c.r.Context(), orgs)
	}
	if err != nil {
		h.opts.Log.Warn("jobs not woken after a change, they resume on their own", "org", org, "err", err)
	}
}

// check rejects changes that would make their org invalid, or for changes that apply to all
// orgs, any org.
func (h *recorder) check(changes []tenants.Change) error {
	if kind := changes[0].Ref.Kind; kind == tenants.KindAdmin || kind == tenants.KindStop ||
		kind == tenants.KindBrake {
		return nil
	}
	org := changes[0].Ref.Org
	next, err := h.opts.Tenants.Snapshot().With(changes...)
	if err != nil {
		return err
	}
	if next.Tenants[org] == nil && org != tenants.AllOrgs { // only the file's definition is left
		return nil
	}
	if err := h.opts.Check(org, next.Tenants[org]); err != nil {
		param := ""
		var wrong *settings.FieldError
		if errors.As(err, &wrong) {
			param, _, _ = strings.Cut(wrong.Field, "[") // drop a list index
		}
		return wire.BadRequest(param, "invalid_value", "%s", strings.TrimPrefix(err.Error(), "org: "))
	}
	return nil
}

func shown(v any) (stdjson.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return stdjson.Marshal(v)
}

// logEntry writes an audit entry to the log.
func (c *call) logEntry(e tenants.AuditEntry) {
	c.log.Info("audit", "action", e.Action, "actor", e.Actor, "org", e.Org, "target", e.Target,
		"reason", e.Reason, "ip", e.IP, "id", e.RequestID)
}

// remove deletes records. The audit shows the first one.
func (h *recorder) remove(c *call, e tenants.AuditEntry, refs ...tenants.Ref) error {
	var before map[string]any
	changes := make([]tenants.Change, 0, len(refs))
	for i, ref := range refs {
		var record map[string]any
		old, err := h.opts.Tenants.Get(c.r.Context(), ref, &record)
		if err != nil {
			return err
		}
		if i == 0 {
			before = record
			for _, secret := range []string{"hash", "previous", "sealed"} {
				delete(before, secret)
			}
		}
		changes = append(changes, tenants.Change{Ref: ref, Old: old})
	}
	return h.commit(c, e, before, nil, changes...)
}

// stamp returns the creation and modification times of a record changed now.
func (c *call) stamp(before *tenants.Stamp) tenants.Stamp {
	now := c.start.UTC()
	if before == nil || before.Created.IsZero() {
		return tenants.Stamp{Created: now, Updated: now}
	}
	return tenants.Stamp{Created: before.Created, Updated: now}
}

// orNil returns the record, or nil if there was none.
func orNil(old tenants.Text, record any) any {
	if old == "" {
		return nil
	}
	return record
}
