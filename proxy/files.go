package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/files"
	"github.com/llmguard/llmguard/wire"
)

// fileView is a file as OpenAI shows it. Times are Unix seconds.
type fileView struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	Created   int64  `json:"created_at"`
	Expires   int64  `json:"expires_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"`
	StatusWhy any    `json:"status_details"`
}

func viewFile(f *files.File) fileView {
	return fileView{
		ID: f.ID, Object: "file", Bytes: f.Bytes, Created: f.Created.Unix(), Expires: f.Expires.Unix(),
		Filename: f.Name, Purpose: f.Purpose, Status: "processed",
	}
}

// list is a page of anything, in the form SDKs page through.
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

// limitOf reads a list's limit.
func limitOf(query url.Values, def, most int) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, wire.BadRequest("limit", "invalid_value", "limit must be a whole number from 1 to %d, not %q", most, shorten(text))
	}
	return n, nil
}

// stored wraps a handler that needs a place for files.
func (s *Server) stored(serve func(*exchange, *http.Request, string) error) func(*exchange, *http.Request, string) error {
	return func(x *exchange, r *http.Request, arg string) error {
		if s.opts.Files == nil || s.opts.Batches == nil {
			return wire.NotFound("", "files_not_configured", "This proxy keeps no files, so it serves neither files nor batches: its operator has to set files.store")
		}
		return serve(x, r, arg)
	}
}

func owner(x *exchange) files.Owner { return files.Owner{Org: x.caller.Org.ID, User: x.caller.User} }

func noFile(id string) *wire.Error {
	return wire.NotFound("id", "file_not_found", "No such File object: %s", shorten(id))
}

func (s *Server) allFiles(x *exchange, r *http.Request, _ string) error {
	if r.Method == http.MethodPost {
		return s.upload(x, r)
	}
	query := r.URL.Query()
	limit, err := limitOf(query, 10_000, 10_000)
	if err != nil {
		return err
	}
	f := files.Filter{Purpose: query.Get("purpose"), After: query.Get("after"), Limit: limit}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		f.Oldest = true
	default:
		return wire.BadRequest("order", "invalid_value", "order must be asc or desc, not %q", shorten(order))
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	page, more, err := s.opts.Files.List(ctx, owner(x), f)
	if errors.Is(err, files.ErrNotFound) {
		return wire.BadRequest("after", "invalid_value", "after names no file of yours")
	}
	if err != nil {
		return unavailable(err)
	}
	read := len(page)
	if f.Purpose != "" { // others were read in vain
		read = limit
	}
	s.reads.spend(x.caller.Org.ID, x.caller.Key, read/filesPerUnit, time.Now())
	data := make([]fileView, len(page))
	for i, f := range page {
		data[i] = viewFile(f)
	}
	return x.json(http.StatusOK, listOf(data, more, func(v *fileView) *string { return &v.ID }))
}

// filesPerUnit is how many files of a page cost one more unit of reads.
const filesPerUnit = 100

// ownFile finds a file of the caller's. Foreign files do not exist.
func (s *Server) ownFile(ctx context.Context, x *exchange, id string) (*files.File, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	f, err := s.opts.Files.File(ctx, owner(x), id)
	if errors.Is(err, files.ErrNotFound) {
		return nil, noFile(id)
	}
	return f, unavailable(err)
}

func (s *Server) oneFile(x *exchange, r *http.Request, id string) error {
	f, err := s.ownFile(r.Context(), x, id)
	if err != nil {
		return err
	}
	if r.Method != http.MethodDelete {
		return x.json(http.StatusOK, viewFile(f))
	}
	if err := s.opts.Files.Remove(r.Context(), f.Owner, f.ID); err != nil {
		if errors.Is(err, files.ErrNotFound) {
			return noFile(id)
		}
		return unavailable(err)
	}
	return x.json(http.StatusOK, map[string]any{"id": f.ID, "object": "file", "deleted": true})
}

