package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"regexp"
	"strings"
)

// formReader reads multipart/form-data strictly and reports where everything is, which
// mime/multipart does not.
type formReader struct {
	in   *bufio.Reader
	dash []byte // "--" and the boundary
	at   int64  // offset of the next byte
}

// formPart is the header of a part.
type formPart struct {
	name  string
	file  bool
	coded bool // its text is in a charset other than UTF-8, which some readers honor
}

const (
	formBuffer = 64 << 10
	maxHead    = 8 << 10 // bytes of a part's header
)

func badForm(what string) *Error {
	return BadRequest("", "invalid_form", "We could not parse the multipart form of your request: %s.", what)
}

// plainForm matches a Content-Type with one plain boundary. Servers disagree on the boundary if
// there are two, or if it is encoded or continued.
var plainForm = regexp.MustCompile(`^(?i:multipart/form-data) *; *(?i:boundary)=("?)([0-9A-Za-z'()+_,./:=?-]{1,70})("?)$`)

// formBoundary returns the boundary that a form's Content-Type names.
func formBoundary(contentType string) (string, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if kind != "multipart/form-data" {
		return "", BadRequest("", "invalid_content_type",
			"This endpoint takes multipart/form-data, but the request's Content-Type is %q.", clip([]byte(contentType)))
	}
	m := plainForm.FindStringSubmatch(contentType)
	if err != nil || m == nil || m[1] != m[3] {
		return "", badForm("its Content-Type must have exactly one boundary and no other parameters")
	}
	return m[2], nil
}

func newFormReader(boundary string, r io.Reader) *formReader {
	return &formReader{in: bufio.NewReaderSize(r, formBuffer), dash: []byte("--" + boundary)}
}

// next advances to the next part, whose data the caller must read to its end. At the end of the
// form it returns io.EOF, after reading what follows the form.
func (f *formReader) next() (formPart, error) {
	if f.at == 0 {
		start, err := f.in.Peek(len(f.dash))
		if err != nil || !bytes.Equal(start, f.dash) {
			return formPart{}, f.short(err, "it does not begin with its boundary")
		}
		f.skip(len(f.dash))
	}
	line, err := f.line(maxHead)
	switch {
	case err == nil && len(line) == 0:
	case line == "--":
		return formPart{}, f.rest()
	case err != nil:
		return formPart{}, f.short(err, "it ends in the middle of a boundary")
	default:
		return formPart{}, badForm("a boundary is followed by other text")
	}
	return f.head()
}

func (f *formReader) head() (formPart, error) {
	var p formPart
	left := maxHead
	for {
		line, err := f.line(left)
		if err != nil {
			return p, f.short(err, "the header of a part is incomplete")
		}
		if line == "" {
			break
		}
		left -= len(line)
		name, value, ok := strings.Cut(line, ":")
		switch {
		case !ok || name != strings.TrimSpace(name) || p.name != "" && strings.EqualFold(name, "Content-Disposition"):
			return p, badForm("the header of a part is malformed")
		case strings.EqualFold(name, "Content-Transfer-Encoding"):
			return p, badForm("a part has a Content-Transfer-Encoding; send its bytes unencoded")
		case strings.EqualFold(name, "Content-Type"):
			p.coded = p.coded || otherCharset(value)
		case strings.EqualFold(name, "Content-Disposition"):
			coded := p.coded
			p, err = disposition(value)
			if err != nil {
				return p, err
			}
			p.coded = coded
		}
	}
	if p.name == "" {
		return p, badForm("a part has no name")
	}
	return p, nil
}

func otherCharset(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err != nil || given && !strings.EqualFold(charset, "utf-8")
}

// disposition returns a part's name. It refuses names in the format of RFC 5987, which some readers
// ignore.
func disposition(value string) (formPart, error) {
	kind, params, err := mime.ParseMediaType(value)
	lower := strings.ReplaceAll(strings.ToLower(value), "filename*", "")
	if err != nil || kind != "form-data" || params["name"] == "" || strings.Contains(lower, "name*") {
		return formPart{}, badForm("the Content-Disposition of a part is malformed or ambiguous")
	}
	_, file := params["filename"]
	return formPart{name: params["name"], file: file}, nil
}

