package wire

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math"
)

// lexer reads one JSON document from a byte slice, in place. A strict lexer accepts exactly what
// jsontext accepts by default, within its bounds: it refuses duplicate names in an object and
// unpaired surrogates (its caller checks the UTF-8 of the whole document beforehand). A lenient one
// accepts both; it is for data from providers.
//
// Methods leave pos after what they read, or at the fault if they fail.
type lexer struct {
	buf    []byte
	pos    int
	depth  int // remaining nesting depth
	tokens int // remaining names and values
	strict bool

	rawName Span // the last name, with its quotes

	// names are the decoded names seen so far in each object being read, innermost last.
	names [][]byte
}

// Faults of a document. The lexer's pos is their position.
var (
	errEnd       = errors.New("the document ends too early")
	errChar      = errors.New("unexpected character")
	errControl   = errors.New("control character in a string")
	errEscape    = errors.New("invalid escape in a string")
	errSurrogate = errors.New("unpaired surrogate escape in a string")
	errNumber    = errors.New("invalid number")
	errDuplicate = errors.New("name appears twice in one object")
	errDepth     = errors.New("too deeply nested")
	errTokens    = errors.New("too many names and values")
	errTrailing  = errors.New("data after the document")
)

// manyNames is the number of names in one object from which on hashes replace a linear search of
// all names so far.
const manyNames = 32

// maxLenientDepth bounds the nesting of data from providers, and so our stack.
const maxLenientDepth = 10_000

// byteOrderMark is what some programs write before UTF-8 text.
var byteOrderMark = []byte("\xEF\xBB\xBF")

// lenient returns a lexer for data from a provider, whose length the receiver has bounded. It starts
// behind a byte order mark and white space.
func lenient(b []byte) lexer {
	l := lexer{buf: b, depth: maxLenientDepth, tokens: math.MaxInt}
	if bytes.HasPrefix(b, byteOrderMark) {
		l.pos = len(byteOrderMark)
	}
	l.space()
	return l
}

// documents reads an object, and those that follow it: some servers write one for each part of an
// answer.
func (l *lexer) documents(member func(name []byte) error) error {
	err := l.object(member)
	for l.space(); err == nil && l.peek() == '{'; l.space() {
		err = l.object(member)
	}
	return err
}

func (l *lexer) space() {
	for l.pos < len(l.buf) {
		switch l.buf[l.pos] {
		case ' ', '\t', '\r', '\n':
			l.pos++
		default:
			return
		}
	}
}

// peek returns the byte at pos, or 0 at the end. A NUL is not valid anywhere in a document, so the
// two need not be distinguished until the error is reported.
func (l *lexer) peek() byte {
	if l.pos < len(l.buf) {
		return l.buf[l.pos]
	}
	return 0
}

// unexpected returns the fault for the byte at pos.
func (l *lexer) unexpected() error {
	if l.pos >= len(l.buf) {
		return errEnd
	}
	return errChar
}

// count deducts one name or value from the allowance.
func (l *lexer) count() error {
	l.tokens--
	if l.tokens < 0 {
		return errTokens
	}
	return nil
}

// object reads the object at pos and calls field with pos at each value, which field must read. The
// name is valid only during the call.
func (l *lexer) object(field func(name []byte) error) error {
	if err := l.open('{'); err != nil {
		return err
	}
	first := len(l.names)
	var set map[uint64]struct{}
	for n := 0; ; n++ {
		if more, err := l.next(n, '}'); !more {
			l.names = l.names[:first]
			return err
		}
		name, err := l.name(first, &set)
		if err != nil {
			return err
		}
		if err := field(name); err != nil {
			return err
		}
	}
}

