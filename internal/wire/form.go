package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// File is a part of a form that contains a file.
type File struct {
	// Size is in bytes.
	Size int64
	// Head is the start of the file, at most 4 KB.
	Head []byte
}

// Form describes a multipart/form-data request. Its bytes are not stored here: [Form.Source] reads
// them again.
type Form struct {
	// Type is a newly built Content-Type with the boundary by which the form was read.
	Type string
	// Size is the length of the whole body in bytes.
	Size int64
	// Source reads the body as received; the caller of [ScanForm] sets it.
	Source io.ReaderAt

	texts []formValue // the fields that may be sent with another value, in order
	named string      // the model in the path if the form names another one or none
	lead  string      // the start of a part that names the model
}

const (
	maxFormFields = 256 << 10 // bytes of all values except files
	maxFormParts  = 256
	fileHead      = 4 << 10
)

// formField reads the value of a field into the request.
type formField func(s *formScanner, value string) error

func formInt(param string, lo, hi int64, field func(*Request) *int64) formField {
	return func(s *formScanner, value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < lo || n > hi {
			return BadRequest(param, "invalid_value", "Invalid '%s': expected a whole number from %d to %d, but got %q instead.",
				param, lo, hi, clip([]byte(value)))
		}
		*field(s.req) = n
		return nil
	}
}

func formWord(param string, field func(*Request) *string) formField {
	return func(s *formScanner, value string) error {
		if len(value) > maxWord {
			return BadRequest(param, "string_above_max_length",
				"Invalid '%s': string too long. Expected at most %d bytes, but got %d.", param, maxWord, len(value))
		}
		*field(s.req) = value
		return nil
	}
}

func formStream(s *formScanner, value string) error {
	switch value {
	case "true", "false":
		s.req.Stream = value == "true"
		return nil
	}
	return BadRequest("stream", "invalid_value", "Invalid 'stream': expected true or false, but got %q instead.",
		clip([]byte(value)))
}

// formText records a text that is part of the prompt.
func formText(s *formScanner, value string) error {
	s.texts = append(s.texts, value)
	return nil
}

// formReference records a recording of a speaker given as a data URL, because the model listens to
// it as well.
func formReference(s *formScanner, value string) error {
	s.req.Creation.Files = append(s.req.Creation.Files, File{Size: int64(len(value)) * 3 / 4})
	return nil
}

// formFields are the form fields that affect the price; formMany marks fields that may be repeated.
var (
	formFields = map[string]formField{
		"model":          formWord("model", func(r *Request) *string { return &r.Model }),
		"prompt":         formText,
		"n":              formInt("n", 1, maxPictures, func(r *Request) *int64 { return &r.N }),
		"size":           formWord("size", func(r *Request) *string { return &r.Creation.Size }),
		"quality":        formWord("quality", func(r *Request) *string { return &r.Creation.Quality }),
		"input_fidelity": formWord("input_fidelity", func(r *Request) *string { return &r.Creation.Fidelity }),
		"partial_images": formInt("partial_images", 0, maxPartial, func(r *Request) *int64 {
			return &r.Creation.Partial
		}),
		"response_format":          formWord("response_format", func(r *Request) *string { return &r.Creation.Format }),
		"service_tier":             formWord("service_tier", func(r *Request) *string { return &r.ServiceTier }),
		"stream":                   formStream,
		"known_speaker_references": formReference,
		"keywords":                 formText,
		"output_format":            formWord("output_format", func(r *Request) *string { return &r.Creation.Picture }),
		"frame_count": formInt("frame_count", 1, maxFrames, func(r *Request) *int64 {
			return &r.Creation.Frames
		}),
	}
	// formPlain are the other fields of OpenAI's API, which are free.
	formPlain = map[string]bool{
		"background": true, "chunking_strategy": true, "frame_duration_ms": true, "include": true,
		"known_speaker_names": true,
		"language":            true, "languages": true, "moderation": true, "output_compression": true,
		"safety_identifier": true,
		"temperature":       true, "timestamp_granularities": true, "user": true,
	}
	formMany   = map[string]bool{"known_speaker_references": true, "image": true, "keywords": true}
	formFiles  = map[string]bool{"file": true, "image": true, "mask": true, "markup": true}
	formEdited = map[string]bool{"model": true, "user": true, "safety_identifier": true, "prompt_cache_key": true}
	formFolded = foldedForm()
)

// foldedForm maps the folded forms of the relevant names to the names.
func foldedForm() map[string]string {
	out := map[string]string{}
	add := func(name string) {
		var buf [maxFolded]byte
		folded, _ := fold(buf[:0], []byte(name))
		out[string(folded)] = name
	}
	for name := range formFields {
		add(name)
	}
	for name := range formFiles {
		add(name)
	}
	for name := range formEdited {
		add(name)
	}
	return out
}

// formScanner is the state of one ScanForm.
type formScanner struct {
	*formReader
	req    *Request
	seen   map[string]bool
	fields int // bytes of values so far
	texts  []string
	digest bytes.Buffer // fields, and digests of files, as they will be in Body
}

