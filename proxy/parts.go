package proxy

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// upForm is a form with one file, read to its end. The file is in the exchange's body. The
// forwarded form is rebuilt from what was read here, so that no server can parse it differently.
type upForm struct {
	x          *request
	part       string // the part with the file
	fields     map[string]string
	name, kind string // of the file; kind is its Content-Type
	file       bool
}

func isForm(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "multipart/form-data")
}

// readParts reads a form with a file and some of the named fields. The file is stored on disk.
func (b *bodyReader) readParts(x *request, r *http.Request, part string, fields ...string) (*upForm, error) {
	done, err := b.connections.lasting(x)
	if err != nil {
		return nil, err
	}
	defer done()
	f := &upForm{x: x, part: part, fields: map[string]string{}}
	err = b.eachPart(x, r, part, func(name, text string) error {
		if !slices.Contains(fields, name) {
			return wire.BadRequest(shorten(name), "unknown_parameter", "This endpoint does not take a field named '%s'",
				shorten(name))
		}
		f.fields[name] = text
		return nil
	}, func(p *multipart.Part) error { return b.spoolPart(x, f, p) })
	if err == nil && !f.file && len(f.fields) == 0 {
		err = wire.BadRequest(part, "missing_required_parameter", "Missing required parameter: '%s'", part)
	}
	return f, err
}

// spoolPart buffers a file while its form is read.
func (b *bodyReader) spoolPart(x *request, f *upForm, p *multipart.Part) error {
	f.file = true
	f.name = p.FileName()
	f.kind = p.Header.Get("Content-Type")
	x.body = b.opts.Spool.Buffer(x.request.Context(), x.caller.Org.ID, b.roomWait)
	if err := x.body.Fill(io.LimitReader(p, b.opts.MaxFile+1)); err != nil {
		return b.brokenUpload(x, err)
	}
	if x.body.Size() > b.opts.MaxFile {
		return wire.TooLarge(b.opts.MaxFile)
	}
	return nil
}

// eachPart reads a form part by part: the part named file at most once, and each text field at most
// once.
func (b *bodyReader) eachPart(x *request, r *http.Request, file string, field func(name, text string) error,
	data func(*multipart.Part) error,
) error {
	r.Body = &slowBody{ReadCloser: r.Body, x: x}
	parts, err := r.MultipartReader()
	if err != nil {
		return wire.BadRequest("", "invalid_multipart", "An upload must be multipart/form-data with a part named %s", file)
	}
	seen := map[string]bool{}
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			_ = x.control.SetReadDeadline(time.Time{})
			return nil
		}
		if err != nil {
			return b.brokenUpload(x, err)
		}
		name := part.FormName()
		switch {
		case n == maxFields:
			return wire.BadRequest("", "invalid_multipart", "An upload can have at most %d parts", maxFields)
		case seen[name]:
			return wire.BadRequest(shorten(name), "invalid_multipart", "An upload can have only one part named %s",
				shorten(name))
		}
		seen[name] = true
		if name == file {
			if err := data(part); err != nil {
				return err
			}
			continue
		}
		text, err := io.ReadAll(io.LimitReader(part, maxField+1))
		if err != nil {
			return b.brokenUpload(x, err)
		}
		if len(text) > maxField {
			return wire.BadRequest(shorten(name), "invalid_value", "%s is too long", shorten(name))
		}
		if err := field(name, string(text)); err != nil {
			return err
		}
	}
}

func (f *upForm) fill(r *providers.Request) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		_ = w.WriteField(name, f.fields[name]) // writing to memory cannot fail
	}
	if f.file {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", multipart.FileContentDisposition(f.part, f.name))
		f.kind = strings.Map(printed, f.kind)
		if f.kind != "" {
			h.Set("Content-Type", f.kind)
		}
		_, _ = w.CreatePart(h)
	}
	begin := bytes.Clone(head.Bytes())
	_ = w.Close()
	end := head.Bytes()[len(begin):]
	size := int64(0)
	if f.file {
		size = f.x.body.Size()
	}
	r.Type, r.Length = w.FormDataContentType(), int64(len(begin))+size+int64(len(end))
	r.Body = func() io.Reader {
		return io.MultiReader(bytes.NewReader(begin), io.NewSectionReader(&f.x.body, 0, size), bytes.NewReader(end))
	}
}

// printed drops characters that could end a header line.
func printed(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}
