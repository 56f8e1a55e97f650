package wire

import (
	"bytes"
	"io"
	"slices"
)

// includeUsage is the only name of an [Edit] that is not a top-level member.
const includeUsage = "stream_options.include_usage"

// Edit sets one member of a request.
type Edit struct {
	// Name is a top-level member, or "stream_options.include_usage".
	Name string
	// JSON is the new value, or nil to remove a top-level member.
	JSON []byte
}

// splice replaces the bytes of at with text.
type splice struct {
	at   Span
	text []byte
}

// Rewrite returns the body with edits applied. An existing member keeps its position and spelling
// and gets the new value; a new one is added at the end of its object. All other bytes are
// unchanged. Of two edits of the same name the later one counts, and an edit of stream_options
// overrides one of its member. The request itself does not change.
func (r *Request) Rewrite(edits ...Edit) Body {
	if r.Form != nil {
		return r.Form.rewrite(edits)
	}
	var list []splice
	var added []byte // members to add at the end of the document
	for i, e := range edits {
		name := e.Name
		switch {
		case overruled(edits, i), name == includeUsage && e.JSON == nil:
			continue
		case name == includeUsage:
			name = "stream_options"
			e.JSON = r.withUsage(e.JSON, &list)
			if e.JSON == nil {
				continue
			}
		}
		k := r.find(name)
		switch {
		case k >= 0 && e.JSON != nil:
			list = append(list, splice{r.members[k].value, e.JSON})
		case k >= 0:
			list = append(list, splice{r.cut(k, edits), nil})
		case e.JSON != nil:
			added = appendMember(added, name, e.JSON)
		}
	}
	if added != nil {
		list = append(list, r.add(added, edits))
	}
	return r.apply(list)
}

// overruled reports whether another edit overrides edit i.
func overruled(edits []Edit, i int) bool {
	for j, e := range edits {
		if j > i && e.Name == edits[i].Name {
			return true
		}
		if edits[i].Name == includeUsage && e.Name == "stream_options" {
			return true
		}
	}
	return false
}

// find returns the index of a top-level member, or -1.
func (r *Request) find(name string) int {
	return slices.IndexFunc(r.members, func(m member) bool {
		raw := r.Raw(m.name)
		raw = raw[1 : len(raw)-1]
		if bytes.IndexByte(raw, '\\') >= 0 {
			raw = appendUnquoted(nil, raw)
		}
		return string(raw) == name
	})
}

func appendMember(dst []byte, name string, value []byte) []byte {
	if dst != nil {
		dst = append(dst, ',')
	}
	dst = appendQuoted(dst, name)
	dst = append(dst, ':')
	return append(dst, value...)
}

// withUsage sets include_usage inside an existing stream_options, or returns a new stream_options
// to set.
func (r *Request) withUsage(value []byte, list *[]splice) []byte {
	k := r.find("stream_options")
	if k < 0 || r.Body[r.members[k].value.Start] != '{' {
		return slices.Concat([]byte(`{"include_usage":`), value, []byte(`}`))
	}
	l := lenient(r.Body)
	l.pos = r.members[k].value.Start
	var at Span
	last, count := l.pos+1, 0 // where to add a member, and after how many
	err := l.object(func(name []byte) error {
		v, err := l.value()
		if string(name) == "include_usage" {
			at = v
		}
		last, count = v.End, count+1
		return err
	})
	if err != nil {
		panic("wire: stream_options cannot be read again: " + err.Error())
	}
	if !at.IsZero() {
		*list = append(*list, splice{at, value})
		return nil
	}
	var text []byte
	if count > 0 {
		text = append(text, ',')
	}
	text = append(text, `"include_usage":`...)
	*list = append(*list, splice{Span{last, last}, append(text, value...)})
	return nil
}

// removed reports whether edits remove member k.
func (r *Request) removed(k int, edits []Edit) bool {
	for i, e := range edits {
		if e.JSON == nil && e.Name != includeUsage && !overruled(edits, i) && r.find(e.Name) == k {
			return true
		}
	}
	return false
}

// cut returns the span of member k including one comma: the one before it, or, if no member before
// it remains, the one after it.
func (r *Request) cut(k int, edits []Edit) Span {
	first := 0
	for first < len(r.members) && r.removed(first, edits) {
		first++
	}
	switch {
	case k > first:
		return Span{r.members[k-1].value.End, r.members[k].value.End}
	case k+1 < len(r.members):
		return Span{r.members[k].name.Start, r.members[k+1].name.Start}
	}
	return Span{r.members[k].name.Start, r.members[k].value.End}
}

func (r *Request) add(added []byte, edits []Edit) splice {
	at := r.object.Start + 1
	for k := range r.members {
		at = r.members[k].value.End
		if !r.removed(k, edits) && added[0] != ',' {
			added = append([]byte{','}, added...)
		}
	}
	return splice{Span{at, at}, added}
}

func (r *Request) apply(list []splice) Body {
	if len(list) == 0 {
		return Body{parts: [][]byte{r.Body}}
	}
	slices.SortStableFunc(list, func(a, b splice) int { return a.at.Start - b.at.Start })
	parts := make([][]byte, 0, 2*len(list)+1)
	from := 0
	for _, s := range list {
		parts = append(parts, r.Body[from:s.at.Start:s.at.Start], s.text)
		from = s.at.End
	}
	return Body{parts: append(parts, r.Body[from:])}
}

// Body is a request body in pieces: the received bytes and what was spliced into them. It is
// read-only and shares memory with the [Request].
type Body struct {
	parts   [][]byte
	form    *Form    // instead of parts
	splices []splice // of the form, in order
}

// Type returns the Content-Type: that of the original form, or JSON.
func (b Body) Type() string {
	if b.form != nil {
		return b.form.Type
	}
	return "application/json"
}

// Len returns the length in bytes.
func (b Body) Len() int64 {
	if b.form != nil {
		return b.form.length(b.splices)
	}
	var n int64
	for _, part := range b.parts {
		n += int64(len(part))
	}
	return n
}

// Reader returns a new reader of the whole body: a *bytes.Reader if nothing was edited.
func (b Body) Reader() io.Reader {
	if b.form != nil {
		return b.form.reader(b.splices)
	}
	if len(b.parts) == 1 {
		return bytes.NewReader(b.parts[0])
	}
	return &bodyReader{rest: b.parts}
}

// Bytes returns the body in one piece, which is the original if nothing was edited. It must not be
// called for forms.
func (b Body) Bytes() []byte {
	if len(b.parts) == 1 {
		return b.parts[0]
	}
	return slices.Concat(b.parts...)
}

type bodyReader struct {
	rest [][]byte
	done int // bytes of rest[0] already read
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n := 0
	for len(r.rest) > 0 {
		c := copy(p[n:], r.rest[0][r.done:])
		n += c
		r.done += c
		if r.done < len(r.rest[0]) {
			return n, nil
		}
		r.rest, r.done = r.rest[1:], 0
	}
	r.rest = nil // an empty slice would retain the pieces
	return n, io.EOF
}

// WriteTo implements io.WriterTo: it writes the pieces without copying them.
func (r *bodyReader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for ; len(r.rest) > 0; r.rest, r.done = r.rest[1:], 0 {
		if r.done == len(r.rest[0]) {
			continue
		}
		n, err := w.Write(r.rest[0][r.done:])
		total += int64(n)
		r.done += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
