package cli

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
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

// format is a form of a value. It may see other members of the answer.
type format func(w io.Writer, v, answer reflect.Value) string

func of[T any](text func(T) string) format {
	return func(_ io.Writer, v, _ reflect.Value) string {
		return text(v.Convert(reflect.TypeFor[T]()).Interface().(T))
	}
}

// ofAnswer makes a format that sees only the answer.
func ofAnswer[T any](text func(io.Writer, T) string) format {
	return func(w io.Writer, _, answer reflect.Value) string { return text(w, answer.Interface().(T)) }
}

// formats are the forms of a value besides that of its type. Those that begin with = may see an absent value.
var formats = map[string]format{
	"age":     of(func(t time.Time) string { return figures.Age(time.Since(t)) }),
	"off":     of(func(t time.Time) string { return "off for " + figures.Age(time.Since(t)) }),
	"minute":  func(_ io.Writer, v, _ reflect.Value) string { return figures.Minute(timeOf(v)) },
	"second":  func(_ io.Writer, v, _ reflect.Value) string { return figures.Second(timeOf(v)) },
	"date":    of(func(t time.Time) string { return t.UTC().Format(time.DateOnly) }),
	"nanos":   of(func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }),
	"dollars": func(w io.Writer, v, _ reflect.Value) string { return decimalUSD(w, v.String()) },
	"usd":     func(w io.Writer, v, _ reflect.Value) string { return usd(w, pricing.Nano(v.Int())) },
	"unit":    func(w io.Writer, v, answer reflect.Value) string { return quantityText(w, unitOf(answer), v.Int()) },
	"about":   of(func(seconds float64) string { return figures.About(budget.Lasting(seconds)) }),
	"over": of(func(list []int64) string {
		return ">" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), " >")
	}),
	"permille": of(permille),
	"int":      of(whole),
	"decimal":  of(func(n int64) string { return pricing.Nano(n).Decimal() }),
	"counters": of(func(n int64) string { return plural(int(n), "counter") }),
	"number":   of(escape.Text),
	"path":     of(func(words string) string { return strings.ReplaceAll(escape.Text(words), " ", "/") }),
	"text":     of(func(s string) string { return s }),
	"factor":   of(func(times string) string { return "x" + times }),
	"json":     of(func(text []byte) string { return string(text) }),
	"span":     func(_ io.Writer, v, _ reflect.Value) string { return fmt.Sprint(v.Interface()) },
	"all":      of(all),
	"plus":     of(func(list []string) string { return strings.Join(list, "+") }),
	"comma":    of(func(list []string) string { return strings.Join(list, ",") }),
	"state":    of(onOff),
	"first":    of(func(is bool) string { return map[bool]string{true: "binds first"}[is] }),
	"if":       of(func(is bool) string { return map[bool]string{true: "yes"}[is] }),
	"rights":   of(func(reads bool) string { return map[bool]string{true: "read", false: "read and write"}[reads] }),
	"=lines":   ofAnswer(func(_ io.Writer, b admin.BatchLine) string { return fmt.Sprintf("%d/%d", b.Done, b.Lines) }),
	"=worst": ofAnswer(func(w io.Writer, o admin.Org) string {
		return boundOf(&o).HourText(func(n pricing.Nano) string { return usd(w, n) })
	}),
	"=override": ofAnswer(overrideText),
	"=whose": func(_ io.Writer, v, answer reflect.Value) string {
		return whose(v.String(), answer.FieldByName("Only").String())
	},
	"=from":  ofAnswer(fromText),
	"=reset": resetText,
	"=room":  ofAnswer(roomText),
	"=of": func(_ io.Writer, v, answer reflect.Value) string {
		return cmp.Or(answer.FieldByName("Cap").String(), v.String())
	},
	"=user": ofAnswer(func(_ io.Writer, l simulate.ShadowLine) string {
		return strings.TrimSuffix(userOf(l.Org, l.User), "/")
	}),
	"=prior": ofAnswer(func(_ io.Writer, r calibration.Row) string {
		return permille(r.PriorMean) + " " + permille(r.PriorHold)
	}),
	"=remark": func(_ io.Writer, _, answer reflect.Value) string {
		if late, ok := answer.Interface().(ledger.Unresolved); ok {
			return remark(late.Entry)
		}
		return remark(answer.Interface().(ledger.Entry))
	},
	"=booked": ofAnswer(func(w io.Writer, late ledger.Unresolved) string {
		if late.Booked == nil {
			return "no"
		}
		return fmt.Sprintf("yes, %s (%s)", usd(w, late.Booked.Total), late.Booked.Kind)
	}),
}

func permille(n int) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) }

// timeOf returns a time, which some answers have as Unix seconds.
func timeOf(v reflect.Value) time.Time {
	if t, ok := v.Interface().(time.Time); ok {
		return t
	}
	return time.Unix(v.Int(), 0)
}

func unitOf(answer reflect.Value) string { return answer.FieldByName("Unit").String() }

// resetText formats the seconds until a limit is unused. Without them it never is, unless it has no usage at all.
func resetText(_ io.Writer, v, answer reflect.Value) string {
	used := answer.FieldByName("Used")
	switch {
	case !v.IsNil():
		return figures.Lasting(budget.Lasting(v.Elem().Float()))
	case used.Kind() == reflect.Pointer && used.IsNil():
		return ""
	}
	return figures.Lasting(budget.Endless)
}

