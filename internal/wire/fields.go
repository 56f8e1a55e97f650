package wire

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
