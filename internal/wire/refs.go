package wire

import (
	"bytes"
	"slices"
)

// Ref is a mention of something stored at the provider. The request does not show whether the
// caller may use it.
type Ref struct {
	Kind ObjectKind
	ID   string
	// Param is the member that names it.
	Param string
	// Reasoning means that it is an item of that type; the request may contain all of its visible
	// content.
	Reasoning bool
	// Picture means that a file is shown to the model as a picture, Tool that it is for a tool of
	// the provider.
	Picture, Tool bool
}

// maxRefs bounds the lookups for one request.
const maxRefs = 2048

func (s *scanner) addRef(kind ObjectKind, id, param string) error {
	if len(s.req.Refs) == maxRefs {
		return BadRequest(param, "array_above_max_length", "The request refers to more than %d objects stored at the "+
			"provider.",
			maxRefs)
	}
	s.req.Refs = append(s.req.Refs, Ref{Kind: kind, ID: id, Param: param})
	return nil
}

func readRef(kind ObjectKind, param string) reader {
	return func(s *scanner) error {
		id, err := s.word(param)
		if err != nil {
			return err
		}
		return s.addRef(kind, id, s.param(param))
	}
}

// walk reads any value and records what is mentioned in it, at any depth: by the usual names of
// ids, and in strings that look like an id.
func (s *scanner) walk() error {
	switch s.peek() {
	case '{':
		return s.object(s.walkMember)
	case '[':
		return s.array(func(int) error { return s.walk() })
	case '"':
		at, err := s.value()
		if err != nil {
			return err
		}
		text := unquoted(s.buf[at.Start:at.End])
		if kind := kindByID(text); kind != "" {
			return s.addRef(kind, string(text), "")
		}
		return nil
	}
	return s.skip()
}

// unquoted decodes a raw string; one with escapes only up to the length of an id.
func unquoted(raw []byte) []byte {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return appendUnquoted(nil, inner[:min(len(inner), maxWord)])
}

// kindByID returns the kind of a string that is just an id such as file-1a2B...; "" for any other.
func kindByID(text []byte) ObjectKind {
	const least, most = 16, 64 // letters and digits after the prefix
	for _, o := range objects {
		for _, prefix := range o.IDs {
			rest, ok := bytes.CutPrefix(text, []byte(prefix))
			if ok && len(rest) >= least && len(rest) <= most && !bytes.ContainsFunc(rest, notAlphanumeric) {
				return o.Kind
			}
		}
	}
	return ""
}

func notAlphanumeric(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// readSchema reads a value of a tool that may be a schema, in which names and examples of ids refer
// to nothing: for the caller's own tools, its mentions are dropped.
func readSchema(s *scanner) error {
	if s.tool.kind == "function" {
		return s.skip()
	}
	s.tool.refs[0] = len(s.req.Refs)
	err := s.walk()
	s.tool.refs[1] = len(s.req.Refs)
	return err
}

// dropSchema drops what the schema of a tool mentions.
func (t *tool) dropSchema(r *Request) {
	r.Refs = slices.Delete(r.Refs, t.refs[0], t.refs[1])
}

// kindByMember maps the folded names of members that hold ids to the kind they name. Providers spell
// them differently.
var kindByMember = func() map[string]ObjectKind {
	kinds := map[string]ObjectKind{}
	for _, o := range objects {
		for _, name := range o.Members {
			kinds[name] = o.Kind
		}
	}
	return kinds
}()

// walkUnasked walks a value whose ids the request does not use.
func (s *scanner) walkUnasked() error {
	before := len(s.req.Refs)
	err := s.walk()
	s.req.Refs = s.req.Refs[:before]
	return err
}

// walkMember walks the value of a member. A cache mark counts anywhere.
func (s *scanner) walkMember(name []byte) error {
	var buf [maxFolded]byte
	folded, _ := fold(buf[:0], name)
	if string(folded) == "cachecontrol" {
		return readCacheControl(s)
	}
	kind := kindByMember[string(folded)]
	if kind == "" {
		return s.walk()
	}
	param := clip(name)
	switch s.peek() {
	case '"':
		return readRef(kind, param)(s)
	case '[':
		return s.array(func(int) error {
			if s.peek() == '"' {
				return readRef(kind, param)(s)
			}
			return s.walk()
		})
	}
	return s.walk()
}
