package wire

import (
	"errors"
	"strings"
)

// Mentions is what [ScanMentions] found in a request about something that a provider stores.
type Mentions struct {
	// Refs are the objects it names. They may belong to anyone.
	Refs []Ref
	// BuiltinTools are the types of tools in its items that the provider runs.
	BuiltinTools []string
	// Items is the number of bytes of the items that it adds to a conversation, an upper bound of
	// the tokens of their text. The size of their Pictures and Documents is unknown.
	Items               int64
	Pictures, Documents int64
	// Purpose is that of a file to be created, MemoryLimit the size of a container; "" if not
	// given.
	Purpose, MemoryLimit string
}

// mentionFields are the members of such requests. Those with nil contain the caller's own words;
// all others are searched for ids.
var mentionFields = newFields(map[string]reader{
	"items":        readMentionedItems,
	"files":        readMentionedFiles,
	"file_id":      readRef(ObjectFile, "file_id"),
	"part_ids":     readPartIDs,
	"purpose":      readWord("purpose", func(s *scanner) *string { return &s.mentions.Purpose }),
	"memory_limit": readWord("memory_limit", func(s *scanner) *string { return &s.mentions.MemoryLimit }),
}, nil, "attributes description filename filters metadata mime_type name query")

var mentionedFileFields = newFields(map[string]reader{
	"file_id": readRef(ObjectFile, "files[].file_id"),
}, nil, "attributes")

// ScanMentions reads a JSON body of an endpoint that [Scan] does not support, equally strictly.
// Every error is an [*Error] with status 400. An empty body mentions nothing.
func ScanMentions(body []byte, lim Limits) (Mentions, error) {
	if len(body) == 0 {
		return Mentions{}, nil
	}
	if err := checkBytes(body); err != nil {
		return Mentions{}, err
	}
	lim = lim.withDefaults()
	s := scanners.Get().(*scanner)
	defer s.release()
	s.lexer = lexer{buf: body, depth: lim.MaxDepth, tokens: lim.MaxTokens, strict: true, names: s.names}
	s.req = &Request{Body: body}
	if err := s.document(mentionFields); err != nil {
		return Mentions{}, itemsOf(s.refusal(err, lim))
	}
	m := s.mentions
	m.Refs = s.req.Refs
	m.BuiltinTools = s.req.BuiltinTools
	for i := range m.Refs {
		m.Refs[i].Param = itemsParam(m.Refs[i].Param)
		m.count(m.Refs[i])
	}
	for i := range s.req.Messages {
		m.Pictures += int64(len(s.req.Messages[i].Images))
		m.Documents += int64(len(s.req.Messages[i].Files))
	}
	return m, nil
}

func (m *Mentions) count(r Ref) {
	switch {
	case m.Items == 0 || r.Kind != ObjectFile:
	case r.Picture:
		m.Pictures++
	default:
		m.Documents++
	}
}

// itemsOf renames the parameter of an error to match the request: items of a conversation are read
// like the input of a response.
func itemsOf(e *Error) *Error {
	if param := itemsParam(e.Param); param != e.Param {
		named := *e
		named.Param, named.Message = param, strings.ReplaceAll(e.Message, e.Param, param)
		return &named
	}
	return e
}

func itemsParam(param string) string {
	if rest, ok := strings.CutPrefix(param, "input"); ok && (rest == "" || rest[0] == '[') {
		return "items" + rest
	}
	return param
}

func readMentionedItems(s *scanner) error {
	start := s.pos
	err := readItems(s)
	s.mentions.Items = int64(s.pos - start)
	return err
}

func readMentionedFiles(s *scanner) error {
	return s.objects("files", 0, func() error { return s.members("files[]", mentionedFileFields) })
}

func readPartIDs(s *scanner) error {
	ids, err := s.words("part_ids")
	for _, id := range ids {
		err = errors.Join(err, s.addRef(ObjectUploadPart, id, "part_ids"))
	}
	return err
}
