package admin

import (
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

var auditParameters = []parameter{
	{"org", "Only what concerns this org"},
	{"actor", "Only what this administrator did"},
	{"action", "Only this action, such as key.create"},
	{"from", "Not before this time (RFC 3339)"},
	{"to", "Before this time (RFC 3339)"},
	{"after", "Go on after the entry with this id"},
	{"limit", "How many, 1 to 1000; left out: 100"},
}

type auditPage struct {
	Object  string               `json:"object"`
	Data    []tenants.AuditEntry `json:"data"`
	HasMore bool                 `json:"has_more"`
}

func (c *call) listAudit() (any, error) {
	q := c.r.URL.Query()
	f := tenants.AuditFilter{Org: q.Get("org"), Actor: q.Get("actor"), Action: q.Get("action"), After: q.Get("after")}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"from", &f.From}, {"to", &f.To}} {
		if err := c.instant(t.name, t.to); err != nil {
			return nil, err
		}
	}
	if f.After != "" && !auditID(f.After) {
		return nil, wire.BadRequest("after", "invalid_value", "after must be the id of an entry")
	}
	limit := 100
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return nil, wire.BadRequest("limit", "invalid_value", "limit must be a whole number from 1 to 1000")
		}
	}
	entries, more, err := c.o.Tenants.Audit(c.r.Context(), f, limit)
	if err != nil {
		return nil, err
	}
	return auditPage{"list", listOf(entries).Data, more}, nil
}

// instant reads a time of the query, if it is there.
func (c *call) instant(name string, to *time.Time) error {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return wire.BadRequest(name, "invalid_value", "%s must be a time such as 2026-11-01T08:00:00Z", name)
	}
	*to = t
	return nil
}

// auditID reports whether a text may be the id of an entry: the time and the
// number that Redis gives it.
func auditID(text string) bool {
	ms, n, _ := strings.Cut(text, "-")
	at, wrongTime := strconv.ParseUint(ms, 10, 64)
	_, wrongNumber := strconv.ParseUint(n, 10, 64)
	return wrongTime == nil && wrongNumber == nil && at > 0
}
