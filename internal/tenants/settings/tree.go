package settings

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fields are fields of a T that administrators can change, by name, in JSON. A record has those that were
// set, a view has all. A struct with a member of this type calls Marshal and Unmarshal, so that the fields are
// among its own members.
type Fields[T any] map[string]json.RawMessage

// section returns T.
func (Fields[T]) section() reflect.Type { return reflect.TypeFor[T]() }

// SectionOf returns the T of a type Fields[T]; nil for other types.
func SectionOf(t reflect.Type) reflect.Type {
	if of, ok := reflect.Zero(t).Interface().(interface{ section() reflect.Type }); ok {
		return of.section()
	}
	return nil
}

// switched is a section that can be off; it is null in JSON then.
type switched interface{ Off() bool }

// All returns all fields of v.
func All[T any](v *T) Fields[T] { return fieldsOf(reflect.ValueOf(v).Elem(), reflect.Value{}) }

// Changed returns the fields of v that differ from those of usual. Fields of a section that is off are left out.
func Changed[T any](v, usual *T) Fields[T] {
	return fieldsOf(reflect.ValueOf(v).Elem(), reflect.ValueOf(usual).Elem())
}

// fieldsOf returns the fields of v; those that equal usual's are left out, unless usual is the zero Value.
func fieldsOf(v, usual reflect.Value) map[string]json.RawMessage {
	list := RuntimeFields(v.Type())
	out := make(map[string]json.RawMessage, len(list))
	text := make([]byte, 0, 8*len(list)) // of all simple fields
	for i := range list {
		f := &list[i]
		if f.simple && !usual.IsValid() {
			begin := len(text)
			text = appendSimple(text, v.Field(f.Index))
			out[f.Name] = text[begin:len(text):len(text)]
			continue
		}
		one, same := v.Field(f.Index), reflect.Value{}
		if usual.IsValid() {
			same = usual.Field(f.Index)
		}
		raw := f.encode(one, same)
		if !same.IsValid() || !bytes.Equal(raw, f.encode(same, same)) {
			out[f.Name] = raw
		}
	}
	return out
}

// encode returns the JSON form of the field's value.
func (f *Field) encode(v, usual reflect.Value) json.RawMessage {
	switch {
	case f.off && v.Interface().(switched).Off():
		return json.RawMessage("null")
	case IsSection(f.Type):
		return object(v.Type(), fieldsOf(v, usual))
	case f.simple:
		return appendSimple(nil, v)
	case v.Kind() == reflect.Map && v.Len() == 0:
		return json.RawMessage("{}")
	case v.Kind() == reflect.Slice && v.Len() == 0:
		return json.RawMessage("[]")
	}
	return mustMarshal(form(v).Interface())
}

// appendSimple appends a value of a simple type.
func appendSimple(out []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(out, v.Bool())
	case reflect.String:
		text := v.String()
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return append(out, mustMarshal(text)...)
		}
		return append(append(append(out, '"'), text...), '"')
	default:
		return strconv.AppendInt(out, v.Int(), 10)
	}
}

// object returns a JSON object of fields of a section, in the order of the section.
func object(t reflect.Type, set map[string]json.RawMessage) json.RawMessage {
	return append(bytes.TrimSuffix(appendFields([]byte("{"), t, set), []byte(",")), '}')
}

// appendFields appends the members of object, each with a comma.
func appendFields(out []byte, t reflect.Type, set map[string]json.RawMessage) []byte {
	for _, f := range RuntimeFields(t) {
		if raw, ok := set[f.Name]; ok {
			out = append(append(append(out, f.key...), raw...), ',')
		}
	}
	return out
}

// form returns a setting that is no section as a value of its plain type.
func form(v reflect.Value) reflect.Value {
	t := plain(v.Type())
	switch {
	case v.Kind() == reflect.Slice:
		out := reflect.MakeSlice(t, v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(form(v.Index(i)))
		}
		return out
	case t == reflect.TypeFor[time.Time]() && v.IsZero():
		return reflect.Zero(reflect.PointerTo(t)) // null
	case t == v.Type():
		return v
	}
	return reflect.ValueOf(Text(v.Interface()))
}

