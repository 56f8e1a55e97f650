package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// objectHandler relays requests about objects that providers store for the orgs: the operations of
// wire.Objects.
type objectHandler struct {
	opts   *Options
	bodies *bodyReader
	pacer  *pacer
	// operations are those of wire.Operations, by method and path.
	operations map[string]wire.Operation
}

func newObjectHandler(o *Options, bodies *bodyReader, p *pacer) *objectHandler {
	h := &objectHandler{opts: o, bodies: bodies, pacer: p, operations: map[string]wire.Operation{}}
	for _, op := range wire.Operations() {
		h.operations[op.Method+" "+op.Path] = op
	}
	return h
}

// addRoutes adds the routes of the objects to the table. A handler that is there already serves other
// methods, or, if some objects are stored by this proxy, all.
func (h *objectHandler) addRoutes(table map[string]route) {
	for _, op := range wire.Operations() {
		at := table[op.Path]
		at.scope = op.Object.Scope
		switch {
		case op.Lists():
			at.reads = readsPage
		case op.Method == http.MethodGet:
			at.reads = readsOne
		case !at.priced:
			at.writes = writesOne
		}
		if op.Costs() {
			at.fees = append(slices.Clone(at.fees), op.Method)
		}
		if own := at.serve; !op.Object.Here {
			at.serve = func(x *request, r *http.Request, arg string) error {
				if r.Method != op.Method {
					return own(x, r, arg)
				}
				return h.serve(x, r, op.Path, arg)
			}
		}
		table[op.Path] = at
	}
}

// serve serves a request to a path as in the table of routes. arg has the ids in it.
func (h *objectHandler) serve(x *request, r *http.Request, path, arg string) error {
	op := h.operations[r.Method+" "+path]
	if op.Lists() {
		return h.list(x, r, op)
	}
	return h.relay(x, r, op, arg)
}

// relay executes an operation: what it names is looked up, what it costs is held, and what its answer
// creates is recorded before the caller sees it.
func (h *objectHandler) relay(x *request, r *http.Request, op wire.Operation, arg string) (err error) {
	q := &guard.ObjectRequest{Operation: op}
	ids := strings.FieldsFunc(arg, func(c rune) bool { return c == '/' })
	for _, id := range ids {
		if !wire.PlainID(id) {
			return noObject(op.Object.Kind, id)
		}
	}
	if op.Of() {
		q.Note, err = h.opts.Guard.Objects.Find(r.Context(), x.caller, op.Object.Kind, ids[0])
		if errors.Is(err, guard.ErrNotOwned) {
			return noObject(op.Object.Kind, ids[0])
		}
		if err != nil {
			return err
		}
	}
	q.Request = providers.Request{Method: r.Method, Path: op.At(ids...), Query: r.URL.RawQuery, Header: r.Header}
	if r.Method == http.MethodPost {
		if err := h.read(x, r, q); err != nil {
			return err
		}
	}
	return h.send(x, r, q)
}

func noObject(k wire.ObjectKind, id string) *wire.Error {
	return wire.NotFound("id", k.Object().Code(),
		"No such %s: %s. It must have been created through this proxy by the same organization", k.Words(), shorten(id))
}

func (h *objectHandler) read(x *request, r *http.Request, q *guard.ObjectRequest) error {
	if q.File != "" && isForm(r) {
		form, err := h.bodies.readParts(x, r, q.File, "file_id")
		if err != nil {
			return err
		}
		if id, ok := form.fields["file_id"]; ok {
			q.Mentions.Refs = []wire.Ref{{Kind: wire.ObjectFile, ID: id, Param: "file_id"}}
		}
		form.fill(&q.Request)
		return nil
	}
	body, err := h.bodies.readBody(x, r)
	if err != nil {
		return err
	}
	q.Mentions, err = wire.ScanMentions(body, h.opts.Scan)
	if err != nil {
		return err
	}
	if err := guard.BoundedTools(x.caller.Org, q.Mentions.BuiltinTools); err != nil {
		return err
	}
	if len(body) > 0 {
		q.Request.Length, q.Request.Body = int64(len(body)), func() io.Reader { return bytes.NewReader(body) }
	}
	if q.Makes == wire.ObjectUpload {
		return purposeKept(q.Mentions.Purpose)
	}
	return nil
}

// send sends a request that has been read. If it has a fee, that is held meanwhile.
func (h *objectHandler) send(x *request, r *http.Request, q *guard.ObjectRequest) (err error) {
	g := h.opts.Guard
	q.ID, q.Caller = x.id, x.caller
	if err := g.Objects.Place(r.Context(), q); err != nil {
		return err
	}
	var later bool
	if q.Costs() {
		if err := x.label(r.Context(), guard.LabelPlaces{Header: r.Header}); err != nil {
			return err
		}
		q.Caller = x.caller
		x.plan, later, err = g.Plans.ObjectFee(q)
		if err != nil {
			return err
		}
	}
	pace := h.pacer.of(x, q.Note)
	if x.plan == nil {
		if err := pace.Take(r.Context(), nil); err != nil {
			return err
		}
		defer pace.Give(r.Context(), nil)
		return h.sendNow(x, r, q, pace.Permit)
	}
	call, err := g.Run(r.Context(), x.plan, guard.Attempt{
		ID: x.id, Number: 1, Quota: pace,
		Send: func(_ context.Context, c *guard.Call, _ http.ResponseWriter, permit func() error) error {
			if !later {
				q.Call, x.call = c, c
			}
			err := h.sendNow(x, r, q, permit)
			pace.unused = guard.NotSent(err)
			return err
		},
	}, x)
	if call != nil && !later {
		x.call = call
	}
	return err
}

// sendNow calls the provider if that is permitted when the first byte is to be written.
func (h *objectHandler) sendNow(x *request, r *http.Request, q *guard.ObjectRequest, permit func() error) error {
	q.Request.Permit = permit
	_, err := h.opts.Guard.Objects.Send(r.Context(), x, q)
	if spool.NoRoom(err) {
		return noRoom(err)
	}
	return err
}
