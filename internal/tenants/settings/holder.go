package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Marshal returns a struct with Fields, itself or inside, as JSON: its own members, as encoding/json writes them, and
// the fields in the place of Fields. Other values are left to encoding/json.
func Marshal(v any) ([]byte, error) {
	of := reflect.Indirect(reflect.ValueOf(v))
	if !of.IsValid() || of.Kind() != reflect.Struct || !holds(of.Type()) {
		return json.Marshal(v)
	}
	return appendObject(nil, of)
}

// appendObject appends a struct with Fields, itself or inside. It writes members one by one, because a list may have
// thousands of such structs.
func appendObject(out []byte, v reflect.Value) ([]byte, error) {
	out = append(out, '{')
	var err error
	for _, s := range slotsOf(v.Type()) {
		one := v.FieldByIndex(s.Index)
		switch {
		case s.section != nil:
			set := one.Convert(reflect.TypeFor[map[string]json.RawMessage]()).Interface().(map[string]json.RawMessage)
			out = appendFields(out, s.section, set)
			continue
		case s.omitEmpty && emptyValue(one), s.omitZero && one.IsZero():
			continue
		}
		out = append(out, s.key...)
		if s.simple {
			out = append(appendSimple(out, one), ',')
			continue
		}
		out, err = appendMember(out, one, s.holds)
		if err != nil {
			return nil, err
		}
		out = append(out, ',')
	}
	return append(bytes.TrimRight(out, ","), '}'), nil
}

// appendMember appends the value of a member; holds is whether structs inside have Fields.
func appendMember(out []byte, v reflect.Value, holds bool) ([]byte, error) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return append(out, "null"...), nil
	case !holds:
		raw, err := marshal(v.Interface())
		return append(out, raw...), err
	case v.Kind() == reflect.Struct:
		return appendObject(out, v)
	case v.IsNil():
		return append(out, "null"...), nil
	}
	out = append(out, '[')
	var err error
	for i := range v.Len() {
		out, err = appendMember(out, v.Index(i), true)
		if err != nil {
			return nil, err
		}
		out = append(out, ',')
	}
	return append(bytes.TrimRight(out, ","), ']'), nil
}

// emptyValue reports whether encoding/json leaves out a value with omitempty.
func emptyValue(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// marshal is json.Marshal without escapes for HTML; who embeds the text in other JSON adds them.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Unmarshal is the inverse of Marshal; v is a pointer. It ignores unknown members, as encoding/json does.
func Unmarshal(raw []byte, v any) error {
	to, done := Open(v)
	err := json.Unmarshal(raw, to)
	if err == nil {
		done()
	}
	return err
}

// Open returns a pointer to a struct that any decoder of JSON fills, and a function that stores in v what it was filled
// with. It is v itself if v has no Fields.
func Open(v any) (to any, done func()) {
	into := reflect.ValueOf(v).Elem()
	if !holds(into.Type()) {
		return v, func() {}
	}
	from := reflect.New(shape(into.Type()))
	return from.Interface(), func() {
		into.SetZero()
		fill(into, from.Elem())
	}
}

// Merged returns a struct, as Marshal, with a merge patch of it applied: see Merge.
func Merged[V ~[]byte](v any, patch map[string]V) ([]byte, error) {
	old, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	var now map[string]json.RawMessage
	if err := json.Unmarshal(old, &now); err != nil {
		return nil, err
	}
	changes := make(map[string]json.RawMessage, len(patch))
	for name, raw := range patch {
		changes[name] = json.RawMessage(raw)
	}
	var section reflect.Type
	for _, s := range slotsOf(reflect.Indirect(reflect.ValueOf(v)).Type()) {
		section = cmp.Or(section, s.section)
	}
	return json.Marshal(Merge(section, now, changes))
}

var shapes sync.Map // reflect.Type -> reflect.Type

// shape returns a struct type whose members are those of t, with pointers to plain types in place of Fields, to decode.
func shape(t reflect.Type) reflect.Type { return onceFor(&shapes, t, makeShape) }

func makeShape(t reflect.Type) reflect.Type {
	var list []reflect.StructField
	for _, one := range slotsOf(t) {
		if one.section == nil {
			list = append(list, reflect.StructField{Type: inner(one.Type), Tag: one.Tag})
			continue
		}
		for _, f := range RuntimeFields(one.section) {
			list = append(list, member(one.section, f, reflect.PointerTo(plain(f.Type))))
		}
	}
	for i := range list {
		list[i].Name = "F" + strconv.Itoa(i)
	}
	return reflect.StructOf(list)
}

// inner is shape for the structs inside a member.
func inner(t reflect.Type) reflect.Type {
	switch {
	case !holds(t):
		return t
	case t.Kind() == reflect.Slice:
		return reflect.SliceOf(inner(t.Elem()))
	}
	return shape(t)
}

// slot is a member of a struct.
type slot struct {
	reflect.StructField
	key     []byte       // its name in JSON, with the colon
	section reflect.Type // of Fields
	holds   bool         // it has structs with Fields inside

	simple, omitEmpty, omitZero bool
}

var slots sync.Map // reflect.Type -> []slot

// slotsOf returns the members of a struct, with those of embedded structs.
func slotsOf(t reflect.Type) []slot { return onceFor(&slots, t, readSlots) }

func readSlots(t reflect.Type) (out []slot) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && f.IsExported() && f.Tag.Get("json") != "-" {
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, slot{
				StructField: f, key: append(mustMarshal(name), ':'), section: SectionOf(f.Type), holds: holds(f.Type),
				simple:    simple(f.Type),
				omitEmpty: strings.Contains(opts, "omitempty"), omitZero: strings.Contains(opts, "omitzero"),
			})
		}
	}
	return out
}

// holds reports whether a struct, or the structs of a list, have Fields, themselves or inside.
func holds(t reflect.Type) bool {
	if t.Kind() == reflect.Slice {
		return holds(t.Elem())
	}
	return t.Kind() == reflect.Struct && slices.ContainsFunc(slotsOf(t), func(s slot) bool {
		return s.section != nil || s.holds
	})
}

// fill copies a shape to the struct with Fields.
func fill(v, shaped reflect.Value) {
	n := 0
	for _, s := range slotsOf(v.Type()) {
		one := v.FieldByIndex(s.Index)
		if s.section == nil {
			fillMember(one, shaped.Field(n), s.holds)
			n++
			continue
		}
		one.Set(reflect.MakeMap(s.Type))
		for _, f := range RuntimeFields(s.section) {
			if as := shaped.Field(n); !as.IsNil() {
				one.SetMapIndex(reflect.ValueOf(f.Name), reflect.ValueOf(mustMarshal(as.Interface())))
			}
			n++
		}
	}
}

// fillMember copies a member.
func fillMember(to, from reflect.Value, holds bool) {
	switch {
	case !holds:
		to.Set(from)
	case to.Kind() == reflect.Struct:
		fill(to, from)
	case !from.IsNil():
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			fillMember(to.Index(i), from.Index(i), true)
		}
	}
}
