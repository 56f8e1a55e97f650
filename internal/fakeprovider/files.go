package fakeprovider

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// storedFile is a file in OpenAI's format, with its content.
type storedFile struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Bytes    int    `json:"bytes"`
	Created  int64  `json:"created_at"`
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
	Status   string `json:"status"`

	content []byte
}

// File is a file stored on the server.
type File struct {
	ID, Filename, Purpose string
	Content               []byte // must not be modified
}

// Files returns the stored files, oldest first.
func (s *Server) Files() []File {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []File
	for _, f := range s.files {
		out = append(out, File{f.ID, f.Filename, f.Purpose, f.content})
	}
	return out
}

func (s *Server) keepFile(name, purpose string, content []byte) *storedFile {
	f := &storedFile{
		ID: newID("file-"), Object: "file", Bytes: len(content), Created: time.Now().Unix(),
		Filename: name, Purpose: purpose, Status: "processed", content: content,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files = append(s.files, f)
	return f
}

func (s *Server) file(id string) *storedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.files, func(f *storedFile) bool { return f.ID == id })
	if i < 0 {
		return nil
	}
	return s.files[i]
}

// routeFiles returns the handler for a path below /v1/files.
func routeFiles(x *exchange) (method string, handle handler) {
	id, what, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(x.r.URL.Path, "/v1/files"), "/"), "/")
	switch {
	case id == "" && x.r.Method == http.MethodPost:
		return http.MethodPost, scripted(upload)
	case id == "":
		return http.MethodGet, listFiles
	case what == "content":
		return http.MethodGet, scripted(func(x *exchange, lost bool) error { return sendFile(x, id, lost) })
	case x.r.Method == http.MethodDelete:
		return http.MethodDelete, withFile(id, deleteFile)
	}
	return http.MethodGet, withFile(id, func(x *exchange, f *storedFile) error { return x.show(f, false) })
}

func withFile(id string, do func(*exchange, *storedFile) error) handler {
	return func(x *exchange) error {
		f := x.s.file(id)
		if f == nil {
			return missing("file", id)
		}
		return do(x, f)
	}
}

func missing(what, id string) *apiError {
	return invalid("id", "", "No such %s object: %s", what, id).with(http.StatusNotFound)
}

// scripted returns a handler that applies the script to a request of the Files or Batch API, and
// calls do. lost means that the request is carried out but its response is dropped.
func scripted(do func(x *exchange, lost bool) error) handler {
	return func(x *exchange) error {
		b, err := x.s.behaviour(x.q)
		if err != nil {
			return do(x, false)
		}
		x.b = b
		lost := b.Cut == CutHeaders
		if lost {
			x.b.Cut = ""
		}
		if x.opening() {
			return nil
		}
		return do(x, lost)
	}
}

// show responds with a document, unless the response is to be lost.
func (x *exchange) show(v any, lost bool) error { return x.send("application/json", encode(v), lost) }

// send responds with a body, unless the response is to be lost.
func (x *exchange) send(contentType string, body []byte, lost bool) error {
	if lost {
		x.reset()
		return nil
	}
	x.outcome(OK)
	x.write(http.StatusOK, contentType, body)
	return nil
}

func upload(x *exchange, lost bool) error {
	form, files, err := x.q.form()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return invalid("file", "", "'file' is a required property")
	}
	name, content, purpose := files[0].name, files[0].content, form["purpose"]
	known := []string{"batch", "assistants", "vision", "user_data"}
	if !slices.Contains(known, purpose) {
		return invalid("purpose", "", "'%s' is not one of %q - 'purpose'", purpose, known)
	}
	if purpose == "batch" && !strings.HasSuffix(name, ".jsonl") {
		return invalid("file", "", "Invalid file format for Batch API. Must be .jsonl")
	}
	return x.show(x.s.keepFile(name, purpose, content), lost)
}

// formFile is a file in a form.
type formFile struct {
	name    string
	content []byte
}

// form reads a multipart form: the last value of each field, without the "[]" of its name, and
// the files.
func (q *Request) form() (fields map[string]string, files []formFile, err error) {
	fields = map[string]string{}
	r := &http.Request{Method: http.MethodPost, Header: q.Header, Body: io.NopCloser(bytes.NewReader(q.Body))}
	form, err := r.MultipartReader()
	for err == nil {
		var part *multipart.Part
		part, err = form.NextPart()
		if errors.Is(err, io.EOF) {
			return fields, files, nil
		}
		if err != nil {
			break
		}
		var data []byte
		data, err = io.ReadAll(part)
		if part.FileName() != "" {
			files = append(files, formFile{part.FileName(), data})
		} else {
			fields[strings.TrimSuffix(part.FormName(), "[]")] = string(data)
		}
	}
	return nil, nil, invalid("", "", "Could not parse multipart form: %v", err)
}

func sendFile(x *exchange, id string, lost bool) error {
	f := x.s.file(id)
	if f == nil {
		return missing("file", id)
	}
	return x.send("application/octet-stream", f.content, lost)
}

func deleteFile(x *exchange, f *storedFile) error {
	x.s.change(func() {
		x.s.files = slices.DeleteFunc(x.s.files, func(other *storedFile) bool { return other == f })
	})
	return x.show(map[string]any{"id": f.ID, "object": "file", "deleted": true}, false)
}

func listFiles(x *exchange) error {
	x.s.mu.Lock()
	all := slices.Clone(x.s.files)
	x.s.mu.Unlock()
	slices.Reverse(all) // newest first
	return x.show(pageOf(x.r, all, 10_000, func(f *storedFile) string { return f.ID }), false)
}

// pageOf returns a page of a list, according to limit and after.
func pageOf[T any](r *http.Request, all []T, limit int, id func(T) string) map[string]any {
	query := r.URL.Query()
	if n, err := strconv.Atoi(query.Get("limit")); err == nil && n > 0 {
		limit = min(n, limit)
	}
	if after := cmp.Or(query.Get("after"), query.Get("after_id")); after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return id(v) == after })
		all = all[i+1:]
	}
	page := all[:min(limit, len(all))]
	if page == nil {
		page = []T{}
	}
	out := map[string]any{
		"object": "list", "data": page, "has_more": len(all) > len(page), "first_id": nil,
		"last_id": nil,
	}
	if len(page) > 0 {
		out["first_id"], out["last_id"] = id(page[0]), id(page[len(page)-1])
	}
	return out
}
