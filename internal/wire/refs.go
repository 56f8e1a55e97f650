package wire

import (
	"bytes"
	"slices"
)

// RefKind is the kind of thing that a [Ref] names.
type RefKind string

// The kinds of things that a provider stores.
const (
	RefResponse     RefKind = "response"
	RefItem         RefKind = "item" // of the input or output of a response
	RefConversation RefKind = "conversation"
	RefFile         RefKind = "file"
	RefPrompt       RefKind = "prompt"
	RefVectorStore  RefKind = "vector_store"
	RefContainer    RefKind = "container"
	RefUploadPart   RefKind = "upload_part"
	RefSkill        RefKind = "skill"
)

// Ref is a mention of something stored at the provider. The request does not show whether the
// caller may use it.
type Ref struct {
	Kind RefKind
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

func (s *scanner) addRef(kind RefKind, id, param string) error {
	if len(s.req.Refs) == maxRefs {
		return BadRequest(param, "array_above_max_length", "The request refers to more than %d objects stored at the "+
			"provider.",
			maxRefs)
	}
	s.req.Refs = append(s.req.Refs, Ref{Kind: kind, ID: id, Param: param})
	return nil
}

// readRef reads the id of a stored thing.
func readRef(kind RefKind, param string) reader {
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
		if text := unquoted(s.buf[at.Start:at.End]); looksKept(text) {
			return s.addRef(RefFile, string(text), "")
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

// looksKept reports whether a string is just an id such as file-1a2B...
func looksKept(text []byte) bool {
	const least, most = 16, 64 // letters and digits after the prefix
	for _, prefix := range []string{"file-", "file_", "vs_", "cntr_"} {
		rest, ok := bytes.CutPrefix(text, []byte(prefix))
		if ok && len(rest) >= least && len(rest) <= most && !bytes.ContainsFunc(rest, notAlphanumeric) {
			return true
		}
	}
	return false
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

// keptBy maps the folded names of members that contain ids to the kind of thing they name.
// Providers spell them differently.
var keptBy = map[string]RefKind{
	"fileid": RefFile, "fileids": RefFile, "inputfileid": RefFile, "documentid": RefFile, "documentids": RefFile,
	"uploadid": RefFile, "cachedcontent": RefFile,
	"vectorstoreid": RefVectorStore, "vectorstoreids": RefVectorStore, "libraryid": RefVectorStore,
	"libraryids": RefVectorStore, "collectionid": RefVectorStore, "collectionids": RefVectorStore,
	"container": RefContainer, "containerid": RefContainer,
	"approvalrequestid": RefItem, "previousresponseid": RefConversation, "conversationid": RefConversation,
	"threadid": RefConversation, "promptid": RefPrompt, "skillid": RefSkill,
}

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
	kind := keptBy[string(folded)]
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
