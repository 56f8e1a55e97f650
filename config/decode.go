package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// maxNodes bounds the expansion of a file by aliases.
const maxNodes = 1_000_000

// field is one field of a section.
type field struct {
	settings.Field
	rules
}

var fieldCache sync.Map // reflect.Type -> []field

// fieldsOf lists the fields of a section in the order of the struct.
func fieldsOf(t reflect.Type) []field {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.([]field)
	}
	var out []field
	for _, f := range settings.FieldsOf(t) {
		out = append(out, field{f, rulesOf(t.Field(f.Index))})
	}
	fieldCache.Store(t, out)
	return out
}

// setDefaults sets the defaults of a section and its subsections from their tags.
func setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		inner := v.Field(f.Index)
		if settings.IsSection(f.Type) {
			setDefaults(inner)
			continue
		}
		if f.Default == "" {
			continue
		}
		if err := setText(inner, f.Default); err != nil {
			panic(fmt.Sprintf("config: default of %s.%s: %v", v.Type(), f.Name, err))
		}
	}
}

// value decodes a node into v, which is a field or a list element.
func (d *document) value(path string, n ast.Node, v reflect.Value, f field) {
	d.nodes++
	if d.nodes > maxNodes {
		if !d.tooBig {
			d.mistakes.failAt(path, "the file has more than %d values once its aliases are expanded", maxNodes)
		}
		d.tooBig = true
		return
	}
	n, ok := d.resolve(path, n)
	if !ok {
		return
	}
	if v.Type() != reflect.TypeFor[Secret]() && needsSecret(v.Type()) {
		n = d.hidden(n)
	}
	switch {
	case f.Kind == "subject":
		d.subject(path, n, v, f)
	case f.Kind == "labels":
		d.labels(path, n, v, f)
	case settings.IsSection(v.Type()):
		d.section(path, n, v)
	case v.Kind() == reflect.Slice:
		d.list(path, n, v, f)
	case v.Kind() == reflect.Map:
		d.table(path, n, v)
	default:
		d.scalar(path, n, v, f)
	}
}

// needsSecret reports whether a text in place of a value of a type is likely a secret.
func needsSecret(t reflect.Type) bool {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		return needsSecret(t.Elem())
	}
	return t == reflect.TypeFor[Secret]() || settings.IsSection(t) &&
		slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.Required && needsSecret(f.Type) })
}

// hidden returns a text in the wrong place without the text itself, which errors must not show.
func (d *document) hidden(n ast.Node) ast.Node {
	text, ok := n.(*ast.StringNode)
	if !ok || strings.HasPrefix(text.Value, "${") || strings.HasPrefix(text.Value, fileMark) {
		return n
	}
	d.mistakes.hide(markOf(n))
	hidden := *text
	hidden.Value = "****"
	return &hidden
}

// resolve follows anchors, aliases and tags to the value.
func (d *document) resolve(path string, n ast.Node) (ast.Node, bool) {
	for range 100 {
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			if tag := t.GetToken().Value; !strings.HasPrefix(tag, "!!") {
				d.mistakes.fail(markOf(t), path, "the tag %s is not supported; write ${NAME} for an environment variable",
					tag)
				return nil, false
			}
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.GetToken().Value]
			if !ok {
				at := markOf(t)
				at.width = 1 + len(t.Value.GetToken().Value)
				d.mistakes.fail(at, path, "no anchor &%s to refer to; a text that begins with * needs quotes",
					t.Value.GetToken().Value)
				return nil, false
			}
			n = target
		case nil:
			d.mistakes.failAt(path, "has no value")
			return nil, false
		default:
			return n, true
		}
	}
	d.mistakes.failAt(path, "the alias refers to itself")
	return nil, false
}

// entries returns the name-value pairs of a mapping; ok is false for other nodes.
func entries(n ast.Node) (pairs []*ast.MappingValueNode, ok bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.NullNode: // "admin:" with all of its fields commented out
		return nil, true
	}
	return nil, false
}

// each calls fn for the pairs of a mapping, after the checks that apply to every mapping: plain
// names, no duplicates. It reports whether n is a mapping.
func (d *document) each(path string, n ast.Node, fn func(i int, name string, pair *ast.MappingValueNode)) bool {
	pairs, ok := entries(n)
	if !ok {
		d.mistakes.fail(markOf(n), path, `expected "name: value" lines, got %s`, describe(n))
		return false
	}
	seen := map[string]mark{}
	for i, pair := range pairs {
		at := markOf(pair.Key)
		if pair.Key.IsMergeKey() {
			d.mistakes.fail(at, path, "merge keys (<<) are not supported; repeat the fields, or alias a whole value")
			continue
		}
		switch pair.Key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		default:
			d.mistakes.fail(at, path, "expected a name here")
			continue
		}
		name := pair.Key.GetToken().Value
		if first, dup := seen[name]; dup {
			d.mistakes.fail(at, path, "%q is set twice; the first is on line %d", name, first.line)
			continue
		}
		seen[name] = at
		fn(i, name, pair)
	}
	return true
}

