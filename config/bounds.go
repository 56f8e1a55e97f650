package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/providers"
)

// rules are what tags say of a field beyond its form:
//
//	range:"1s..30d"   bounds in the syntax of the file; one of them may be left out. Text after a space is the
//	                  unit: "1..100 percent". For a list they are its number of elements, for a secret its length.
//	needs:"a,b=c"     the field has an effect only with a, and if b is c
//	needs:"dialect"   the same for the kinds of providers whose dialects have the setting
//	excludes:"a,b=c"  the field cannot be combined with a, nor with b if that is c
//	unique:"list"     no other element of the list has the same value
//	why:"because ..." why the field is needed, or excluded by others; a clause of that mistake
//
// 0 and fields that are not set have no bounds: where 0 has no meaning, it is refused when it is read.
type rules struct {
	low, high, unit string
	least, most     int64 // low and high as numbers; most is 0 if there is none
	needs, excludes []string
	unique          bool
	why             string
}

// rulesOf reads the tags of a field, and panics if they are wrong.
func rulesOf(f reflect.StructField) (r rules) {
	bounds, unit, _ := strings.Cut(f.Tag.Get("range"), " ")
	r.low, r.high, _ = strings.Cut(bounds, "..")
	r.unit = strings.TrimSuffix(" "+unit, " ")
	r.least, r.most = bound(f, r.low), bound(f, r.high)
	list := func(tag string) []string {
		return slices.DeleteFunc(strings.Split(f.Tag.Get(tag), ","), func(s string) bool { return s == "" })
	}
	r.needs, r.excludes, r.unique = list("needs"), list("excludes"), f.Tag.Get("unique") == "list"
	if why := f.Tag.Get("why"); why != "" {
		r.why = ", " + why
	}
	if at := slices.Index(r.needs, "dialect"); at >= 0 {
		r.needs[at] = "kind=" + strings.Join(providers.KindsWith(f.Tag.Get("yaml")), "|")
	}
	return r
}

// bound parses one end of a range.
func bound(f reflect.StructField, text string) int64 {
	if text == "" {
		return 0
	}
	v := reflect.New(f.Type).Elem()
	if !v.CanInt() {
		v = reflect.ValueOf(new(int64)).Elem()
	}
	if err := setText(v, text); err != nil {
		panic(fmt.Sprintf("config: range of %s: %v", f.Name, err))
	}
	return v.Int()
}

// obey checks a section, and those inside it, against the rules of their fields.
func (m *mistakes) obey(path string, section reflect.Value) {
	for _, f := range fieldsOf(section.Type()) {
		v := section.Field(f.Index)
		if f.low+f.high != "" {
			m.bounded(join(path, f.Name), v, f)
		}
		if len(f.needs)+len(f.excludes) > 0 && m.isSet(path, section, f) {
			m.combined(path, section, f)
		}
		switch list := v.Kind() == reflect.Slice; {
		case settings.IsSection(f.Type):
			m.obey(join(path, f.Name), v)
		case list && settings.IsSection(f.Type.Elem()):
			m.distinct(join(path, f.Name), v)
			for i := range v.Len() {
				m.obey(element(join(path, f.Name), i), v.Index(i))
			}
		}
	}
}

// combined checks a field that is set against the other fields of its section.
func (m *mistakes) combined(path string, section reflect.Value, f field) {
	for _, c := range f.needs {
		if m.lacks(path, section, f, c) {
			m.failAt(join(path, f.Name), "has no effect without %s", strings.NewReplacer("=", ": ", "|", " or ").Replace(c))
			return
		}
	}
	for _, c := range f.excludes {
		name, value, valued := strings.Cut(c, "=")
		switch {
		case !m.holds(path, section, c):
		case valued:
			m.failAt(join(path, f.Name), "has no effect with %s: %s", name, value)
		default:
			m.failAt(join(path, f.Name), "cannot be combined with %s%s; use one of the two", name, siblingOf(section, name).why)
		}
	}
}

// bounded checks a value against its range.
func (m *mistakes) bounded(path string, v reflect.Value, f field) {
	if m.broken(path) {
		return
	}
	switch secret := f.Type == reflect.TypeFor[Secret](); {
	case f.Type.Kind() == reflect.Slice && f.Required && v.Len() == 0 && m.given(path):
		m.failAt(path, "is empty; at least one is needed%s", f.why)
	case f.Type.Kind() == reflect.Slice && f.least > 0 && v.Len() == 0 && m.given(path):
		m.failAt(path, "is empty; remove it to allow all, or list what is allowed")
	case f.Type.Kind() == reflect.Slice && f.most > 0 && v.Len() > int(f.most):
		m.failAt(path, "has %d%s; at most %s are possible", v.Len(), f.unit, f.high)
	case secret && v.Len() > 0 && v.Len() < int(f.least):
		m.failAt(path, "has %d characters; at least %s are needed (openssl rand -hex 32)", v.Len(), f.low)
	case !v.CanInt() || v.Int() == 0 || v.Int() >= f.least && (f.most == 0 || v.Int() <= f.most):
	default:
		hint := ""
		if f.Default != "" {
			hint = "; leave it out for " + f.Default
		}
		m.failAt(path, "must be %s, got %s%s", f.rangeText(), valueText(v), hint)
	}
}

// rangeText describes the range of a field.
func (r rules) rangeText() string {
	switch {
	case r.high == "":
		return "at least " + r.low + r.unit
	case r.low == "":
		return "at most " + r.high + r.unit
	}
	return "from " + r.low + " to " + r.high + r.unit
}

// distinct checks that elements of a list do not share what is unique.
func (m *mistakes) distinct(path string, list reflect.Value) {
	for _, f := range fieldsOf(list.Type().Elem()) {
		if !f.unique {
			continue
		}
		seen := names{}
		for i := range list.Len() {
			m.unique(seen, join(element(path, i), f.Name), list.Index(i).Field(f.Index).String())
		}
	}
}

// isSet reports whether a field was set, and not to zero. A field with a default is set only by the file.
func (m *mistakes) isSet(path string, section reflect.Value, f field) bool {
	return !section.Field(f.Index).IsZero() && (f.Default == "" || m.given(join(path, f.Name)))
}

// lacks reports whether a field lacks what it needs. What 0 turns off may be off at runtime while the fields
// for it remain.
func (m *mistakes) lacks(path string, section reflect.Value, f field, condition string) bool {
	name, _, _ := strings.Cut(condition, "=")
	return !m.holds(path, section, condition) &&
		(!siblingOf(section, name).Zero || m.given(join(path, f.Name)))
}

// holds reports whether a field of the section is set, or has the value that follows a =.
func (m *mistakes) holds(path string, section reflect.Value, condition string) bool {
	name, want, valued := strings.Cut(condition, "=")
	v := section.Field(siblingOf(section, name).Index)
	if valued {
		return slices.Contains(strings.Split(want, "|"), fmt.Sprint(v.Interface()))
	}
	return !v.IsZero() || m.broken(join(path, name))
}

// siblingOf returns a field of the section that a tag names; TestTags checks that there is one.
func siblingOf(section reflect.Value, name string) field {
	fields := fieldsOf(section.Type())
	return fields[slices.IndexFunc(fields, func(f field) bool { return f.Name == name })]
}

// valueText writes a number as in the file.
func valueText(v reflect.Value) string {
	switch n := v.Interface().(type) {
	case Percent:
		return fmt.Sprintf("%d%%", n)
	case time.Duration:
		return settings.DurationText(n)
	}
	return fmt.Sprint(v.Int())
}
