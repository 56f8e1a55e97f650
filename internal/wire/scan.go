package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// scanner is the state of one Scan.
type scanner struct {
	lexer
	req *Request
	// index holds the indexes of the arrays being read, outermost first, for the brackets in a
	// parameter's name.
	index [2]int

	maxTokens, maxCompletion int64 // -1 if not given
	tool                     tool
	item                     item  // of a Responses input
	block                    block // of a Messages request
	remote                   bool  // it names servers or containers of tools, whose calls are not bounded
	uses                     int64 // the most calls of its tools that the provider runs, -1 if unbounded
	mentions                 Mentions
	model                    string // in the path, for ScanFor
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// maxMembers bounds the top-level members; OpenAI has about 40.
const maxMembers = 1024

// maxNamesKept bounds the memory that a pooled scanner retains.
const maxNamesKept = 1024

// Scan reads a request body of ep once and returns what its cost depends on. body is retained, not
// copied, and must not be modified while the Request is in use. Every error is an [*Error] with
// status 400, except for an endpoint without a scanner.
//
// Documents that two readers could understand differently are refused: invalid JSON or UTF-8, a
// byte order mark, data after the document, a duplicate name in one object (however escaped), a
// name that differs from a priced one only in case or separators. Wrong types of priced members,
// integers out of range, and documents beyond lim are refused too.
func Scan(ep Endpoint, body []byte, lim Limits) (*Request, error) {
	traits := ep.Traits()
	if traits.fields == nil {
		return nil, fmt.Errorf("wire: no scanner for endpoint %q", ep)
	}
	if err := checkBytes(body); err != nil {
		return nil, err
	}
	lim = lim.withDefaults()
	s := scanners.Get().(*scanner)
	defer s.release()
	s.lexer = lexer{buf: body, depth: lim.MaxDepth, tokens: lim.MaxTokens, strict: true, names: s.names}
	s.maxTokens = -1
	s.maxCompletion = -1
	s.model = lim.model
	memory := new(struct { // one allocation
		Request
		members [8]member
		texts   [4]Text
	})
	s.req = &memory.Request
	*s.req = Request{
		Endpoint: ep, Body: body,
		OutputLimit: -1, N: 1, MaxToolCalls: -1, Dimensions: -1, Store: traits.stored,
		members: memory.members[:0], texts: memory.texts[:0],
	}
	if err := s.document(traits.fields); err != nil {
		return nil, s.refusal(err, lim)
	}
	if err := finish(s); err != nil {
		return nil, err
	}
	return s.req, nil
}

// ScanFor is [Scan] for a request whose path names the model: that model overrides the one in the
// body, and is in the Request's Body.
func ScanFor(ep Endpoint, model string, body []byte, lim Limits) (*Request, error) {
	lim.model = model
	r, err := Scan(ep, body, lim)
	if err != nil || r.Model == model {
		return r, err
	}
	return Scan(ep, r.Rewrite(Edit{Name: "model", JSON: appendQuoted(nil, model)}).Bytes(), lim)
}

// release returns s to the pool without references to the request.
func (s *scanner) release() {
	names := s.names[:cap(s.names)]
	clear(names)
	if len(names) > maxNamesKept {
		names = nil
	}
	*s = scanner{lexer: lexer{names: names[:0]}}
	scanners.Put(s)
}

// checkBytes refuses bodies that need not be parsed.
func checkBytes(body []byte) error {
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return BadRequest("", "", "The request body is empty; expected a JSON object.")
	}
	if bytes.HasPrefix(body, byteOrderMark) {
		return BadRequest("", "", "The request body begins with a byte order mark; send plain UTF-8.")
	}
	if !utf8.Valid(body) {
		return BadRequest("", "", "The request body is not valid UTF-8 (at byte %d).", invalidUTF8(body))
	}
	return nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8.
func invalidUTF8(b []byte) int {
	at := 0
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

func (s *scanner) document(known *fields) error {
	s.space()
	if s.peek() != '{' {
		return s.wrongType("", "an object")
	}
	r := s.req
	r.object.Start = s.pos
	err := s.object(func(name []byte) error {
		if len(r.members) == maxMembers {
			return BadRequest("", "", "The request body has more than %d fields.", maxMembers)
		}
		m := member{name: s.rawName, value: Span{Start: s.pos}}
		if err := s.member(known, name); err != nil {
			return err
		}
		m.value.End = s.pos
		r.members = append(r.members, m)
		return nil
	})
	if err != nil {
		return err
	}
	r.object.End = s.pos
	s.space()
	if s.pos < len(s.buf) {
		return errTrailing
	}
	return nil
}

// members reads the object at pos, which is the value of param.
func (s *scanner) members(param string, known *fields) error {
	if s.peek() != '{' {
		return s.wrongType(param, "an object")
	}
	return s.object(func(name []byte) error { return s.member(known, name) })
}

// objects reads the array at pos, which is the value of param. level is the number of arrays around
// it.
func (s *scanner) objects(param string, level int, read func() error) error {
	if s.peek() != '[' {
		return s.wrongType(param, "an array of objects")
	}
	return s.array(func(i int) error {
		s.index[level] = i
		return read()
	})
}

func (s *scanner) member(known *fields, name []byte) error {
	read, ok := known.read[string(name)]
	switch {
	case !ok:
		if twin := known.twin(name); twin != "" {
			return ambiguous(name, twin)
		}
		if known.other != nil {
			return known.other(s, name)
		}
		return s.walkMember(name)
	case read == nil:
		return s.skip()
	case s.peek() == 'n':
		return s.literal("null")
	}
	return read(s)
}

// MaxModel is how long the name of a model may be, in bytes, because it is kept in the ledger.
const MaxModel = 256

// badName reports whether a name is too long, or has characters that end a line or are invisible.
func badName(name string) bool {
	invisible := func(c rune) bool { return unicode.IsControl(c) || c == '\u2028' || c == '\u2029' }
	return len(name) > MaxModel || strings.ContainsFunc(name, invisible)
}

func badModel() *Error {
	return BadRequest("model", "invalid_value", "Invalid 'model': the name has control characters, or more than %d bytes.",
		MaxModel)
}

// finish checks what is known only after the whole request was read.
func finish(s *scanner) error {
	r, traits := s.req, s.req.Endpoint.Traits()
	switch {
	case r.Model == "" && s.model == "" && (traits.defaults == nil || !traits.defaults(r)):
		return missing("model")
	case badName(r.Model):
		return badModel()
	case s.maxTokens >= 0 && s.maxCompletion >= 0:
		return BadRequest("max_tokens", "invalid_parameter_combination",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case s.maxTokens >= 0:
		r.OutputLimit, r.OutputField = s.maxTokens, "max_tokens"
	case s.maxCompletion >= 0:
		r.OutputLimit, r.OutputField = s.maxCompletion, "max_completion_tokens"
	case r.OutputLimit >= 0:
		r.OutputField = "max_output_tokens"
	}
	if r.Endpoint.Created() {
		r.creation()
	}
	if traits.complete != nil {
		return traits.complete(s)
	}
	return nil
}

// needs returns the check that a request has an input, which is the value of param.
func needs(param string) func(*scanner) error {
	return func(s *scanner) error {
		if s.req.InputItems == 0 {
			return missing(param)
		}
		return nil
	}
}

// refusal converts a fault of the document to an error response.
func (s *scanner) refusal(err error, lim Limits) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, errDepth):
		return BadRequest("", "", "The request body is nested too deeply: more than %d levels.", lim.MaxDepth)
	case errors.Is(err, errTokens):
		return BadRequest("", "", "The request body has too many names and values: more than %d.", lim.MaxTokens)
	case errors.Is(err, errDuplicate):
		name := s.buf[s.rawName.Start:s.rawName.End]
		return BadRequest("", "duplicate_parameter", "The name %s appears twice in one object (at byte %d).", clip(name),
			s.pos)
	}
	hint := ""
	if errors.Is(err, errChar) {
		hint = ". JSON has double quotes around names and texts, true, false and null, no comma at an end, no comments"
	}
	return BadRequest("", "", "We could not parse the JSON body of your request: %v (at byte %d)%s.", err, s.pos, hint)
}

