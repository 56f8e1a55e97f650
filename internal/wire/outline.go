package wire

// Outline keeps the part of a JSON answer written to it that [ParseUsage] and [ParseCreated] read:
// everything except long strings and the numbers in arrays. It stops at 64 KiB. The zero value is
// ready for use.
type Outline struct {
	buf     []byte
	arrays  []bool // of each open object or array: whether it is an array
	quoted  bool
	escaped bool // the previous byte started an escape
	from    int  // start of the current string in buf
	long    bool // it is too long to keep
}

const (
	outlineMost   = 64 << 10 // bytes of an outline
	outlineString = 1 << 10  // bytes of a string in it
)

// Write implements io.Writer; it never fails.
func (o *Outline) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case len(o.buf) >= outlineMost:
			return len(p), nil
		case o.quoted:
			o.string(b)
		default:
			o.structure(b)
		}
	}
	return len(p), nil
}

// Bytes returns the outline: a JSON document once the answer is complete, with "" for each long
// string.
func (o *Outline) Bytes() []byte { return o.buf }

func (o *Outline) string(b byte) {
	ends := b == '"' && !o.escaped
	o.escaped = b == '\\' && !o.escaped
	o.long = o.long || len(o.buf)-o.from > outlineString
	switch {
	case !o.long:
		o.buf = append(o.buf, b)
	case ends:
		o.buf = append(o.buf[:o.from], `""`...)
	}
	o.quoted = !ends
}

func (o *Outline) structure(b byte) {
	last := byte(0)
	if len(o.buf) > 0 {
		last = o.buf[len(o.buf)-1]
	}
	within := len(o.arrays) > 0 && o.arrays[len(o.arrays)-1]
	switch b {
	case '"':
		o.quoted = true
		o.from = len(o.buf)
		o.long = false
	case '{', '[':
		o.arrays = append(o.arrays, b == '[')
	case '}', ']':
		o.arrays = o.arrays[:max(len(o.arrays)-1, 0)]
		if within && last == ',' { // of numbers that were left out
			o.buf = o.buf[:len(o.buf)-1]
		}
	case ',':
		if within && (last == '[' || last == ',') {
			return
		}
	default:
		if within {
			return
		}
	}
	o.buf = append(o.buf, b)
}
