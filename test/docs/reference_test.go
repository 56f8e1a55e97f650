package docs

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/providers"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// generatedBelow separates the handwritten part of a page of docs/config from the generated one below.
const generatedBelow = "<!-- Generated from the comments of package config by `make generate`. Do not edit below. -->\n"

// configPages are the pages of docs/config, each with its sections. A section that is in none is on the
// page of the section around it.
var configPages = map[string][]string{
	"README":        {""},
	"listeners":     {"tls", "admin", "auth", "requests", "timeouts", "headers", "connections", "memory"},
	"redis":         {"redis", "store"},
	"providers":     {"providers[]"},
	"limits":        {"defaults.limits[]", "defaults.raise_requests", "spend_caps[]", "request_limits[]"},
	"labels":        {"labels[]"},
	"brakes":        {"brakes[]"},
	"orgs":          {"defaults", "orgs[]"},
	"queue":         {"queue", "files", "batches", "cache", "conversations"},
	"ledger":        {"ledger", "finance"},
	"notifications": {"alerts", "webhooks"},
	"logs":          {"log", "tracing"},
}

// pageOf returns the page of a section.
func pageOf(section string) string {
	found, length := "", 0
	for page, sections := range configPages {
		for _, s := range sections {
			if s != "" && strings.HasPrefix(section+".", s+".") && len(s) > length {
				found, length = page, len(s)
			}
		}
	}
	return cmp.Or(found, "README")
}

// TestConfigReference compares docs/config with the structs of package config; go generate writes it.
func TestConfigReference(t *testing.T) {
	pages := newReference(t).write()
	for page, generated := range pages {
		replaceBelow(t, filepath.Join(root, "docs", "config", page+".md"), generatedBelow, generated)
	}
	if len(pages) != len(configPages) {
		t.Errorf("%d pages of docs/config have sections, want all %d of configPages", len(pages), len(configPages))
	}
}

// replaceBelow compares the part of a document below a mark with the generated one, or writes it with -update.
func replaceBelow(t *testing.T, path, mark, generated string) {
	t.Helper()
	text := read(t, path)
	head, _, found := strings.Cut(text, mark)
	if !found {
		t.Fatalf("%s has lost its line %q", path, mark)
	}
	want := head + mark + generated
	switch {
	case *update:
		write(t, path, want)
	case text != want:
		t.Errorf("%s is not what the code says; run make generate", path)
	}
}

// reference generates the configuration reference from the source.
type reference struct {
	structs map[string]*ast.StructType
	texts   map[string]string // comments of the types
	words   string            // the word list in the package comment
	pages   map[string]*strings.Builder
	done    map[string]string // type -> heading of its section
}

func newReference(t *testing.T) *reference {
	t.Helper()
	r := &reference{
		structs: map[string]*ast.StructType{}, texts: map[string]string{}, done: map[string]string{},
		pages: map[string]*strings.Builder{},
	}
	fset := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(root, "config", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	orgs, err := filepath.Glob(filepath.Join(root, "internal", "tenants", "settings", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, orgs...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if _, list, ok := strings.Cut(f.Doc.Text(), "Words used by all fields:\n"); ok {
			r.words = list
		}
		r.read(f)
	}
	if r.structs["Config"] == nil || r.words == "" {
		t.Fatal("package config has no type Config or no list of words")
	}
	return r
}

func (r *reference) read(f *ast.File) {
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			ts, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			if st, ok := ts.Type.(*ast.StructType); ok {
				r.structs[ts.Name.Name] = st
				r.texts[ts.Name.Name] = g.Doc.Text()
			}
		}
	}
}

// write returns the generated part of each page.
func (r *reference) write() map[string]string {
	r.page("README").WriteString("\n## How values are written\n" + escape(r.words) +
		"\nFields without a type are text, lists are of text unless stated otherwise. Settings and sections marked *restart* need\n" +
		"a restart of the process; all others apply at a reload.\n")
	r.section("Config", "", false)
	out := map[string]string{}
	for page, text := range r.pages {
		out[page] = "\n" + strings.TrimSpace(text.String()) + "\n"
	}
	return out
}

func (r *reference) page(name string) *strings.Builder {
	if r.pages[name] == nil {
		r.pages[name] = &strings.Builder{}
	}
	return r.pages[name]
}

