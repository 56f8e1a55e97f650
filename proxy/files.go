package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
)

// fileView is a file in OpenAI's format. Times are Unix seconds.
type fileView struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	Created   int64  `json:"created_at"`
	Expires   int64  `json:"expires_at,omitempty"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
	StatusWhy any    `json:"status_details"`
}

// fileHandler serves /v1/files.
type fileHandler struct {
	opts        *Options
	reads       *reads
	bodies      *bodyReader
	connections *connections
	objects     *objectHandler
}

func viewFile(f *files.File) fileView {
	return fileView{
		ID: f.ID, Object: "file", Bytes: f.Bytes, Created: f.Created.Unix(), Expires: f.Expires.Unix(),
		Filename: f.Name, Purpose: f.Purpose, Status: "processed",
	}
}

// list is one page of a list, in the format by which SDKs page.
type list[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func listOf[T any](data []T, more bool, id func(*T) *string) list[T] {
	l := list[T]{Object: "list", Data: data, HasMore: more}
	if n := len(data); n > 0 {
		l.FirstID, l.LastID = id(&data[0]), id(&data[n-1])
	}
	return l
}

func limitOf(query url.Values, def, most int) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, wire.BadRequest("limit", "invalid_value", "limit must be a whole number from 1 to %d, not %q", most,
			shorten(text))
	}
	return n, nil
}

func (fh *fileHandler) stored(serve handler) handler {
	return func(x *request, r *http.Request, arg string) error {
		if fh.opts.Files == nil || fh.opts.Batches == nil {
			return noFiles()
		}
		return serve(x, r, arg)
	}
}

func noFiles() *wire.Error {
	return wire.NotFound("", "files_not_configured",
		"Files and batches are not enabled on this proxy. Set `files.store` in the configuration")
}

func owner(x *request) files.Owner { return files.Owner{Org: x.caller.Org.ID, User: x.caller.Owner()} }

func noFile(id string) *wire.Error {
	return wire.NotFound("id", "file_not_found", "No such File object: %s", shorten(id))
}

func (fh *fileHandler) allFiles(x *request, r *http.Request, _ string) error {
	if r.Method == http.MethodPost {
		return fh.upload(x, r)
	}
	query := r.URL.Query()
	limit, err := limitOf(query, 10_000, 10_000)
	if err != nil {
		return err
	}
	f := files.Filter{Purpose: query.Get("purpose"), After: query.Get("after"), Limit: limit}
	f.Oldest, err = oldestFirst(query)
	if err != nil {
		return err
	}
	return fh.listFiles(x, r, f)
}

func oldestFirst(query url.Values) (bool, error) {
	switch order := query.Get("order"); order {
	case "", "desc":
		return false, nil
	case "asc":
		return true, nil
	default:
		return false, wire.BadRequest("order", "invalid_value", "order must be asc or desc, not %q", shorten(order))
	}
}

// filesPerUnit is how many files on a page cost one more unit of reads.
const filesPerUnit = 100

// ownFile returns a file of the caller. The files of others do not exist.
func (fh *fileHandler) ownFile(ctx context.Context, x *request, id string) (*files.File, error) {
	if fh.opts.Files == nil {
		return nil, noFile(id)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	f, err := fh.opts.Files.File(ctx, owner(x), id)
	if errors.Is(err, files.ErrNotFound) {
		return nil, noFile(id)
	}
	return f, unavailable(err)
}

func (fh *fileHandler) oneFile(x *request, r *http.Request, id string) error {
	f, err := fh.ownFile(r.Context(), x, id)
	if fh.elsewhere(err) {
		return fh.objects.serve(x, r, "/files/", id)
	}
	if err != nil {
		return err
	}
	if r.Method != http.MethodDelete {
		return x.json(http.StatusOK, viewFile(f))
	}
	if err := fh.opts.Files.Remove(r.Context(), f.Owner, f.ID); err != nil {
		if errors.Is(err, files.ErrNotFound) {
			return noFile(id)
		}
		return unavailable(err)
	}
	return x.json(http.StatusOK, map[string]any{"id": f.ID, "object": "file", "deleted": true})
}

func (fh *fileHandler) fileContent(x *request, r *http.Request, id string) error {
	f, err := fh.ownFile(r.Context(), x, id)
	if fh.elsewhere(err) {
		return fh.objects.serve(x, r, "/files/*/content", id)
	}
	if err != nil {
		return err
	}
	done, err := fh.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	body, err := fh.opts.Files.Open(r.Context(), f, 0)
	if errors.Is(err, files.ErrNotFound) {
		return noFile(id)
	}
	if err != nil {
		return unavailable(err)
	}
	defer body.Close()
	h := x.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	h.Set("Content-Disposition", "attachment")
	x.WriteHeader(http.StatusOK)
	n, err := io.Copy(x, body)
	if err == nil && n != f.Bytes {
		err = fmt.Errorf("file %s has %d bytes, not %d", f.ID, n, f.Bytes)
	}
	return err
}

// uploadForm is an upload's form without the bytes.
type uploadForm struct {
	upForm
	up *files.Upload // destination of a file for batches
}

// Bounds of an upload: bytes of a text field, number of fields, bytes of a file name.
const (
	maxField  = 1 << 10
	maxFields = 16
	maxName   = 255
)

// upload receives a file. A file for batches is streamed to the store if its purpose came before
// it; other files are sent to the provider once they are complete.
func (fh *fileHandler) upload(x *request, r *http.Request) error {
	done, err := fh.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	f := &uploadForm{upForm: upForm{x: x, part: "file", fields: map[string]string{}}}
	defer func() {
		if f.up != nil {
			f.up.Discard(context.WithoutCancel(r.Context()))
		}
	}()
	err = fh.bodies.eachPart(x, r, f.part, f.field, func(part *multipart.Part) error {
		if f.fields["purpose"] != files.Batch {
			return fh.bodies.spoolPart(x, &f.upForm, part)
		}
		f.file, f.name = true, part.FileName()
		return fh.storeBatch(x, r, f, part)
	})
	switch {
	case err != nil:
		return err
	case !f.file:
		return wire.BadRequest("file", "missing_required_parameter", "Missing required parameter: 'file'")
	case f.fields["purpose"] != files.Batch:
		return fh.uploadElsewhere(x, r, f)
	}
	ttl, err := f.check()
	if err != nil {
		return err
	}
	if f.up == nil {
		if err := fh.storeBatch(x, r, f, io.NewSectionReader(&x.body, 0, x.body.Size())); err != nil {
			return err
		}
		x.body.Close()
	}
	file, err := f.up.Commit(r.Context(), f.name, files.Batch, ttl)
	if err != nil {
		return fileRefusal(err)
	}
	return x.json(http.StatusOK, viewFile(file))
}

func (fh *fileHandler) storeBatch(x *request, r *http.Request, f *uploadForm, part io.Reader) (err error) {
	if fh.opts.Files == nil {
		return noFiles()
	}
	if err := fh.opts.Files.Room(r.Context(), owner(x)); err != nil {
		return fileRefusal(err)
	}
	f.up, err = fh.opts.Files.Begin(r.Context(), owner(x), files.NewID())
	if err != nil {
		return unavailable(err)
	}
	return fh.store(x, f.up, part)
}

// field records a text field; unknown fields are ignored.
func (f *uploadForm) field(name, text string) error {
	switch name {
	case "purpose", "expires_after[anchor]", "expires_after[seconds]":
		f.fields[name] = text
	}
	return nil
}

// store copies the part to the store, up to the maximum file size.
func (fh *fileHandler) store(x *request, up *files.Upload, part io.Reader) error {
	from := &source{r: part}
	_, err := io.CopyBuffer(struct{ io.Writer }{up}, io.LimitReader(from, fh.opts.MaxFile+1), make([]byte, 64<<10))
	switch {
	case from.err != nil:
		return fh.bodies.brokenUpload(x, from.err)
	case err != nil:
		return unavailable(err)
	case up.Size() > fh.opts.MaxFile:
		return wire.TooLarge(fh.opts.MaxFile)
	}
	return nil
}

// source records an error of reading, to distinguish it from one of writing.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (b *bodyReader) brokenUpload(x *request, err error) error {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return err
	}
	return b.unreadable(x, err)
}

// check returns the lifetime of a file for batches, 0 for the default.
func (f *uploadForm) check() (time.Duration, error) {
	if !strings.HasSuffix(strings.ToLower(f.name), ".jsonl") || len(f.name) > maxName {
		return 0, wire.BadRequest("file", "invalid_file_format", "Invalid file format for Batch API. Must be .jsonl")
	}
	anchor, text := f.fields["expires_after[anchor]"], f.fields["expires_after[seconds]"]
	if anchor == "" && text == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		seconds = -1
	}
	return lifetime("expires_after", anchor, seconds)
}

func lifetime(param, anchor string, seconds int) (time.Duration, error) {
	if anchor != "created_at" {
		return 0, wire.BadRequest(param+".anchor", "invalid_value", "%s.anchor must be created_at", param)
	}
	if seconds < 3600 || seconds > 2_592_000 {
		return 0, wire.BadRequest(param+".seconds", "invalid_value", "%s.seconds must be from 3600 to 2592000", param)
	}
	return time.Duration(seconds) * time.Second, nil
}

// slowBody extends the read deadline while the caller keeps sending, and ends a stalled upload.
type slowBody struct {
	io.ReadCloser
	x        *request
	began    time.Time // of the first read
	bytes    int64
	deadline time.Time
}

// leastRate is the minimum average rate of an upload, in bytes per second: that of a slow phone
// connection. Slower ones are not worth holding a connection for.
const leastRate = 16 << 10

func (b *slowBody) Read(p []byte) (int, error) {
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	patience := b.x.server.opts.ReadBody
	earned := b.began.Add(patience + time.Duration(b.bytes)*time.Second/leastRate)
	deadline := now.Add(patience)
	if earned.Before(deadline) {
		deadline = earned
	}
	if deadline.Sub(b.deadline) > time.Second || deadline.Before(b.deadline) {
		b.deadline = deadline
		_ = b.x.control.SetReadDeadline(deadline) // not supported by test recorders
	}
	n, err := b.ReadCloser.Read(p)
	b.bytes += int64(n)
	return n, err
}