// line reads to the next CRLF, without it.
func (f *formReader) line(most int) (string, error) {
	text, err := f.in.ReadSlice('\n')
	f.at += int64(len(text))
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || len(text) > most:
		return "", badForm("the header of a part is too long")
	case err != nil:
		return string(text), err
	case !bytes.HasSuffix(text, []byte("\r\n")):
		return "", badForm("a line does not end in CRLF")
	}
	return string(text[:len(text)-2]), nil
}

func (f *formReader) skip(n int) {
	f.in.Discard(n) //nolint:errcheck // cannot fail, they were peeked
	f.at += int64(n)
}

// data passes on a part's bytes piece by piece, up to the boundary and without the line end before
// it, and advances past the boundary.
func (f *formReader) data(take func([]byte) error) error {
	for {
		buf, err := f.in.Peek(formBuffer)
		if len(buf) == 0 || err != nil && !errors.Is(err, io.EOF) {
			return f.short(err, "no boundary follows a part")
		}
		ended := err != nil
		if i := bytes.Index(buf, f.dash); i >= 0 {
			if i < 2 || buf[i-2] != '\r' || buf[i-1] != '\n' {
				return badForm("a boundary is not at the start of a line")
			}
			if err := take(buf[:i-2]); err != nil {
				return err
			}
			f.skip(i + len(f.dash))
			return nil
		}
		if ended {
			return f.short(io.EOF, "no boundary follows a part")
		}
		n := len(buf) - len(f.dash) - 1 // the boundary and its line end may begin in the remainder
		if err := take(buf[:n]); err != nil {
			return err
		}
		f.skip(n)
	}
}

// value reads a part of at most most bytes.
func (f *formReader) value(most int) ([]byte, error) {
	var out []byte
	err := f.data(func(b []byte) error {
		if len(out)+len(b) > most {
			return BadRequest("", "form_too_large",
				"The non-file fields of the form have more than %d bytes in total.", maxFormFields)
		}
		out = append(out, b...)
		return nil
	})
	return out, err
}

// rest reads what follows the form, which may only be white space.
func (f *formReader) rest() error {
	var buf [64]byte
	for {
		n, err := f.in.Read(buf[:])
		f.at += int64(n)
		if len(bytes.Trim(buf[:n], "\r\n \t")) > 0 {
			return badForm("data follows its last boundary")
		}
		if err != nil {
			return err
		}
	}
}

// short distinguishes a truncated form from a failure to read it.
func (f *formReader) short(err error, what string) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
		return badForm(what)
	}
	return err
}

// formValue is a form field whose value may be replaced.
type formValue struct {
	name, value string
	at          Span
}

// Value returns the value of the model or of an end-user identifier, and whether the form has it.
func (f *Form) Value(name string) (string, bool) {
	for _, t := range f.texts {
		if t.name == name {
			return t.value, true
		}
	}
	return "", false
}

// rewrite is [Request.Rewrite] for forms, in which only the fields in formEdited can change.
func (f *Form) rewrite(edits []Edit) Body {
	values := map[string][]byte{}
	if f.named != "" {
		values["model"] = []byte(f.named)
	}
	for _, e := range edits {
		if formEdited[e.Name] && e.JSON != nil {
			l := lenient(e.JSON)
			if at, err := l.value(); err == nil && at.Len() >= 2 {
				values[e.Name] = appendUnquoted([]byte{}, e.JSON[at.Start+1:at.End-1])
			}
		}
	}
	out := Body{form: f}
	if _, has := f.Value("model"); !has && values["model"] != nil {
		out.splices = append(out.splices, splice{Span{}, f.part(values["model"])})
	}
	for _, t := range f.texts {
		if value := values[t.name]; value != nil {
			out.splices = append(out.splices, splice{t.at, value})
		}
	}
	return out
}

func (f *Form) length(list []splice) int64 {
	n := f.Size
	for _, s := range list {
		n += int64(len(s.text) - s.at.Len())
	}
	return n
}

func (f *Form) reader(list []splice) io.Reader {
	var parts []io.Reader
	from := int64(0)
	for _, s := range list {
		parts = append(parts, io.NewSectionReader(f.Source, from, int64(s.at.Start)-from), bytes.NewReader(s.text))
		from = int64(s.at.End)
	}
	rest := io.NewSectionReader(f.Source, from, f.Size-from)
	if parts == nil {
		return rest
	}
	return io.MultiReader(append(parts, rest)...)
}

// part returns a part that names the model, to be inserted before all others.
func (f *Form) part(model []byte) []byte {
	return append(append([]byte(f.lead), model...), "\r\n"...)
}