// section writes one struct, then those inside it.
func (r *reference) section(name, path string, fixed bool) {
	title := "The file"
	if path != "" {
		title = "`" + path + "`"
	}
	r.done[name] = path
	out := r.page(pageOf(path))
	fmt.Fprintf(out, "\n## %s\n\n", title)
	fields := fieldsOf(r.structs[name])
	if path != "" {
		out.WriteString(linked(predicate(named(r.texts[name], fields), name)))
		if fixed {
			out.WriteString(" *Restart.*")
		}
		out.WriteString("\n\n")
	}
	var inner []func()
	end := 0
	for i := 0; i < len(fields); i = end {
		end = shared(fields, i)
		var heads, names []string
		for _, f := range fields[i:end] {
			head := f.head(r.goesTo(f, path, fixed, &inner))
			if strings.Contains(fields[i].text, "as for limits") {
				head, _, _ = strings.Cut(head, " (")
			}
			heads = append(heads, head)
			names = append(names, "`"+f.name+"`")
		}
		last := len(names) - 1
		subject := strings.TrimPrefix(strings.Join(names[:last], ", ")+" and "+names[last], " and ")
		text := linked(predicate(named(fields[i].code(), fields), subject))
		out.WriteString(strings.TrimSuffix("- "+strings.Join(heads, ", ")+": "+text, ": ") + "\n")
	}
	for _, fn := range inner {
		fn()
	}
}

// goesTo returns the link from a field to the section of its type, and schedules that section.
func (r *reference) goesTo(f field, path string, fixed bool, inner *[]func()) string {
	if r.structs[f.elem] == nil || f.kind() != "" {
		return ""
	}
	to, known := r.done[f.elem]
	if !known {
		to = strings.TrimPrefix(path+"."+f.name, ".")
		if f.list {
			to += "[]"
		}
		r.done[f.elem] = to
		restart := fixed || f.tag.Get("reload") == "restart"
		*inner = append(*inner, func() { r.section(f.elem, to, restart) })
	}
	if page := pageOf(to); page != pageOf(path) {
		return page + ".md#" + anchor(to)
	}
	return "#" + anchor(to)
}

// field is one setting.
type field struct {
	name, goName, text string
	elem               string // its type, or its element type
	list, table        bool
	tag                reflect.StructTag
}

func fieldsOf(st *ast.StructType) []field {
	var out []field
	for _, f := range st.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		fd := field{goName: f.Names[0].Name, text: strings.Join(strings.Fields(f.Doc.Text()), " "), tag: reflect.StructTag(tag)}
		fd.name, _, _ = strings.Cut(fd.tag.Get("yaml"), ",")
		if fd.name == "-" {
			continue
		}
		typ := f.Type
		switch t := typ.(type) {
		case *ast.ArrayType:
			fd.list, typ = true, t.Elt
		case *ast.MapType:
			fd.table, typ = true, t.Value
		}
		switch t := typ.(type) {
		case *ast.Ident:
			fd.elem = t.Name
		case *ast.SelectorExpr:
			fd.elem = t.Sel.Name
		}
		out = append(out, fd)
	}
	return out
}

var kinds = map[string]string{
	"string": "text", "Secret": "secret", "bool": "boolean", "int": "count", "int64": "count",
	"Size": "size", "Percent": "percentage", "PercentOrOff": "percentage or off", "Duration": "duration", "Quantity": "money or count", "Rate": "money or count per time",
	"Prefix": "address or range", "Time": "date or time",
}

// explained reports whether the field's comment explains each of its choices.
func (f field) explained() bool {
	missing := func(choice string) bool { return !strings.Contains(f.text, " "+choice+": ") }
	return f.choices() != nil && !slices.ContainsFunc(f.choices(), missing)
}

// code returns the field's comment, with its choices as code if it explains them.
func (f field) code() string {
	text := f.text
	if !f.explained() {
		return text
	}
	for _, choice := range f.choices() {
		text = strings.Replace(text, " "+choice+": ", " `"+choice+"`: ", 1)
	}
	return text
}

// choices returns the texts that a field may have, nil if it may have others.
func (f field) choices() []string {
	enum := f.tag.Get("enum")
	switch {
	case enum != "":
		return strings.Split(enum, ",")
	case f.tag.Get("kind") == "dialect":
		return providers.Kinds(nil)
	}
	return nil
}

// kind describes the form of a value; empty for a section.
func (f field) kind() string {
	switch choices := f.choices(); {
	case choices != nil:
		last := len(choices) - 1
		return strings.TrimPrefix("`"+strings.Join(choices[:last], "`, `")+"` or `"+choices[last]+"`", "`` or ")
	case f.elem == "Raw":
		return map[string]string{"list": "list", "mapping": "section"}[f.tag.Get("kind")]
	case f.tag.Get("kind") == "id":
		return "id"
	case f.tag.Get("kind") == "subject":
		return "subject or list of subjects"
	case f.tag.Get("kind") == "address":
		return "host:port"
	}
	return kinds[f.elem]
}

