package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"sync"
)

// Marshal returns a struct with Fields as one JSON object: its own members, as encoding/json writes them, and the
// fields in the place of Fields.
func Marshal(v any) ([]byte, error) {
	from := reflect.Indirect(reflect.ValueOf(v))
	to := reflect.New(shape(from.Type(), false)).Elem()
	move(from, to, true)
	return marshal(to.Interface())
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
	from := reflect.New(shape(into.Type(), true))
	return from.Interface(), func() {
		into.SetZero()
		move(into, from.Elem(), false)
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

// shapeKey identifies the struct that has the JSON form of another one with Fields, for decoding or encoding.
type shapeKey struct {
	of     reflect.Type
	decode bool
}

var shapes sync.Map // shapeKey -> reflect.Type

// shape returns a struct type whose members are those of t, with members in place of Fields: raw JSON to encode,
// pointers to plain types to decode.
func shape(t reflect.Type, decode bool) reflect.Type {
	key := shapeKey{t, decode}
	if made, ok := shapes.Load(key); ok {
		return made.(reflect.Type)
	}
	var list []reflect.StructField
	for _, one := range slotsOf(t) {
		if one.section == nil {
			list = append(list, reflect.StructField{Type: inner(one.Type, decode), Tag: one.Tag})
			continue
		}
		for _, f := range RuntimeFields(one.section) {
			as := reflect.TypeFor[json.RawMessage]()
			if decode {
				as = reflect.PointerTo(plain(f.Type))
			}
			list = append(list, member(one.section, f, as))
		}
	}
	for i := range list {
		list[i].Name = "F" + strconv.Itoa(i)
	}
	made := reflect.StructOf(list)
	shapes.Store(key, made)
	return made
}

// inner is shape for the structs inside a member.
func inner(t reflect.Type, decode bool) reflect.Type {
	switch {
	case !holds(t):
		return t
	case t.Kind() == reflect.Slice:
		return reflect.SliceOf(inner(t.Elem(), decode))
	}
	return shape(t, decode)
}

// slot is a member of a struct.
type slot struct {
	reflect.StructField
	section reflect.Type // of Fields
	holds   bool         // it has structs with Fields inside
}

var slots sync.Map // reflect.Type -> []slot

// slotsOf returns the members of a struct, with those of embedded structs.
func slotsOf(t reflect.Type) []slot {
	if cached, ok := slots.Load(t); ok {
		return cached.([]slot)
	}
	var out []slot
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && f.IsExported() && f.Tag.Get("json") != "-" {
			out = append(out, slot{f, SectionOf(f.Type), holds(f.Type)})
		}
	}
	slots.Store(t, out)
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

// move copies a struct with Fields to its shape, or back.
func move(v, shaped reflect.Value, pack bool) {
	n := 0
	for _, s := range slotsOf(v.Type()) {
		one := v.FieldByIndex(s.Index)
		if s.section == nil {
			moveOne(one, shaped.Field(n), pack, s.holds)
			n++
			continue
		}
		if !pack {
			one.Set(reflect.MakeMap(s.Type))
		}
		for _, f := range RuntimeFields(s.section) {
			name, as := reflect.ValueOf(f.Name), shaped.Field(n)
			n++
			if raw := one.MapIndex(name); pack && raw.IsValid() {
				as.Set(raw)
			} else if !pack && !as.IsNil() {
				one.SetMapIndex(name, reflect.ValueOf(mustMarshal(as.Interface())))
			}
		}
	}
}

// moveOne copies a member.
func moveOne(v, shaped reflect.Value, pack, holds bool) {
	from, to := shaped, v
	if pack {
		from, to = v, shaped
	}
	switch {
	case !holds:
		to.Set(from)
	case v.Kind() == reflect.Struct:
		move(v, shaped, pack)
	case !from.IsNil():
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			moveOne(v.Index(i), shaped.Index(i), pack, true)
		}
	}
}