// rightward are the formats of numbers.
var rightward = []string{
	"age", "counters", "usd", "dollars", "unit", "about", "permille", "number", "span", "int", "decimal", "=lines", "=reset",
}

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
				title := strings.Replace(name, "disabled", "status", 1)
				out = append(out, shownField{name: title, index: f.Index, typ: f.Type, setting: name})
			}
			continue
		}
		out = append(out, newField(text, f.Index, f.Type))
	}
	return out
}

// newField reads a tag. It panics for a format that does not exist.
func newField(tag string, index []int, t reflect.Type) shownField {
	parts := append(strings.Split(tag, ";"), "", "")
	if parts[1] != "" && formats[parts[1]] == nil {
		panic(fmt.Sprintf("cli: there is no format %q of %q", parts[1], tag))
	}
	return shownField{name: parts[0], format: parts[1], none: parts[2], index: index, typ: t}
}

// someSettings are the settings of an answer: settings.Fields.
type someSettings interface {
	Is(name string) bool
	Text(name string) string
	Lines() []settings.Line
}

func (f *shownField) text(w io.Writer, answer reflect.Value) string {
	v := answer.FieldByIndex(f.index)
	known := v.Kind() == reflect.Pointer // null is absent, 0 is not
	if set, ok := v.Interface().(someSettings); ok {
		switch f.setting {
		case "disabled":
			return onOff(set.Is(f.setting))
		case "expires":
			return minuteOf(set.Text(f.setting), "never")
		}
		return escape.Text(set.Text(f.setting))
	}
	for v.Kind() == reflect.Pointer && !strings.HasPrefix(f.format, "=") {
		if v.IsNil() {
			return f.none
		}
		v = v.Elem()
	}
	if f.none != "" && !known && v.IsZero() {
		return f.none
	}
	if format := formats[f.format]; format != nil {
		return format(w, v, answer)
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

// isTime reports whether the field is a time, so that the heading of its column says UTC and its cells do not.
func (f *shownField) isTime() bool {
	return f.format == "minute" || f.format == "second" || f.setting == "expires"
}

// columnsOf returns columns of a type, by default all with a tag. A column is the name in a tag, or the name of a
// member in JSON, a colon and what a tag would have. It panics for one that the type does not have: columns are
// chosen before the program does anything.
func columnsOf(t reflect.Type, names ...string) []shownField {
	if len(names) == 0 {
		return taggedFields(t, "col")
	}
	fields := reflect.VisibleFields(t) // once: it is slow, and this is done at every start
	var out, all []shownField
	for _, name := range names {
		member, tag, ok := strings.Cut(name, ":")
		if ok {
			out = append(out, columnOf(t, fields, member, tag))
			continue
		}
		if all == nil {
			all = taggedFields(t, "col")
		}
		i := slices.IndexFunc(all, func(f shownField) bool { return f.name == name })
		if i < 0 {
			panic(fmt.Sprintf("cli: %s has no column %q", t, name))
		}
		out = append(out, all[i])
	}
	return out
}

// columnOf makes a column of a member of a type with these fields. Its name has dots if it is in others.
func columnOf(t reflect.Type, fields []reflect.StructField, member, tag string) shownField {
	var index []int
	for one := range strings.SplitSeq(member, ".") {
		if index != nil {
			fields = reflect.VisibleFields(t)
		}
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return name == one
		})
		if i < 0 {
			panic(fmt.Sprintf("cli: %s has no member %q", t, one))
		}
		index, t = append(index, fields[i].Index...), fields[i].Type
	}
	return newField(tag, index, t)
}

// tableOf prints a list as a table: of these columns, or of all that its type has.
func tableOf(w io.Writer, list any, columns []shownField) error {
	return gridOf(w, list, columns).write(w)
}

func gridOf(w io.Writer, list any, columns []shownField) *grid {
	v := reflect.ValueOf(list)
	g := grid{head: []string{}}
	if columns == nil {
		columns = columnsOf(v.Type().Elem())
	}
	for _, c := range columns {
		name := c.name
		if c.isTime() {
			name += " (UTC)"
		}
		g.head, g.numbers = append(g.head, name), append(g.numbers, c.numeric())
	}
	for i := range v.Len() {
		var cells []string
		for _, c := range columns {
			text := c.text(w, v.Index(i))
			if c.isTime() {
				text = figures.Cell(text)
			}
			cells = append(cells, text)
		}
		g.add(cells...)
	}
	return &g
}

func csvOf(w io.Writer, list any, columns []shownField) error {
	g := gridOf(w, list, columns)
	for _, row := range g.rows {
		for i := range row {
			if !g.numbers[i] {
				row[i] = ledger.CellText(row[i])
			}
		}
	}
	return escape.NewCSV(w).WriteAll(append([][]string{g.head}, g.rows...))
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
		one := newField(f.Tag.Get("col"), f.Index, f.Type)
		one.none = "" // an absent value stays empty in a text
		out[name] = one.text(w, v)
	}
	return out
}