// ambiguous refuses a name that a lax reader takes for another.
func ambiguous(name []byte, twin string) *Error {
	return BadRequest(twin, "ambiguous_parameter",
		"The name '%s' differs from '%s' only in spelling, and some providers treat the two as the same. Write '%s', or "+
			"remove it.",
		clip(name), twin, twin)
}

func missing(param string) *Error {
	return BadRequest(param, "missing_required_parameter", "Missing required parameter: '%s'.", param)
}

func clip(text []byte) string {
	const most = 64
	if len(text) <= most {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:most]), "") + "..."
}

// reader reads the value of a member into the request being scanned. It is never called on null,
// which counts as absent.
type reader func(s *scanner) error

// fields are the known members of one kind of object. Names mapped to nil are known and free.
type fields struct {
	read map[string]reader
	// folded maps the folded form of a priced name to the name.
	folded map[string]string
	// other reads the value of an unknown member; nil records what it mentions.
	other func(s *scanner, name []byte) error
}

// maxFolded bounds the folded form of priced names, so that folding needs only a small array.
const maxFolded = 32

// newFields returns the fields with readers and, separated by spaces, the free ones.
func newFields(read map[string]reader, other func(*scanner, []byte) error, free ...string) *fields {
	f := &fields{read: read, folded: make(map[string]string), other: other}
	for name := range read {
		var buf [maxFolded]byte
		folded, ok := fold(buf[:0], []byte(name))
		if !ok {
			panic("wire: field name cannot be folded: " + name)
		}
		f.folded[string(folded)] = name
	}
	for name := range strings.FieldsSeq(strings.Join(free, " ")) {
		read[name] = nil
	}
	return f
}

// twin returns the priced name that differs from name only in spelling, or "".
func (f *fields) twin(name []byte) string {
	var buf [maxFolded]byte
	folded, ok := fold(buf[:0], name)
	if !ok {
		return ""
	}
	return f.folded[string(folded)]
}

// fold appends to dst a normalized name, to detect names that a lax decoder may equate: lower case,
// without the separators in which snake case and camel case differ, and with the letters that some
// case mappings equate with ASCII ones (the Kelvin sign, the long s, the dotted and dotless i). It
// returns false for names that contain anything else or do not fit in dst: none of ours folds to
// those.
func fold(dst, name []byte) ([]byte, bool) {
	for _, r := range string(name) {
		switch {
		case r == '_' || r == '-':
			continue
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		case r == '\u212A':
			r = 'k'
		case r == '\u017F':
			r = 's'
		case r == '\u0130' || r == '\u0131':
			r = 'i'
		case r >= 0x80:
			return nil, false
		}
		if len(dst) == cap(dst) {
			return nil, false
		}
		dst = append(dst, byte(r))
	}
	return dst, true
}
