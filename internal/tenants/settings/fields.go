package settings

import (
	"encoding"
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Field is a field of a section, as its struct tags describe it. Its doc comment is in the reference.
type Field struct {
	Name     string // in the file, in records and in the API
	Index    int    // in the struct
	Type     reflect.Type
	Required bool
	Default  string   // in the syntax of the file
	Enum     []string // allowed texts
	Kind     string   // "id" or "address" of a text, "list" or "mapping" of a part that another package parses
	Zero     bool     // 0 is a meaningful number, or a text may be empty
	Restart  bool     // changes take effect only after a restart
	Runtime  bool     // administrators can change it: tag runtime, with the help text of its flag, {} for Enum
	Help     string   // of its flag
	Flag     string   // name of its flag, if not its own name; "-": it has none
	Unset    string   // what people read for its zero value

	key         []byte // its name in JSON, with the colon
	off, simple bool   // it is a section that can be off; its JSON form is the value itself
}

// onceFor remembers what a function returned for a type.
func onceFor[T any](seen *sync.Map, t reflect.Type, of func(reflect.Type) T) T {
	if known, ok := seen.Load(t); ok {
		return known.(T)
	}
	made := of(t)
	seen.Store(t, made)
	return made
}

var fieldCache sync.Map // reflect.Type -> []Field

// FieldsOf returns the fields of a section in the order of the struct.
func FieldsOf(t reflect.Type) []Field { return onceFor(&fieldCache, t, readFields) }

func readFields(t reflect.Type) (out []Field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		one := Field{
			key: append(mustMarshal(name), ':'), Name: name, Index: i, Type: f.Type, Required: opts == "required",
			Default: f.Tag.Get("default"), Kind: f.Tag.Get("kind"),
			Zero: f.Tag.Get("min") == "0", Restart: f.Tag.Get("reload") == "restart",
			Flag: f.Tag.Get("flag"), Unset: f.Tag.Get("unset"),
		}
		if enum := f.Tag.Get("enum"); enum != "" {
			one.Enum = strings.Split(enum, ",")
		}
		one.Help, one.Runtime = f.Tag.Lookup("runtime")
		one.off, one.simple = f.Type.Implements(reflect.TypeFor[switched]()), f.Type.PkgPath() == "" && simple(f.Type)
		out = append(out, one)
	}
	return out
}

var runtimeCache sync.Map // reflect.Type -> []Field

// RuntimeFields returns the fields of a section that administrators can change.
func RuntimeFields(t reflect.Type) []Field {
	return onceFor(&runtimeCache, t, func(t reflect.Type) []Field {
		return slices.DeleteFunc(slices.Clone(FieldsOf(t)), func(f Field) bool { return !f.Runtime })
	})
}

// simple reports whether a type is a bool, an integer or a text without a JSON form of its own.
func simple(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.String:
		return t.PkgPath() == "" || !t.Implements(reflect.TypeFor[json.Marshaler]()) &&
			!t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	}
	return false
}

// IsSection reports whether a type is written as a mapping of fields.
func IsSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Tag.Get("yaml") != ""
}

// EachList calls fn with the path of every list of texts that has a name, such as models, in the section that v points
// to.
func EachList(v any, name string, fn func(path string, list []string)) {
	eachList("", reflect.ValueOf(v).Elem(), name, fn)
}

func eachList(path string, section reflect.Value, name string, fn func(path string, list []string)) {
	for _, f := range FieldsOf(section.Type()) {
		v, at := section.Field(f.Index), strings.TrimPrefix(path+"."+f.Name, ".")
		switch list, texts := v.Interface().([]string); {
		case texts && f.Name == name:
			fn(at, list)
		case IsSection(f.Type):
			eachList(at, v, name, fn)
		case v.Kind() == reflect.Slice && IsSection(f.Type.Elem()):
			for i := range v.Len() {
				eachList(at+"["+strconv.Itoa(i)+"]", v.Index(i), name, fn)
			}
		}
	}
}

// FlagHelp returns the help text of the field's flag, with the choices and the default.
func (f Field) FlagHelp() string {
	help := f.Help
	if last := len(f.Enum) - 1; last > 0 {
		choices := strings.Join(f.Enum[:last], ", ") + " or " + f.Enum[last]
		help = strings.ReplaceAll(help, "{}", choices)
		if help == "" {
			help = choices
		}
	}
	if f.Default != "" {
		help += " (default " + f.Default + ")"
	}
	return help
}

// plains are the types of sections in JSON (see plain), and the sections by those types.
var plains, sections sync.Map

// plain returns the type that has the JSON form of a setting: text for what the file writes as text, and
// pointers for the fields of sections, because they may be left out.
func plain(t reflect.Type) reflect.Type {
	switch {
	case IsSection(t):
		return onceFor(&plains, t, func(t reflect.Type) reflect.Type {
			var list []reflect.StructField
			for _, f := range RuntimeFields(t) {
				list = append(list, member(t, f, reflect.PointerTo(plain(f.Type))))
			}
			made := reflect.StructOf(list)
			sections.Store(made, t)
			return made
		})
	case t.Kind() == reflect.Slice:
		return reflect.SliceOf(plain(t.Elem()))
	case t.PkgPath() == "", t == reflect.TypeFor[time.Time](): // bool, int, int64, string and maps of strings
		return t
	}
	return reflect.TypeFor[string]()
}

// member returns a field of a struct that may be left out of its JSON form.
func member(in reflect.Type, f Field, t reflect.Type) reflect.StructField {
	return reflect.StructField{
		Name: in.Field(f.Index).Name, Type: t, Tag: reflect.StructTag(`json:"` + f.Name + `,omitempty"`),
	}
}

// SectionName returns the name of the section that has a type of MemberType; "" for others.
func SectionName(t reflect.Type) string {
	if section, ok := sections.Load(t); ok {
		return section.(reflect.Type).Name()
	}
	return ""
}

// MemberType returns the type that has the JSON form of the field.
func (f Field) MemberType() reflect.Type { return plain(f.Type) }

// Nullable reports whether the field is null where it has no value: a time, or a section that is off.
func (f Field) Nullable() bool {
	return f.Type == reflect.TypeFor[time.Time]() || f.off
}

// Text returns a value as the file writes it. No duration and no rate are empty; no amount is 0.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Duration:
		if v == 0 {
			return ""
		}
		return DurationText(v)
	case Percent:
		return strconv.Itoa(int(v)) + "%"
	case Size:
		return strconv.FormatInt(int64(v), 10)
	case Quantity:
		if v.Money {
			return strings.TrimSuffix(strings.TrimRight(pricing.Nano(v.N).String(), "0"), ".")
		}
		return strconv.FormatInt(v.N, 10)
	case Rate:
		if v.N == 0 {
			return ""
		}
		return Text(v.Quantity) + "/" + DurationText(v.Per)
	case netip.Prefix:
		return v.String()
	}
	panic("settings: no text for " + reflect.TypeOf(v).String())
}