// shared returns the end of the fields from i on that the comment of field i describes: it names the later ones,
// which have none.
func shared(fields []field, i int) int {
	end := i + 1
	for end < len(fields) && fields[end].text == "" && word(fields[end].goName).MatchString(fields[i].text) {
		end++
	}
	return end
}

// head returns a field's name with its type and bounds, and a link to the section that it contains, if any.
func (f field) head(link string) string {
	kind := f.kind()
	switch {
	case f.table:
		kind = "names with " + kind
	case f.tag.Get("kind") == "labels":
		kind = "`agents` or list"
	case f.list && (kind == "" || kind == "text"):
		kind = "list"
	case kind == "":
		kind = "section"
	case f.list:
		kind = "list of " + kind
	}
	var facts []string
	if kind != "text" && !f.explained() && (link == "" || kind != "section") {
		facts = append(facts, kind)
	}
	if strings.HasSuffix(f.tag.Get("yaml"), ",required") {
		facts = append(facts, "required")
	}
	if bounds := f.bounds(); bounds != "" {
		facts = append(facts, bounds)
	}
	for _, c := range [][2]string{{"needs", "only with "}, {"excludes", "not with "}} {
		list := f.tag.Get(c[0])
		if list == "dialect" {
			list = "kind=" + strings.Join(providers.KindsWith(f.name), "` or `kind=")
		}
		if list != "" {
			facts = append(facts, c[1]+"`"+strings.NewReplacer(",", "` and `", "=", ": ").Replace(list)+"`")
		}
	}
	if def := f.tag.Get("default"); def != "" {
		facts = append(facts, "default `"+def+"`")
	}
	if f.tag.Get("reload") == "restart" {
		facts = append(facts, "restart")
	}
	name := "**`" + f.name + "`**"
	if link != "" {
		name = "**[`" + f.name + "`](" + link + ")**"
	}
	if len(facts) > 0 {
		name += " (" + strings.Join(facts, ", ") + ")"
	}
	return name
}

// bounds describes the range of a field.
func (f field) bounds() string {
	low, high := f.ends()
	_, unit, _ := strings.Cut(f.tag.Get("range"), " ")
	words := ""
	switch {
	case low != "" && high != "":
		words = low + " to " + high
	case high != "":
		words = "at most " + high
	case low != "" && !f.list: // lists that allow something are left out to allow all
		words = "at least " + low
	}
	if words == "" || unit == "" {
		return words
	}
	return words + " " + unit
}

// ends are the ends of a field's range.
func (f field) ends() (low, high string) {
	text, _, _ := strings.Cut(f.tag.Get("range"), " ")
	low, high, _ = strings.Cut(text, "..")
	return low, high
}

func word(name string) *regexp.Regexp { return regexp.MustCompile(`\b` + name + `\b`) }

// named replaces Go field names in a comment by their names in the file.
func named(text string, fields []field) string {
	text = escape(strings.Join(strings.Fields(text), " "))
	for _, f := range fields {
		name := "`" + f.name + "`"
		if after, ok := strings.CutPrefix(text, f.goName+" "); ok {
			text = name + " " + after
		}
		if !otherwiseWords[f.goName] {
			text = word(f.goName).ReplaceAllLiteralString(text, name)
		}
	}
	return text
}

// otherwiseWords are field names that have another meaning within a sentence.
var otherwiseWords = map[string]bool{"Redis": true, "TLS": true}

// predicate drops the subject from "x is the ..." or "x limits ..." if x already precedes it.
func predicate(text, subject string) string {
	after, ok := strings.CutPrefix(text, subject+" ")
	if !ok || strings.HasPrefix(after, "and ") || strings.HasPrefix(after, "of ") {
		return text
	}
	for _, verb := range []string{"is ", "are "} {
		after = strings.TrimPrefix(after, verb)
	}
	return strings.ToUpper(after[:1]) + after[1:]
}

// escape escapes Markdown in a comment.
func escape(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(text)
}

var page = regexp.MustCompile(`docs/([\w-]+)\.md`)

// linked makes links of the pages that a comment names.
func linked(text string) string { return page.ReplaceAllString(text, "[$1](../$1.md)") }

// anchor returns GitHub's anchor for a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return -1
	}, heading)
}