// section decodes a mapping into a struct.
func (d *document) section(path string, n ast.Node, v reflect.Value) {
	fields := fieldsOf(v.Type())
	if _, ok := n.(*ast.StringNode); ok {
		d.mistakes.fail(markOf(n), path, `expected "name: value" lines, such as %s: ..., got %s`, fieldFor(v.Type()).Name,
			describe(n))
		return
	}
	ok := d.each(path, n, func(i int, name string, pair *ast.MappingValueNode) {
		at := slices.IndexFunc(fields, func(f field) bool { return f.Name == name })
		if at < 0 {
			if path == "" && strings.HasPrefix(name, "x-") { // reserved for anchors
				return
			}
			if instead, ok := removedSettings[join(path, name)]; ok {
				d.mistakes.fail(markOf(pair.Key), join(path, name), "%s", instead)
				return
			}
			known := make([]string, len(fields))
			for i, f := range fields {
				known[i] = f.Name
			}
			d.mistakes.fail(markOf(pair.Key), path, "%s", unknownField(name, known))
			return
		}
		f, inner := fields[at], join(path, name)
		d.mistakes.marks[inner] = placeOf(pair)
		if f.Type == reflect.TypeFor[Raw]() {
			v.Field(f.Index).Set(reflect.ValueOf(d.raw(inner, n, i, pair, f)))
			return
		}
		d.value(inner, pair.Value, v.Field(f.Index), f)
	})
	var missing []string
	for _, f := range fields {
		if f.Required && !d.mistakes.given(join(path, f.Name)) {
			missing = append(missing, f.Name)
		}
	}
	switch {
	case !ok || len(missing) == 0:
	case len(missing) == 1:
		d.mistakes.failAt(path, "%s is missing", missing[0])
	default:
		d.mistakes.failAt(path, "%s are missing", strings.Join(missing, " and "))
	}
}

// placeOf returns the place of a pair in errors: its value if that is on the same line as the name,
// else the name.
func placeOf(pair *ast.MappingValueNode) mark {
	key := markOf(pair.Key)
	switch pair.Value.(type) {
	case nil, *ast.NullNode, *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.LiteralNode:
		return key
	}
	if at := markOf(pair.Value); at.line == key.line {
		return at
	}
	return key
}