// mustMarshal encodes a value of a plain type, which has no values that JSON cannot have.
func mustMarshal(v any) json.RawMessage {
	raw, err := marshal(v)
	if err != nil {
		panic("settings: " + err.Error())
	}
	return raw
}

// Patch returns the fields with those of a merge patch: see Merge.
func (f Fields[T]) Patch(patch Fields[T]) Fields[T] { return Merge(f.section(), f, patch) }

// Merge applies a merge patch (RFC 7396) to members of an object: null removes one. Sections of t, which may be nil,
// are merged likewise; lists and maps are replaced.
func Merge(t reflect.Type, old, patch map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	for name, raw := range patch {
		var now, changes map[string]json.RawMessage
		switch section := sectionNamed(t, name); {
		case string(raw) == "null":
			delete(out, name)
		case section != nil && json.Unmarshal(raw, &changes) == nil:
			_ = json.Unmarshal(out[name], &now) // nil if there is none
			out[name] = mustMarshal(Merge(section, now, changes))
		default:
			out[name] = raw
		}
	}
	return out
}

// sectionNamed returns the type of a section in t, or nil.
func sectionNamed(t reflect.Type, name string) reflect.Type {
	if t == nil {
		return nil
	}
	for _, f := range RuntimeFields(t) {
		if f.Name == name && IsSection(f.Type) {
			return f.Type
		}
	}
	return nil
}

// Is reports whether a field is true.
func (f Fields[T]) Is(name string) bool { return string(f[name]) == "true" }

// Text returns a field for people; "" if it is left out.
func (f Fields[T]) Text(name string) string {
	i := slices.IndexFunc(FieldsOf(f.section()), func(f Field) bool { return f.Name == name })
	return text(FieldsOf(f.section())[i].Type, f[name])
}

// text returns the JSON form of a setting of type t for people.
func text(t reflect.Type, raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	v := reflect.New(plain(t))
	if json.Unmarshal(raw, v.Interface()) != nil {
		return string(raw)
	}
	switch one := v.Elem().Interface().(type) {
	case string:
		return one
	case time.Time:
		return one.UTC().Format(time.RFC3339)
	case []string:
		return strings.Join(one, ", ")
	case map[string]string:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(one)) {
			pairs = append(pairs, name+"="+one[name])
		}
		return strings.Join(pairs, " ")
	}
	if !IsSection(t) {
		return string(raw)
	}
	var parts []string
	for _, line := range lines(t, raw) {
		parts = append(parts, line.Name+": "+line.Text)
	}
	return strings.Join(parts, ", ")
}

// Line is a field as text; those of sections have lines of their own, and names such as cache.max_age.
type Line struct {
	Field
	Name, Text string
}

// Lines returns all fields, in the order of T; those that are left out have no text. A section that is left out or off
// has one line.
func (f Fields[T]) Lines() []Line {
	var out []Line
	for _, one := range RuntimeFields(f.section()) {
		inner := lines(one.Type, f[one.Name])
		for i := range inner {
			inner[i].Name = one.Name + "." + inner[i].Name
		}
		if inner == nil {
			inner = []Line{{one, one.Name, text(one.Type, f[one.Name])}}
		}
		out = append(out, inner...)
	}
	return out
}

// lines returns the fields of a section that its JSON form has; nil for other types and for null.
func lines(t reflect.Type, raw json.RawMessage) []Line {
	var set map[string]json.RawMessage
	if !IsSection(t) || json.Unmarshal(raw, &set) != nil {
		return nil
	}
	var out []Line
	for _, f := range RuntimeFields(t) {
		if raw, ok := set[f.Name]; ok {
			out = append(out, Line{f, f.Name, text(f.Type, raw)})
		}
	}
	return out
}
