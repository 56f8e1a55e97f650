package admin

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// call is one request. It belongs to one goroutine.
type call struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	id     string
	ip     netip.Addr
	start  time.Time
	actor  actor
	name   string // of the route
	status int
}

// created is an answer with status 201.
type created struct{ body any }

// empty is an answer with status 204.
type empty struct{}

// partial answers with an error, and with what was done before it.
type partial struct {
	plan *Plan
	err  error
}

func (c *call) answer(v any) {
	status := http.StatusOK
	switch a := v.(type) {
	case created:
		status, v = http.StatusCreated, a.body
	case empty:
		c.status = http.StatusNoContent
		c.w.WriteHeader(c.status)
		return
	case stdjson.RawMessage:
		c.write(status, a)
		return
	case streamed:
		c.stream(a, false)
		return
	case followed:
		c.stream(streamed(a), true)
		return
	case partial:
		e := public(a.err)
		c.log.Error("changes to an org broke off", "id", c.id, "done", len(a.plan.Changes), "err", a.err)
		status, v = e.Status, struct {
			Error stdjson.RawMessage `json:"error"`
			*Plan
		}{e.Object(), a.plan}
	}
	body, err := stdjson.Marshal(v)
	if err != nil {
		c.fail(err)
		return
	}
	c.write(status, append(body, '\n'))
}

func (c *call) fail(err error) {
	e := public(err)
	if e.Status >= http.StatusInternalServerError {
		c.log.Error("an administrator's request failed", "id", c.id, "err", err)
	}
	for name, values := range e.Header {
		c.w.Header()[name] = values
	}
	c.write(e.Status, append(e.JSON(), '\n'))
}

func (c *call) write(status int, body []byte) {
	c.status = status
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body)
}

// maxBody is far more than any request needs.
const maxBody = 1 << 20

// read decodes the body strictly: no unknown, repeated or misspelt names.
func (c *call) read(v any) error {
	raw, err := c.body()
	if err != nil {
		return err
	}
	return decode(raw, v)
}

func (c *call) body() ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" && kind != "application/merge-patch+json" {
		return nil, &wire.Error{Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error", Code: "unsupported_media_type", Message: "Send the body as Content-Type: application/json"}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, wire.TooLarge(maxBody)
	case err != nil:
		return nil, wire.BadRequest("", "body_unreadable", "The request body could not be read to its end")
	case len(bytes.TrimSpace(raw)) == 0:
		return []byte("{}"), nil
	}
	return raw, nil
}

func decode(raw []byte, v any) error {
	err := json.Unmarshal(raw, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		name := strings.TrimPrefix(string(semantic.JSONPointer), "/")
		return wire.BadRequest(name, "unknown_field", "There is no field %q here", name)
	case errors.As(err, &semantic):
		name := strings.TrimPrefix(string(semantic.JSONPointer), "/")
		return wire.BadRequest(name, "invalid_value", "%s cannot be a JSON %s", field(name), semantic.JSONKind)
	case errors.As(err, &syntax):
		return wire.BadRequest("", "invalid_json", "The body is not valid JSON: %v", syntax.Err)
	}
	return wire.BadRequest("", "invalid_json", "The body is not valid JSON")
}

func field(name string) string {
	if name == "" {
		return "the body"
	}
	return strconv.Quote(name)
}

// merge applies the body to a specification (RFC 7396): null takes a field out,
// so that it is the file's or the default again.
func (c *call) merge(spec any) error {
	raw, err := c.body()
	if err != nil {
		return err
	}
	var patch, now map[string]jsontext.Value
	if err := decode(raw, &patch); err != nil {
		return err
	}
	old, err := stdjson.Marshal(spec)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(old, &now); err != nil {
		return err
	}
	for name, value := range patch {
		if value.Kind() == 'n' {
			if err := known(spec, name); err != nil {
				return err
			}
			delete(now, name)
			continue
		}
		now[name] = value
	}
	merged, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return decode(merged, reset(spec))
}

// page is how lists are answered.
type page[T any] struct {
	Object string `json:"object"` // always "list"
	Data   []T    `json:"data"`
}

func listOf[T any](data []T) page[T] {
	if data == nil {
		data = []T{}
	}
	return page[T]{Object: "list", Data: data}
}

// entry begins an entry of the audit.
func (c *call) entry(action, org, target string) tenants.AuditEntry {
	e := tenants.AuditEntry{At: c.start.UTC(), Actor: c.actor.id, Action: action, Org: org, Target: target, RequestID: c.id}
	if c.ip.IsValid() {
		e.IP = c.ip.String()
	}
	return e
}

// commit makes a change and tells the audit what was and what is: before and
// after are shown, changes are stored.
func (c *call) commit(e tenants.AuditEntry, before, after any, changes ...tenants.Change) error {
	var err error
	if e.Reason, err = c.reason(e.Reason); err != nil {
		return err
	}
	if e.Before, err = shown(before); err != nil {
		return err
	}
	if e.After, err = shown(after); err != nil {
		return err
	}
	if len(changes) > 0 {
		if err := c.check(changes); err != nil {
			return err
		}
	}
	if err := c.o.Tenants.Commit(c.r.Context(), e, changes...); err != nil {
		return err
	}
	c.log.Info("audit", "action", e.Action, "actor", e.Actor, "org", e.Org, "target", e.Target, "reason", e.Reason, "ip", e.IP, "id", e.RequestID)
	if len(changes) > 0 {
		c.o.Applied()
	}
	return nil
}

// reason takes the reason of a change from the query when the body has none.
func (c *call) reason(given string) (string, error) {
	if given == "" {
		given = c.r.URL.Query().Get("reason")
	}
	if len(given) > 1000 || !utf8.ValidString(given) || strings.ContainsFunc(given, unicode.IsControl) {
		return "", wire.BadRequest("reason", "invalid_value", "reason must be one line of at most 1000 bytes")
	}
	return given, nil
}

func shown(v any) (stdjson.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	return stdjson.Marshal(v)
}

// check refuses changes after which their org, or with changes of all orgs one of them, would
// not be sound.
func (c *call) check(changes []tenants.Change) error {
	if changes[0].Ref.Kind == tenants.KindAdmin {
		return nil
	}
	org := changes[0].Ref.Org
	next, err := c.o.Tenants.Snapshot().With(changes...)
	if err != nil {
		return err
	}
	if next.Tenants[org] == nil && org != tenants.AllOrgs { // nothing but the file's is left
		return nil
	}
	if err := c.o.Check(org, next.Tenants[org]); err != nil {
		return wire.BadRequest("", "invalid_value", "%s", strings.TrimPrefix(err.Error(), "org: "))
	}
	return nil
}

// newID checks the id of something that is made.
func newID(param, id string) error {
	if !tenants.ValidID(id) {
		return wire.BadRequest(param, "invalid_value", "%s must be 1 to 64 of a-z, 0-9, _ and -, not %s", param, strconv.Quote(cut(id)))
	}
	return nil
}

func cut(text string) string {
	if len(text) > 80 {
		return fmt.Sprintf("%.80s...", text)
	}
	return text
}
