package admin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// call is one request. It is used by one goroutine.
type call struct {
	log    *slog.Logger
	w      http.ResponseWriter
	r      *http.Request
	id     string
	ip     netip.Addr
	start  time.Time
	actor  actor
	op     *Operation // nil until it is known
	in     any        // a pointer to the body, of the type in the operation's row; nil: none, or a merge patch
	why    string     // the reason for a change
	status int
	rules  wire.HeaderRules
}

// maxBody is much more than any request needs.
const maxBody = 1 << 20

// read decodes the body strictly: unknown, repeated and misspelled names are errors.
func (c *call) read(v any) error {
	raw, err := c.body()
	if err != nil {
		return err
	}
	return decode(raw, v)
}

// take reads the body, unless it is a merge patch, and the reason for a change, which is in the body or the query.
func (c *call) take() error {
	given := ""
	if c.op.Body != nil && c.op.Method != http.MethodPatch {
		v := reflect.New(reflect.TypeOf(c.op.Body))
		c.in = v.Interface()
		if err := c.read(c.in); err != nil {
			return err
		}
		if reason := v.Elem().FieldByName("Reason"); reason.IsValid() {
			given = reason.String()
		}
	}
	if !c.op.Writes && c.in == nil {
		return nil
	}
	var err error
	c.why, err = c.reason(given)
	return err
}

// body returns the body, which take has read.
func body[T any](c *call) *T { return c.in.(*T) }

// needed returns an error with this text unless the change has a reason.
func (c *call) needed(text string) error {
	if c.why == "" {
		return wire.BadRequest("reason", "missing_field", "%s", text)
	}
	return nil
}

func (c *call) body() ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" && kind != "application/merge-patch+json" {
		return nil, &wire.Error{
			Status: http.StatusUnsupportedMediaType, Type: "invalid_request_error",
			Code: "unsupported_media_type", Message: "Send the body as Content-Type: application/json",
		}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, wire.TooLarge(maxBody)
	case err != nil:
		return nil, wire.BadRequest("", "body_unreadable", "The request body ended early or could not be read")
	case len(bytes.TrimSpace(raw)) == 0:
		return []byte("{}"), nil
	}
	return raw, nil
}

func decode(raw []byte, v any) error {
	to, done := settings.Open(v)
	err := json.Unmarshal(raw, to, json.RejectUnknownMembers(true))
	if err == nil {
		done()
		return nil
	}
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic) && errors.Is(err, json.ErrUnknownName):
		name := strings.TrimPrefix(string(semantic.JSONPointer), "/")
		return cmp.Or(known(v, name), err)
	case errors.As(err, &semantic):
		name := strings.TrimPrefix(string(semantic.JSONPointer), "/")
		return invalid(name, "%s cannot be a JSON %s", field(name), semantic.JSONKind)
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

// merge applies the body to a specification as a merge patch (RFC 7396). null removes a field,
// so that the file's value or the default applies.
func (c *call) merge(spec any) error {
	raw, err := c.body()
	if err != nil {
		return err
	}
	var patch map[string]jsontext.Value
	if err := decode(raw, &patch); err != nil {
		return err
	}
	for name, value := range patch {
		if value.Kind() == 'n' {
			if err := known(spec, name); err != nil {
				return err
			}
		}
	}
	merged, err := settings.Merged(spec, patch)
	if err != nil {
		return err
	}
	return decode(merged, reset(spec))
}

// patch applies the body to the fields of a record, as merge does.
func patch[T any](c *call, fields *settings.Fields[T]) error {
	p := struct{ Fields settings.Fields[T] }{*fields}
	err := c.merge(&p)
	*fields = p.Fields
	return err
}

// reason returns the reason for a change, from the query if the body has none.
func (c *call) reason(given string) (string, error) {
	if given == "" {
		given = c.r.URL.Query().Get("reason")
	}
	if len(given) > 1000 || !utf8.ValidString(given) || strings.ContainsFunc(given, unicode.IsControl) {
		return "", invalid("reason", "reason must be one line of at most 1000 bytes")
	}
	return given, nil
}

// invalid returns the error of a value that is wrong.
func invalid(param, format string, args ...any) *wire.Error {
	return wire.BadRequest(param, "invalid_value", format, args...)
}

func newID(param, id string) error {
	if !tenants.ValidID(id) {
		return invalid(param, "%s must be 1 to 64 of a-z, 0-9, _ and -, not %s", param, strconv.Quote(cut(id)))
	}
	return nil
}

func cut(text string) string {
	if len(text) > 80 {
		return fmt.Sprintf("%.80s...", text)
	}
	return text
}

// most parses the limit of a list: 1 to 1000.
func (c *call) most(usual int) (int, error) { return c.number("limit", usual, 1000) }

// number parses a number from 1 to most in the query.
func (c *call) number(name string, usual, most int) (int, error) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(name, "%s must be a whole number from 1 to %d", name, most)
	}
	return n, nil
}

// instant parses a time in the query, if present.
func (c *call) instant(name string, to *time.Time) error {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return invalid(name, "%s must be a time such as 2026-11-01T08:00:00Z", name)
	}
	*to = t
	return nil
}

var periodParameters = []parameter{
	{name: "from", text: "Not before this time (RFC 3339)", kind: Period},
	{name: "to", text: "Before this time (RFC 3339)", kind: Period},
}

// period parses from and to; a missing one is the zero time.
func (c *call) period() (from, to time.Time, err error) {
	err = errors.Join(c.instant("from", &from), c.instant("to", &to))
	return from, to, err
}
