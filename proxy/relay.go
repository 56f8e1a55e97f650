package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// task is an operation in progress.
type task struct {
	operation
	ids      []string         // in the path
	note     ownership.Note   // of the thing named first, or only the provider that stores what is created
	mentions wire.Mentions    // in the body
	named    []ownership.Note // notes of the things mentioned
	request  providers.Request
	call     *guard.Call                 // the call that pays for it; nil if it is free
	asks     bool                        // the call only checks whether there is capacity for later charges
	added    func(status int, err error) // completes the count of a conversation's items; nil if nothing was counted
	made     ownership.Note
}

// objectHandler relays requests about objects that the provider keeps.
type objectHandler struct {
	server    *Server
	opts      *Options
	bodies    *bodyReader
	responses *responseHandler
}

// relay executes an operation: what it names is looked up, what it costs is held, and what its
// answer creates is recorded before the caller sees it.
func (h *objectHandler) relay(x *request, r *http.Request, op operation, arg string) error {
	t := &task{operation: op}
	if arg != "" {
		t.ids = strings.Split(arg, "/")
	}
	if err := h.findThing(x, r, t); err != nil {
		return err
	}
	if err := h.readTask(x, r, t); err != nil {
		return err
	}
	return h.carryOut(x, r, t)
}

// carryOut sends a task that has been read.
func (h *objectHandler) carryOut(x *request, r *http.Request, t *task) error {
	ctx := r.Context()
	if err := h.settleOn(ctx, x, t); err != nil {
		return err
	}
	plan, err := t.plan(h.server, x)
	if err != nil {
		return err
	}
	var status int
	if plan == nil {
		status, err = h.sendFree(x, r, t)
	} else {
		status, err = h.sendPaid(x, r, t, plan)
	}
	if t.added != nil {
		t.added(status, err)
	}
	h.after(ctx, x, t, status)
	return err
}

// findThing finds what the first id of the path names.
func (h *objectHandler) findThing(x *request, r *http.Request, t *task) error {
	for _, id := range t.ids {
		if !plainID(id) {
			return noThing(t.of, id)
		}
	}
	if t.of == "" {
		return nil
	}
	var err error
	t.note, err = h.opts.Guard.Objects.Find(r.Context(), x.caller, t.of, t.ids[0])
	if errors.Is(err, guard.ErrNotOwned) {
		return noThing(t.of, t.ids[0])
	}
	return err
}

func noThing(k ownership.Kind, id string) *wire.Error {
	what := strings.NewReplacer("_", " ", ".", " ").Replace(string(k))
	code := strings.ReplaceAll(string(k), ".", "_") + "_not_found"
	return wire.NotFound("id", code, "No such %s: %s. It must have been created through this proxy by the same "+
		"organization", what,
		shorten(id))
}

// readTask reads the body and what it mentions.
func (h *objectHandler) readTask(x *request, r *http.Request, t *task) error {
	t.request = providers.Request{Method: r.Method, Query: r.URL.RawQuery, Header: r.Header}
	switch {
	case r.Method != http.MethodPost:
		return nil
	case t.file != "" && isForm(r):
		form, err := h.bodies.readParts(x, r, t.file, "file_id")
		if err != nil {
			return err
		}
		if id, ok := form.fields["file_id"]; ok {
			t.mentions.Refs = []wire.Ref{{Kind: wire.RefFile, ID: id, Param: "file_id"}}
		}
		form.fill(&t.request)
		return nil
	}
	body, err := h.bodies.readBody(x, r)
	if err != nil {
		return err
	}
	t.mentions, err = wire.ScanMentions(body, h.opts.Scan)
	if err != nil {
		return err
	}
	if err := guard.BoundedTools(x.caller.Org, t.mentions.BuiltinTools); err != nil {
		return err
	}
	if len(body) > 0 {
		t.request.Length, t.request.Body = int64(len(body)), func() io.Reader { return bytes.NewReader(body) }
	}
	if t.makes == ownership.Upload {
		return purposeKept(t.mentions.Purpose)
	}
	return nil
}

// settleOn determines the provider of a task, which must be that of everything it mentions.
func (h *objectHandler) settleOn(ctx context.Context, x *request, t *task) (err error) {
	t.named, err = h.opts.Guard.Objects.Mentioned(ctx, x.caller, t.mentions.Refs)
	if err != nil {
		return err
	}
	for i, n := range t.named {
		switch {
		case t.note.Provider == "":
			t.note.Provider = n.Provider
		case n.Provider != t.note.Provider, n.Kind == ownership.UploadPart && n.Of != t.note.ID:
			ref := t.mentions.Refs[i]
			return wire.NotFound(ref.Param, "not_found", "%.100q belongs to another provider or upload", ref.ID)
		}
	}
	if t.note.Provider == "" {
		t.note.Provider, err = h.opts.Guard.Objects.Keeper(x.caller)
		if err != nil {
			return err
		}
	}
	if t.makes != "" {
		err = h.opts.Guard.Objects.MayKeep(ctx, x.caller, t.makes)
	}
	return err
}

