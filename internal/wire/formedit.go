package wire

import (
	"bytes"
	"io"
)

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