func (s *Server) fileContent(x *exchange, r *http.Request, id string) error {
	f, err := s.ownFile(r.Context(), x, id)
	if err != nil {
		return err
	}
	done, err := s.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	body, err := s.opts.Files.Open(r.Context(), f, 0)
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

// uploadForm is what an upload says besides the bytes.
type uploadForm struct {
	name, purpose   string
	anchor, seconds string
}

// maxField bounds the text fields of an upload, each and in number.
const (
	maxField  = 1 << 10
	maxFields = 16
	maxName   = 255
)

// upload takes a file in: its bytes go to the store as they come, whatever the
// order of the parts.
func (s *Server) upload(x *exchange, r *http.Request) error {
	if err := s.opts.Files.Room(r.Context(), owner(x)); err != nil {
		return fileRefusal(err)
	}
	done, err := s.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	r.Body = &slowBody{ReadCloser: r.Body, x: x}
	parts, err := r.MultipartReader()
	if err != nil {
		return wire.BadRequest("", "invalid_multipart", "An upload is multipart/form-data with the parts file and purpose")
	}
	var f uploadForm
	var up *files.Upload
	defer func() {
		if up != nil {
			up.Discard(context.WithoutCancel(r.Context()))
		}
	}()
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s.brokenUpload(x, err)
		}
		if n == maxFields {
			return wire.BadRequest("", "invalid_multipart", "An upload has at most %d parts", maxFields)
		}
		if part.FormName() != "file" {
			if err := f.field(part.FormName(), part); err != nil {
				return s.brokenUpload(x, err)
			}
			continue
		}
		if up != nil {
			return wire.BadRequest("file", "invalid_multipart", "An upload has one part called file")
		}
		f.name = part.FileName()
		if up, err = s.opts.Files.Begin(r.Context(), owner(x), files.NewID()); err != nil {
			return unavailable(err)
		}
		if err := s.store(x, up, part); err != nil {
			return err
		}
	}
	_ = x.control.SetReadDeadline(time.Time{})
	if up == nil {
		return wire.BadRequest("file", "missing_required_parameter", "Missing required parameter: 'file'")
	}
	ttl, err := f.check()
	if err != nil {
		return err
	}
	file, err := up.Commit(r.Context(), f.name, f.purpose, ttl)
	if err != nil {
		return fileRefusal(err)
	}
	return x.json(http.StatusOK, viewFile(file))
}

// store copies the part to the store, up to the largest file.
func (s *Server) store(x *exchange, up *files.Upload, part io.Reader) error {
	from := &source{r: part}
	_, err := io.CopyBuffer(struct{ io.Writer }{up}, io.LimitReader(from, s.opts.MaxFile+1), make([]byte, 64<<10))
	switch {
	case from.err != nil:
		return s.brokenUpload(x, from.err)
	case err != nil:
		return unavailable(err)
	case up.Size() > s.opts.MaxFile:
		return wire.TooLarge(s.opts.MaxFile)
	}
	return nil
}

// source remembers that reading failed, and not writing.
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

func (s *Server) brokenUpload(x *exchange, err error) error {
	var public *wire.Error
	if errors.As(err, &public) {
		return err
	}
	return s.unreadable(x, err)
}

func (f *uploadForm) field(name string, part io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return err
	}
	if len(text) > maxField {
		return wire.BadRequest(shorten(name), "invalid_value", "%s is too long", shorten(name))
	}
	switch name {
	case "purpose":
		f.purpose = string(text)
	case "expires_after[anchor]":
		f.anchor = string(text)
	case "expires_after[seconds]":
		f.seconds = string(text)
	}
	return nil
}

// check returns how long the file is to live, 0 for the default.
func (f *uploadForm) check() (time.Duration, error) {
	if f.purpose != files.Batch {
		return 0, wire.BadRequest("purpose", "invalid_value", "This proxy keeps files with purpose batch only, not %q", shorten(f.purpose))
	}
	if !strings.HasSuffix(strings.ToLower(f.name), ".jsonl") || len(f.name) > maxName {
		return 0, wire.BadRequest("file", "invalid_file_format", "Invalid file format for Batch API. Must be .jsonl")
	}
	if f.anchor == "" && f.seconds == "" {
		return 0, nil
	}
	seconds, err := strconv.Atoi(f.seconds)
	if err != nil {
		seconds = -1
	}
	return lifetime("expires_after", f.anchor, seconds)
}

// lifetime checks an expires_after.
func lifetime(param, anchor string, seconds int) (time.Duration, error) {
	if anchor != "created_at" {
		return 0, wire.BadRequest(param+".anchor", "invalid_value", "%s.anchor must be created_at", param)
	}
	if seconds < 3600 || seconds > 2_592_000 {
		return 0, wire.BadRequest(param+".seconds", "invalid_value", "%s.seconds must be from 3600 to 2592000", param)
	}
	return time.Duration(seconds) * time.Second, nil
}

// slowBody lets a caller who sends go on, and ends one who has stopped.
type slowBody struct {
	io.ReadCloser
	x        *exchange
	began    time.Time // of the first read
	bytes    int64
	deadline time.Time
}

// leastRate is how fast an upload must be on the whole, in bytes a second: a slow
// telephone's, and more than is worth holding a connection for.
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