// plan returns the cost of a task; nil if it is free.
func (t *task) plan(s *Server, x *request) (*guard.Plan, error) {
	if t.fee == nil {
		return nil, nil
	}
	var err error
	x.caller, err = s.guard.Plans.Label(x.request.Context(), x.caller, guard.LabelPlaces{Header: x.request.Header})
	if err != nil {
		return nil, err
	}
	return t.fee(s, x, t)
}

// sendPaid sends a task with a fee, which is held meanwhile.
func (h *objectHandler) sendPaid(x *request, r *http.Request, t *task, plan *guard.Plan) (status int, err error) {
	x.plan = plan
	quota := &pace{responses: h.responses, x: x, r: r, note: t.note}
	call, err := h.opts.Guard.Run(r.Context(), plan, guard.Attempt{
		ID: x.id, Number: 1, Quota: quota,
		Send: func(_ context.Context, c *guard.Call, _ http.ResponseWriter, fresh func() bool) error {
			t.call = c
			if !t.asks {
				x.call = c
			}
			status, err = h.send(x, r, t, fresh)
			quota.unused = errors.Is(err, providers.ErrStale)
			return err
		},
	}, x)
	if call != nil && !t.asks {
		x.call = call
	}
	return status, err
}

// sendFree sends a task that costs only a request of the provider's quota.
func (h *objectHandler) sendFree(x *request, r *http.Request, t *task) (int, error) {
	if t.fee == nil {
		err := h.countItems(r.Context(), x, t)
		if err != nil {
			return 0, err
		}
	}
	fresh, done, err := h.responses.paced(x, r, t.note)
	if err != nil {
		return 0, err
	}
	defer done(false)
	return h.send(x, r, t, fresh)
}

// countItems counts what the items of a request add to its conversation, before it is sent.
func (h *objectHandler) countItems(ctx context.Context, x *request, t *task) (err error) {
	if t.of == ownership.Conversation {
		t.added, err = h.opts.Guard.Objects.AddItems(ctx, x.caller, t.items(t.note.ID, x.id))
	}
	return err
}

// items returns what a task adds to a conversation.
func (t *task) items(conversation, call string) guard.Items {
	return guard.Items{Conversation: conversation, Call: call, Mentions: t.mentions, Named: t.named}
}

// changeTimeout bounds a request that creates or deletes something, even if its caller leaves.
const changeTimeout = 10 * time.Minute

// send calls the provider, unless the quota taken for it is no longer fresh.
func (h *objectHandler) send(x *request, r *http.Request, t *task, fresh func() bool) (int, error) {
	ctx := r.Context()
	if t.makes != "" || t.ends { // a caller that leaves does not undo what the provider does
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
		defer cancel()
	}
	if t.ends && t.of == ownership.VectorStore {
		if err := h.opts.Guard.Storage.End(ctx, x.caller, t.note, time.Now()); err != nil {
			return 0, unavailable(err)
		}
	}
	t.request.Path, t.request.Fresh = pathOf(t.path, t.ids), fresh
	status, err := h.opts.Guard.Passthrough.Relay(ctx, x, guard.Fetch{
		Org: x.caller.Org, Note: t.note, Request: t.request,
		Seen: func(status int, answer []byte) error { return h.seen(ctx, x, t, status, answer) },
	})
	if t.call != nil && !t.asks && (err != nil || status >= 300) {
		t.call.Paid(http.Header{}, status, err)
	}
	if spool.NoRoom(err) {
		err = noRoom(err)
	}
	return status, err
}

// pathOf inserts ids into a path pattern.
func pathOf(pattern string, ids []string) string {
	parts, at := strings.Split(pattern, "/"), 0
	for i, part := range parts[1:] {
		if part == "*" || part == "" {
			parts[i+1] = ids[at]
			at++
		}
	}
	return strings.Join(parts, "/")
}

// madeThing describes what an answer created.
type madeThing struct {
	ID      string     `json:"id"`
	Bytes   int64      `json:"bytes"`
	Purpose string     `json:"purpose"`
	Name    string     `json:"filename"`
	Created int64      `json:"created_at"` // Unix seconds, as is Expires
	Expires int64      `json:"expires_at"`
	Status  string     `json:"status"`
	File    *madeThing `json:"file"` // of a completed upload
}

