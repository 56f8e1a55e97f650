package wire

// reader reads the value of a member into the request being scanned. It is
// never called on null, which counts as absent.
type reader func(s *scanner) error

// fields are the members of one kind of object that we know. Names mapped to
// nil are known and cost nothing.
type fields struct {
	read map[string]reader
	// folded maps the folded form of a priced name to the name.
	folded map[string]string
	// other reads the value of a member we do not know; nil notes what it mentions.
	other func(s *scanner, name []byte) error
}

// maxFolded bounds the folded form of priced names, so that folding needs no
// memory but a small array.
const maxFolded = 32

func newFields(read map[string]reader, other func(*scanner, []byte) error) *fields {
	f := &fields{read: read, folded: make(map[string]string), other: other}
	for name, r := range read {
		if r == nil {
			continue
		}
		var buf [maxFolded]byte
		folded, ok := fold(buf[:0], []byte(name))
		if !ok {
			panic("wire: field name cannot be folded: " + name)
		}
		f.folded[string(folded)] = name
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

// fold appends to dst what a lax decoder may take name for: lower case,
// without the separators that snake case and camel case differ in, and with
// the letters that some case mappings equate with ASCII ones (the Kelvin sign,
// the long s, the dotted and dotless i). It gives up on names that hold
// anything else or outgrow dst: none of ours folds to those.
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
