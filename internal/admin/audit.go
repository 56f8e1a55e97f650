package admin

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
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
	page[tenants.AuditEntry]
	HasMore bool `json:"has_more"`
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
		return nil, invalid("after", "after must be the id of an audit entry")
	}
	limit, err := c.most(100)
	if err != nil {
		return nil, err
	}
	entries, more, err := h.opts.Tenants.Audit(c.r.Context(), f, limit)
	if err != nil {
		return nil, err
	}
	return auditPage{listOf(entries), more}, nil
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
		RequestID: c.id, Reason: c.why,
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
	for _, one := range changes {
		if wrong := h.unmatched(one); len(wrong) > 0 {
			return invalid("models", "models: %s", wrong[0])
		}
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
		if wrong, ok := errors.AsType[*settings.FieldError](err); ok {
			param, _, _ = strings.Cut(wrong.Field, "[") // drop a list index
		}
		return invalid(param, "%s", strings.TrimPrefix(err.Error(), "org: "))
	}
	return nil
}

// unmatched returns what is wrong with the names and patterns of models in a change that match none, except those that
// its org has already.
func (h *recorder) unmatched(one tenants.Change) (wrong []string) {
	var record struct {
		Models []string `json:"models"`
	}
	raw, _ := shown(one.New)            // an error shows when the change is recorded
	_ = stdjson.Unmarshal(raw, &record) // empty for one that is deleted
	for _, pattern := range record.Models {
		text := h.opts.Policy().Unmatched(pattern)
		if text != "" && !h.inForce(one.Ref.Org, pattern) {
			wrong = append(wrong, text)
		}
	}
	return wrong
}

// inForce reports whether something of an org, or of every org, is limited to a pattern of models.
func (h *recorder) inForce(org, pattern string) (found bool) {
	now := h.opts.Effective()
	look := func(_ string, list []string) { found = found || slices.Contains(list, pattern) }
	settings.EachList(&now.Defaults, "models", look)
	if o := now.Org(org); o != nil {
		settings.EachList(o, "models", look)
	}
	return found
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

// change stores a record with what set makes of the stored one, or of an empty one, and records that in the audit.
func change[T any, P interface {
	*T
	Touch(at time.Time)
}](c *call, h *recorder, e tenants.AuditEntry, ref tenants.Ref, set func(P) error) (record T, err error) {
	old, err := h.opts.Tenants.Get(c.r.Context(), ref, &record)
	if err != nil {
		return record, err
	}
	before := record
	if err := set(&record); err != nil {
		return record, err
	}
	P(&record).Touch(c.start.UTC())
	return record, h.commit(c, e, orNil(old, audited(ref, before)), audited(ref, record),
		tenants.Change{Ref: ref, Old: old, New: record})
}

// create stores the record of something new.
func (h *recorder) create(c *call, ref tenants.Ref, record any) error {
	err := h.commit(c, c.entry(ref.Org, ref.ID), nil, audited(ref, record), tenants.Change{Ref: ref, New: record})
	if err != nil && public(err).Code == "changed_meanwhile" { // another request has created it
		return exists(string(ref.Kind), ref.ID)
	}
	return err
}

// absent returns an error if the id of something new is not valid, or if it exists: then looking it up had no error.
func absent(kind, id string, lookUp error) error {
	if err := newID("id", id); err != nil {
		return err
	}
	if lookUp == nil {
		return exists(kind, id)
	}
	return nil
}

// audited returns a record without what must not be in the audit.
func audited(ref tenants.Ref, record any) any {
	switch r := record.(type) {
	case tenants.Credential:
		return viewCredential(ref.ID, &r)
	case tenants.Key:
		return bare(r)
	case tenants.Admin:
		r.Hash = ""
		return r
	}
	return record
}

// remove deletes records. The audit shows the first one.
func (h *recorder) remove(c *call, e tenants.AuditEntry, refs ...tenants.Ref) (any, error) {
	var before map[string]any
	changes := make([]tenants.Change, 0, len(refs))
	for i, ref := range refs {
		var record map[string]any
		old, err := h.opts.Tenants.Get(c.r.Context(), ref, &record)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			before = record
			for _, secret := range []string{"hash", "previous", "sealed"} {
				delete(before, secret)
			}
		}
		changes = append(changes, tenants.Change{Ref: ref, Old: old})
	}
	return empty{}, h.commit(c, e, before, nil, changes...)
}

// newStamp returns the times of a record that is created now.
func (c *call) newStamp() tenants.Stamp {
	return tenants.Stamp{Created: c.start.UTC(), Updated: c.start.UTC()}
}

// orNil returns the record, or nil if there was none.
func orNil(old tenants.Text, record any) any {
	if old == "" {
		return nil
	}
	return record
}