// ScanForm reads a multipart/form-data request body of ep from r to its end, in constant memory. Of
// each file it keeps only the size and the start. The Request's Body is not the form but a JSON
// description of it, in which equal forms are equal; what is forwarded is read from Form.Source,
// which the caller sets.
//
// It refuses, with an [*Error] of status 400, forms that two readers could understand differently:
// a line end other than CRLF before a boundary, a duplicate name, an encoded part, a name that
// differs from a priced one in spelling. Other errors are those of r. model is the model in the
// path, or ""; it overrides the form.
func ScanForm(ep Endpoint, model, contentType string, r io.Reader) (*Request, error) {
	boundary, err := formBoundary(contentType)
	if err != nil {
		return nil, err
	}
	own := mime.FormatMediaType("multipart/form-data", map[string]string{"boundary": boundary})
	s := &formScanner{formReader: newFormReader(boundary, r), seen: map[string]bool{}, req: &Request{
		Endpoint: ep, OutputLimit: -1, N: 1, MaxToolCalls: -1, Dimensions: -1,
		Creation: &Creation{}, Form: &Form{Type: own},
	}}
	for n := 0; ; n++ {
		p, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n == maxFormParts {
			err = BadRequest("", "", "The form has too many parts: more than %d.", maxFormParts)
		}
		if err == nil {
			err = s.part(p)
		}
		if err != nil {
			return nil, err
		}
	}
	s.req.Form.Size = s.at
	if model != "" && model != s.req.Model {
		s.req.Form.named, s.req.Model = model, model
		s.note("model", model)
	}
	if s.req.Model == "" && ep.Traits().defaults != nil && ep.Traits().defaults(s.req) {
		s.req.Form.named = s.req.Model
	}
	s.req.Form.lead = string(s.dash) + "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"
	s.body()
	return s.req, s.finish()
}

func (s *formScanner) part(p formPart) error {
	name := strings.TrimSuffix(p.name, "[]")
	if base, _, list := strings.Cut(p.name, "["); list && (name != base || !formMany[base]) &&
		(formFields[base] != nil || formFiles[base]) {
		return BadRequest(base, "invalid_value", "The field '%s' is a list, but '%s' takes one value.",
			clip([]byte(p.name)), base)
	}
	if err := s.once(name); err != nil {
		return err
	}
	if p.file || formFiles[name] {
		if !formFiles[name] {
			return BadRequest(clip([]byte(name)), "unknown_parameter", "This endpoint does not take a file named '%s'.",
				clip([]byte(name)))
		}
		return s.file(name)
	}
	if p.coded {
		return badForm("a field is not encoded in UTF-8")
	}
	start := s.at
	value, err := s.value(maxFormFields - s.fields)
	if err != nil {
		return err
	}
	s.fields += len(value)
	if !utf8.Valid(value) {
		return BadRequest(clip([]byte(name)), "", "The value of '%s' is not valid UTF-8.", clip([]byte(name)))
	}
	if formEdited[name] {
		s.req.Form.texts = append(s.req.Form.texts, formValue{name, string(value), Span{int(start), int(start) + len(value)}})
	}
	s.note(name, string(value))
	if kind := formKind(p.name); kind != "" {
		s.req.Refs = append(s.req.Refs, Ref{Kind: kind, ID: clip(value), Param: clip([]byte(p.name))})
	}
	if read := formFields[name]; read != nil {
		return read(s, string(value))
	}
	if !formPlain[name] {
		s.req.Unknown = append(s.req.Unknown, name)
	}
	return nil
}

// formKind returns the kind of object that a field with this name refers to, as in
// image[0][file_id]; empty if none.
func formKind(name string) ObjectKind {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '[' || r == ']' || r == '.' })
	for _, part := range parts {
		var buf [maxFolded]byte
		folded, _ := fold(buf[:0], []byte(part))
		if kind := kindByMember[string(folded)]; kind != "" {
			return kind
		}
	}
	return ""
}

// once refuses a duplicate name, or one that may be mistaken for another.
func (s *formScanner) once(name string) error {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], []byte(name))
	if twin := formFolded[string(folded)]; ok && twin != "" && twin != name {
		return ambiguous([]byte(name), twin)
	}
	matters := formFields[name] != nil || formFiles[name] || formEdited[name]
	if s.seen[name] && matters && !formMany[name] {
		return BadRequest(name, "duplicate_parameter", "The name '%s' appears twice in the form.", name)
	}
	s.seen[name] = true
	return nil
}

// file reads a file to its end and keeps its start, size and digest.
func (s *formScanner) file(name string) error {
	f, sum := File{}, sha256.New()
	err := s.data(func(b []byte) error {
		if room := fileHead - len(f.Head); room > 0 {
			f.Head = append(f.Head, b[:min(room, len(b))]...)
		}
		f.Size += int64(len(b))
		sum.Write(b)
		return nil
	})
	if err != nil {
		return err
	}
	s.note(name, "sha256:"+hex.EncodeToString(sum.Sum(nil)))
	s.req.Creation.Files = append(s.req.Creation.Files, f)
	return nil
}

// note adds a field to the description of the form.
func (s *formScanner) note(name, value string) {
	s.digest.WriteByte(',')
	s.digest.Write(appendQuoted(nil, name))
	s.digest.WriteByte(':')
	s.digest.Write(appendQuoted(nil, value))
}

// body builds the request's Body and its Inputs, which point into it.
func (s *formScanner) body() {
	r := s.req
	r.Body = []byte(`{"texts":[`)
	for i, text := range s.texts {
		if i > 0 {
			r.Body = append(r.Body, ',')
		}
		start := len(r.Body)
		r.Body = appendQuoted(r.Body, text)
		r.Inputs = append(r.Inputs, Text{KindInput, Span{start, len(r.Body)}})
	}
	r.Body = append(append(append(r.Body, ']'), s.digest.Bytes()...), '}')
}

// finish checks what is known only after the whole form was read.
func (s *formScanner) finish() error {
	traits := s.req.Endpoint.Traits()
	switch {
	case s.req.Model == "":
		return missing("model")
	case badName(s.req.Model):
		return badModel()
	case !s.seen[traits.file]:
		return missing(traits.file)
	case traits.complete != nil:
		s.req.InputItems = len(s.texts)
		return traits.complete(&scanner{req: s.req})
	}
	return nil
}