// array reads the array at pos and calls item with pos at each element, which item must read.
func (l *lexer) array(item func(i int) error) error {
	if err := l.open('['); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if more, err := l.next(i, ']'); !more {
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
}

func (l *lexer) open(bracket byte) error {
	if l.peek() != bracket {
		return l.unexpected()
	}
	if err := l.count(); err != nil {
		return err
	}
	if l.depth == 0 {
		return errDepth
	}
	l.depth--
	l.pos++
	return nil
}

// next advances to the nth element of an object or array. At the closing bracket, which it skips,
// and on a fault, more is false.
func (l *lexer) next(n int, closing byte) (more bool, err error) {
	l.space()
	c := l.peek()
	if c == closing {
		l.pos++
		l.depth++
		return false, nil
	}
	if n == 0 {
		return true, nil
	}
	if c != ',' {
		return false, l.unexpected()
	}
	l.pos++
	l.space()
	return true, nil
}

// name reads a member's name and the colon after it, and checks that it is new in the object, whose
// names start at l.names[first]. set belongs to the object and is used once it has many names.
func (l *lexer) name(first int, set *map[uint64]struct{}) ([]byte, error) {
	start := l.pos
	if err := l.string(); err != nil {
		return nil, err
	}
	l.rawName = Span{start, l.pos}
	name := l.buf[start+1 : l.pos-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = appendUnquoted(nil, name)
	}
	if l.strict && !l.newName(name, first, set) {
		l.pos = start
		return nil, errDuplicate
	}
	l.space()
	if l.peek() != ':' {
		return nil, l.unexpected()
	}
	l.pos++
	l.space()
	return name, nil
}

// newName records name and reports whether it is new in the object. An object with many names has a
// set of hashes, so that the time stays linear; if a hash is already present, the names are
// compared.
func (l *lexer) newName(name []byte, first int, set *map[uint64]struct{}) bool {
	seen := l.names[first:]
	if *set != nil {
		hash, before := maphash.Bytes(nameSeed, name), len(*set)
		(*set)[hash] = struct{}{}
		if len(*set) > before {
			seen = nil
		}
	}
	for _, other := range seen {
		if string(other) == string(name) {
			return false
		}
	}
	l.names = append(l.names, name)
	if len(seen)+1 == manyNames && *set == nil {
		*set = make(map[uint64]struct{}, 2*manyNames)
		for _, other := range l.names[first:] {
			(*set)[maphash.Bytes(nameSeed, other)] = struct{}{}
		}
	}
	return true
}

var nameSeed = maphash.MakeSeed()

// skip reads any value at pos.
func (l *lexer) skip() error {
	switch l.peek() {
	case '"':
		return l.string()
	case '{':
		return l.object(l.skipMember)
	case '[':
		return l.array(l.skipItem)
	case 't':
		return l.literal("true")
	case 'f':
		return l.literal("false")
	case 'n':
		return l.literal("null")
	}
	return l.number()
}

func (l *lexer) skipMember([]byte) error { return l.skip() }
func (l *lexer) skipItem(int) error      { return l.skip() }

// value reads any value at pos and returns its span.
func (l *lexer) value() (Span, error) {
	start := l.pos
	err := l.skip()
	return Span{start, l.pos}, err
}

func (l *lexer) literal(text string) error {
	if err := l.count(); err != nil {
		return err
	}
	for i := range len(text) {
		if l.peek() != text[i] {
			return l.unexpected()
		}
		l.pos++
	}
	return nil
}

func (l *lexer) number() error {
	if err := l.count(); err != nil {
		return err
	}
	return l.digits()
}

// digits reads a number without counting it.
func (l *lexer) digits() error {
	b, i := l.buf, l.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := i
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	if i == whole || b[whole] == '0' && i > whole+1 {
		return l.badNumber(i, whole)
	}
	if i < len(b) && b[i] == '.' {
		i++
		start := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		if i == start {
			return l.badNumber(i, start)
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		if i == start {
			return l.badNumber(i, start)
		}
	}
	l.pos = i
	return nil
}

// badNumber returns the fault of a number whose digits at start end at i. If it does not even start
// like a number, the fault is an unexpected character.
func (l *lexer) badNumber(i, start int) error {
	if i == l.pos {
		return l.unexpected()
	}
	l.pos = i
	if i >= len(l.buf) && i == start {
		return errEnd
	}
	return errNumber
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
