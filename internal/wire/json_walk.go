package wire

import "slices"

// The functions below read JSON member by member, in place, to convert it to another format. They
// are lenient: they accept any white space, duplicate names and unpaired surrogates.

// EachMember calls member with every name and raw value of a JSON object, in order; both are valid
// only during the call. It returns the error of member, or a syntax error if object is not a JSON
// object.
func EachMember(object []byte, member func(name, value []byte) error) error {
	l := lenient(object)
	return l.object(func(name []byte) error {
		at, err := l.value()
		if err != nil {
			return err
		}
		return member(name, object[at.Start:at.End:at.End])
	})
}

// EachItem calls item with every raw value of a JSON array, in order. It returns the error of item,
// or a syntax error if array is not a JSON array.
func EachItem(array []byte, item func(i int, value []byte) error) error {
	l := lenient(array)
	return l.array(func(i int) error {
		at, err := l.value()
		if err != nil {
			return err
		}
		return item(i, array[at.Start:at.End:at.End])
	})
}

// AppendQuoted appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte { return appendQuoted(dst, s) }

// Word returns the text of a raw JSON string, truncated to 512 bytes, and "" for any other value.
func Word(raw []byte) string {
	if !IsString(raw) {
		return ""
	}
	raw = raw[1 : len(raw)-1]
	return string(appendUnquoted(nil, raw[:min(len(raw), maxWord)]))
}

// IsString reports whether a raw JSON value is a string.
func IsString(raw []byte) bool { return len(raw) >= 2 && raw[0] == '"' }

// Member returns the raw value of a top-level member; nil if the request does not have it or has
// null.
func (r *Request) Member(name string) []byte {
	k := r.find(name)
	if k < 0 {
		return nil
	}
	v := r.Raw(r.members[k].value)
	if string(v) == "null" {
		return nil
	}
	return v
}

// OfChat reports whether name is a member of a chat completion request.
func OfChat(name string) bool {
	_, ok := chatFields.read[name]
	return ok
}

// AppendEcho appends the members of a Responses request that its response repeats, each preceded by
// a comma, except those named in except.
func AppendEcho(dst, request []byte, except ...string) []byte {
	given := map[string][]byte{}
	l := lenient(request)
	_ = l.object(func(name []byte) error { // what cannot be read is left out
		v, err := l.value()
		given[string(name)] = request[v.Start:v.End]
		return err
	})
	for _, m := range echoed {
		value := given[m[0]]
		if value == nil || string(value) == "null" {
			value = []byte(m[1])
		}
		if slices.Contains(except, m[0]) {
			continue
		}
		dst = append(append(append(append(dst, `,"`...), m[0]...), `":`...), value...)
	}
	return dst
}