// list decodes a sequence into a slice.
func (d *document) list(path string, n ast.Node, v reflect.Value, f field) {
	if _, null := n.(*ast.NullNode); null {
		return
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.mistakes.fail(markOf(n), path, "expected a list, got %s; %s", describe(n), asList(n, v.Type().Elem()))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, element := range seq.Values {
		inner := path + "[" + strconv.Itoa(i) + "]"
		d.mistakes.marks[inner] = markOf(element)
		if settings.IsSection(v.Type().Elem()) {
			setDefaults(v.Index(i))
		}
		d.value(inner, element, v.Index(i), f)
	}
}

// asList describes how what is not a list is written as one.
func asList(n ast.Node, element reflect.Type) string {
	pairs, _ := entries(n)
	text, single := n.(*ast.StringNode)
	switch section := settings.IsSection(element); {
	case section && len(pairs) > 0 && pairs[0].Value.Type() == ast.MappingType:
		return fmt.Sprintf(`write "- %s: %[2]s" instead of "%[2]s:"`, fieldFor(element).Name,
			pairs[0].Key.GetToken().Value)
	case !section && single && !strings.ContainsAny(text.Value, ",[]{}"):
		return "write [" + mask(strconv.Quote(text.Value)) + "]"
	}
	return `begin each element with "- "`
}

// fieldFor returns the field that a text in place of a section is likely for: the first, such as id or name.
func fieldFor(section reflect.Type) field { return fieldsOf(section)[0] }

// subject decodes the subject of a limit: a name, or a list of names.
func (d *document) subject(path string, n ast.Node, v reflect.Value, f field) {
	var parts []string
	if _, many := n.(*ast.SequenceNode); many {
		d.list(path, n, reflect.ValueOf(&parts).Elem(), field{})
	} else {
		d.scalar(path, n, v, field{})
		parts = []string{v.String()}
	}
	text, err := settings.ParseSubject(parts...)
	if err != nil {
		d.mistakes.failAt(path, "%s", err)
		return
	}
	v.SetString(text)
}

// table decodes a mapping with free names into a map of texts.
func (d *document) table(path string, n ast.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	d.each(path, n, func(_ int, name string, pair *ast.MappingValueNode) {
		inner := join(path, name)
		d.mistakes.marks[inner] = placeOf(pair)
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(inner, pair.Value, element, field{})
		v.SetMapIndex(reflect.ValueOf(name), element)
	})
}

// scalar decodes a single value and checks it against its field's tags.
func (d *document) scalar(path string, n ast.Node, v reflect.Value, f field) {
	at := markOf(n)
	secret := v.Type() == reflect.TypeFor[Secret]()
	text, ok := d.text(path, n, v, f)
	if !ok {
		return
	}
	if secret {
		d.literal(path, n)
		var err error
		text, err = d.secret(text)
		if err != nil && d.optional(path, true) {
			text, err = d.standIn(path, err), nil
		}
		if err != nil {
			d.mistakes.fail(at, path, "%s", err)
			return
		}
	}
	if err := setText(v, text); err != nil {
		d.mistakes.fail(at, path, "%s", err)
		return
	}
	switch {
	case v.CanInt() && v.Int() == 0 && !f.Zero && f.Default != "":
		d.mistakes.fail(at, path, "must be above 0; leave it out for the default, %s", f.Default)
	case v.CanInt() && v.Int() == 0 && !f.Zero:
		d.mistakes.fail(at, path, "%s", errZero)
	case v.Kind() == reflect.String && strings.TrimSpace(text) != text:
		d.mistakes.fail(at, path, "has leading or trailing spaces")
	case v.Kind() == reflect.String && text == "" && !f.Zero:
		d.mistakes.fail(at, path, "is empty; give it a value or remove the line")
	case v.Kind() == reflect.String && !secret && strings.ContainsAny(text, "\n\r\x00"):
		d.mistakes.fail(at, path, "contains a line break")
	case len(f.Enum) > 0 && !slices.Contains(f.Enum, text):
		d.mistakes.fail(at, path, "%s", cmp.Or(removedSettings[path+": "+text], wrongChoice(text, f.Enum)))
	case f.Kind != "":
		err := checkKind(f.Kind, text)
		switch {
		case err != nil && secret && d.optional(path, true):
			d.unusable[path] = err.Error()
		case err != nil:
			d.mistakes.fail(at, path, "%s", err)
		}
	}
}

// text returns the text of a scalar node with environment variables expanded.
func (d *document) text(path string, n ast.Node, v reflect.Value, f field) (string, bool) {
	secret := v.Type() == reflect.TypeFor[Secret]()
	switch n := n.(type) {
	case *ast.StringNode:
		return d.expand(path, markOf(n), n.Value, secret)
	case *ast.LiteralNode:
		return d.expand(path, d.mistakes.markAt(path), strings.TrimSuffix(n.Value.Value, "\n"), secret)
	case *ast.NullNode:
		d.mistakes.failAt(path, "has no value; give it one or remove the line")
		return "", false
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text := n.GetToken().Value
		switch {
		case secret:
			d.mistakes.fail(markOf(n), path, "expected text; put the value in quotes")
			return "", false
		case v.Kind() == reflect.String && len(f.Enum) == 0 &&
			!slices.Contains([]string{"id", "address", "label"}, f.Kind):
			d.mistakes.fail(markOf(n), path, "expected text, got %s; put it in quotes: %q", describe(n), text)
			return "", false
		}
		return text, true
	}
	if pairs, ok := entries(n); ok && len(pairs) == 1 && d.takenApart(pairs[0]) {
		d.mistakes.fail(markOf(n), path, `a text with a colon needs quotes inside { } and [ ]: "%s:%s"`,
			pairs[0].Key.GetToken().Value,
			pairs[0].Value.GetToken().Value)
		return "", false
	}
	d.mistakes.fail(markOf(n), path, "expected a single value, got %s", describe(n))
	return "", false
}

// takenApart reports whether a pair was meant as one text with a colon, such as an address, because
// no space follows the colon.
func (d *document) takenApart(pair *ast.MappingValueNode) bool {
	if pair.Value == nil || pair.Value.GetToken() == nil {
		return false
	}
	whole := pair.Key.GetToken().Value + ":" + pair.Value.GetToken().Value
	return strings.Contains(d.mistakes.line(markOf(pair.Key).line), whole)
}
