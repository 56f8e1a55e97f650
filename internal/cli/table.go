package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

// shownField is a field of an answer that a table or a list of facts shows. Tags of the answer's type say which: col
// for a table, fact for facts, each with a name, a format and the text of an absent value, separated by semicolons.
type shownField struct {
	name, format, none string
	index              []int
	typ                reflect.Type
	setting            string // the name of a field of settings, of which the answer has several
}

// formats are the forms of values besides those of their types. Those that begin with = see the whole answer.
var formats = map[string]func(io.Writer, reflect.Value) string{
	"age": func(_ io.Writer, v reflect.Value) string { return figures.Age(time.Since(v.Interface().(time.Time))) },
	"day": func(_ io.Writer, v reflect.Value) string {
		return v.Interface().(time.Time).UTC().Format("2006-01-02 15:04")
	},
	"second": func(_ io.Writer, v reflect.Value) string {
		return v.Interface().(time.Time).UTC().Format(time.DateTime)
	},
	"path": func(_ io.Writer, v reflect.Value) string {
		return strings.ReplaceAll(escape.Text(v.String()), " ", "/")
	},
	"unix": func(_ io.Writer, v reflect.Value) string {
		return time.Unix(v.Int(), 0).UTC().Format("2006-01-02 15:04")
	},
	"dollars": func(w io.Writer, v reflect.Value) string { return decimalUSD(w, v.String()) },
	"usd":     func(w io.Writer, v reflect.Value) string { return usd(w, pricing.Nano(v.Int())) },
	"state":   func(_ io.Writer, v reflect.Value) string { return onOff(v.Bool()) },
	"all":     func(_ io.Writer, v reflect.Value) string { return all(v.Interface().([]string)) },
	"rights": func(_ io.Writer, v reflect.Value) string {
		return map[bool]string{true: "read", false: "read and write"}[v.Bool()]
	},
	"off": func(_ io.Writer, v reflect.Value) string {
		return "off for " + figures.Age(time.Since(v.Interface().(time.Time)))
	},
	"=lines": func(_ io.Writer, v reflect.Value) string {
		b := v.Interface().(admin.BatchLine)
		return fmt.Sprintf("%d/%d", b.Done, b.Lines)
	},
	"=worst": func(w io.Writer, v reflect.Value) string {
		o := v.Interface().(admin.Org)
		return boundOf(&o).HourText(func(n pricing.Nano) string { return usd(w, n) })
	},
	"=override": func(w io.Writer, v reflect.Value) string { return overrideText(w, v.Interface().(admin.Override)) },
}

// rightward are the formats of numbers.
var rightward = []string{"age", "usd", "dollars", "=lines"}

// taggedFields lists the fields of a type with a tag.
func taggedFields(t reflect.Type, tag string) []shownField {
	var out []shownField
	for _, f := range reflect.VisibleFields(t) {
		text, ok := f.Tag.Lookup(tag)
		if !ok {
			continue
		}
		if settings.SectionOf(f.Type) != nil {
			for name := range strings.SplitSeq(text, ",") {
				out = append(out, shownField{name: settingNames.Replace(name), index: f.Index, typ: f.Type, setting: name})
			}
			continue
		}
		parts := append(strings.Split(text, ";"), "", "")
		out = append(out, shownField{name: parts[0], format: parts[1], none: parts[2], index: f.Index, typ: f.Type})
	}
	return out
}

// settingNames are the headings of settings.
var settingNames = strings.NewReplacer("disabled", "status", "expires", "expires (UTC)")

// someSettings are the settings of an answer: settings.Fields.
type someSettings interface {
	Is(name string) bool
	Text(name string) string
	Lines() []settings.Line
}

// text formats the field of an answer.
func (f *shownField) text(w io.Writer, answer reflect.Value) string {
	v := answer.FieldByIndex(f.index)
	if set, ok := v.Interface().(someSettings); ok {
		switch f.setting {
		case "disabled":
			return onOff(set.Is(f.setting))
		case "expires":
			return dayOf(set.Text(f.setting), "never")
		}
		return escape.Text(set.Text(f.setting))
	}
	for v.Kind() == reflect.Pointer {
		if v.IsNil() && !strings.HasPrefix(f.format, "=") {
			return f.none
		}
		if v.IsNil() {
			break
		}
		v = v.Elem()
	}
	if f.none != "" && v.IsZero() {
		return f.none
	}
	if format := formats[f.format]; format != nil {
		if f.format[0] == '=' {
			v = answer
		}
		return format(w, v)
	}
	switch one := v.Interface().(type) {
	case bool:
		return yesNo(one)
	case []string:
		return escape.Text(strings.Join(one, ", "))
	case map[string]string:
		return escape.Text(pairsText(one))
	case time.Time:
		return figures.Second(one)
	default:
		return escape.Text(fmt.Sprint(one))
	}
}

// numeric reports whether the field's column is aligned to the right.
func (f *shownField) numeric() bool {
	return slices.Contains(rightward, f.format) || f.setting == "weight" ||
		f.format == "" && (f.typ.Kind() == reflect.Int || f.typ.Kind() == reflect.Int64)
}

func columnsOf(t reflect.Type) []shownField { return taggedFields(t, "col") }

// tableOf prints a list as a table of its columns.
func tableOf(w io.Writer, list reflect.Value) error {
	var g grid
	columns := columnsOf(list.Type().Elem())
	for _, c := range columns {
		g.head, g.numbers = append(g.head, c.name), append(g.numbers, c.numeric())
	}
	for i := range list.Len() {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.text(w, list.Index(i)))
		}
		g.add(cells...)
	}
	return g.write(w)
}

// factsOf prints an answer as a list of names and values, without those that are empty.
func factsOf(w io.Writer, v reflect.Value) error {
	var pairs []string
	for _, f := range factFields(v.Type()) {
		if f.setting == "*" {
			pairs = append(pairs, settingsFacts(v.FieldByIndex(f.index).Interface().(someSettings).Lines())...)
			continue
		}
		pairs = append(pairs, f.name, f.text(w, v))
	}
	return facts(w, pairs...)
}

// factFields lists the facts of a type: those with a tag, or else its columns, or else all of its members.
func factFields(t reflect.Type) []shownField {
	if own := taggedFields(t, "fact"); own != nil {
		return own
	}
	if columns := columnsOf(t); columns != nil {
		return columns
	}
	var out []shownField
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && f.Tag.Get("secret") == "" {
			out = append(out, shownField{name: strings.ReplaceAll(name, "_", " "), index: f.Index, typ: f.Type})
		}
	}
	return out
}

func hasFacts(t reflect.Type) bool { return taggedFields(t, "fact") != nil }

// secretOf prints the secret of an answer, which is shown only once: a field with the tag secret.
func secretOf(w io.Writer, v reflect.Value) error {
	for _, f := range taggedFields(v.Type(), "secret") {
		if text := v.FieldByIndex(f.index).String(); text != "" {
			_, err := fmt.Fprintf(w, "%s (shown only once): %s\n\n", f.name, text)
			return err
		}
	}
	return nil
}

// membersOf returns the members of an answer as text.
func membersOf(w io.Writer, answer any) map[string]string {
	out := map[string]string{}
	v := reflect.ValueOf(answer)
	if answer == nil || v.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		_, format, _ := strings.Cut(f.Tag.Get("col")+";;", ";")
		format, _, _ = strings.Cut(format, ";")
		one := shownField{format: format, index: f.Index, typ: f.Type}
		out[name] = one.text(w, v)
	}
	return out
}