// seen records what an answer created, and what it costs.
func (h *objectHandler) seen(ctx context.Context, x *request, t *task, status int, answer []byte) error {
	var made madeThing
	if t.makes != "" || t.fee != nil {
		_ = json.Unmarshal(answer, &made) // the fields that are needed are checked
	}
	if t.makes == ownership.File && made.File != nil {
		made = *made.File
	}
	if t.call != nil && !t.asks {
		if made.Status == "expired" && (t.itself() || t.makes == ownership.Container) { // there is no session any more
			status = http.StatusNotFound
		}
		t.call.Paid(x.Header(), status, nil)
	}
	if t.makes == "" {
		return nil
	}
	if !plainID(made.ID) {
		return wire.BadGateway("The provider's response has no usable id", nil)
	}
	now := time.Now()
	n := ownership.Note{
		ID: made.ID, Until: made.Expires, Made: now.UnixMicro(), Created: made.Created, Kind: t.makes,
		Provider: t.note.Provider, Of: t.note.ID, Bytes: max(made.Bytes, 0), Purpose: made.Purpose, Name: made.Name,
		Paid: t.made.Paid, Unit: t.made.Unit,
	}
	if t.makes == ownership.VectorStore {
		n.Paid, n.Bytes = now.Unix(), 0
	}
	err := h.opts.Guard.Objects.Keep(ctx, x.caller, n)
	if err != nil {
		return err
	}
	if t.makes == ownership.Conversation { // nothing else can be in progress in it yet
		t.added, err = h.opts.Guard.Objects.AddItems(ctx, x.caller, t.items(n.ID, x.id))
	}
	return err
}

// itself reports whether a task is about a whole thing, not a part of it.
func (t *task) itself() bool {
	return t.of != "" && strings.HasSuffix(t.path, "/") && !strings.Contains(t.path, "*")
}

// after records what a task has changed.
func (h *objectHandler) after(ctx context.Context, x *request, t *task, status int) {
	var err error
	gone := t.ends && status >= 200 && status < 300
	missing := status == http.StatusNotFound && t.itself() && t.request.Query == ""
	if gone || missing && t.method != postIt {
		err = h.opts.Guard.Objects.Forget(ctx, x.caller, t.note)
	} else if t.of == ownership.Container && t.call != nil && t.call.Result.Outcome == guard.Completed {
		t.note.Paid = time.Now().Add(guard.SessionTime).Unix()
		err = h.opts.Guard.Objects.Change(ctx, x.caller, t.note)
	}
	if err != nil {
		h.opts.Log.Warn("record of an object at a provider not updated", "id", x.id, "err", err)
	}
}

// fee plans what a task costs; nil if it is free.
type fee func(s *Server, x *request, t *task) (*guard.Plan, error)

// search is the fee of one search in a vector store.
func search(s *Server, x *request, t *task) (*guard.Plan, error) {
	return s.guard.Plans.Fee(x.caller, t.note.Provider, "vector_stores", guard.SearchEntry, 1)
}

// storedFiles checks whether the limits have capacity for a day's storage of the added files. Each
// day is charged when it ends.
func storedFiles(s *Server, x *request, t *task) (*guard.Plan, error) {
	var size int64
	for _, n := range t.named {
		size += n.Bytes
	}
	if size == 0 {
		return nil, nil
	}
	t.asks = true
	return s.guard.Plans.Fee(x.caller, t.note.Provider, "vector_stores", guard.StorageEntry, guard.Megabytes(size))
}

// containers are the sizes that have a price.
var containers = []string{guard.DefaultContainer, "4g", "16g", "64g"}

// session is the fee of a container session: when the container is created, and whenever it is used
// after the last paid session has ended.
func session(s *Server, x *request, t *task) (*guard.Plan, error) {
	unit := t.note.Unit
	if t.makes == ownership.Container {
		size := t.mentions.MemoryLimit
		size = cmp.Or(size, guard.DefaultContainer)
		if !slices.Contains(containers, size) {
			return nil, wire.BadRequest("memory_limit", "invalid_value", "memory_limit must be one of %s",
				strings.Join(containers, ", "))
		}
		unit = guard.ContainerEntry + size
		t.made = ownership.Note{Unit: unit, Paid: time.Now().Add(guard.SessionTime).Unix()}
	} else if time.Now().Unix() < t.note.Paid {
		return nil, nil
	}
	return s.guard.Plans.Fee(x.caller, t.note.Provider, "containers", unit, 1)
}
