package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile is far above any sane configuration: 10,000 users are 3 MB.
const maxFile = 64 << 20

// Load reads and checks the file at path with the process's environment. The
// error is Errors when the file could be read but is wrong.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return Parse(path, data, os.LookupEnv)
}

// Parse reads and checks data. The name stands for the file in errors, and
// getenv for the environment (os.LookupEnv). The error is of type Errors and
// holds everything that is wrong; the Config is nil then.
func Parse(name string, data []byte, getenv func(string) (string, bool)) (*Config, error) {
	return parseConfig(&document{name: name, getenv: getenv}, data)
}

// ParsePolicy is Parse for who only decides by a configuration and connects to nothing:
// variables without a value or a default, and files of secrets, need not be there.
func ParsePolicy(name string, data []byte, getenv func(string) (string, bool)) (*Config, error) {
	return parseConfig(&document{name: name, getenv: getenv, absent: map[string]bool{}}, data)
}

func parseConfig(d *document, data []byte) (*Config, error) {
	name := d.name
	d.files = true
	d.marks = map[string]mark{}
	d.anchors = map[string]ast.Node{}
	cfg := &Config{Name: name, Sum: sha256.Sum256(data)}
	setDefaults(reflect.ValueOf(cfg).Elem())
	if root := d.root(data); root != nil {
		d.section("", root, reflect.ValueOf(cfg).Elem())
		cfg.Literals = d.literals
		if !d.tooBig {
			d.finish(cfg)
			d.validate(cfg)
		}
	}
	if len(d.errs) > 0 {
		d.errs.sort()
		return nil, d.errs
	}
	return cfg, nil
}

// document is one file being read.
type document struct {
	name    string
	getenv  func(string) (string, bool)
	files   bool // secrets may be in files of their own
	lines   []string
	anchors map[string]ast.Node
	marks   map[string]mark // by path, where the value stands
	// absent are the paths of values that something stands in for, because the environment or
	// a file does not have them; nil: that is an error.
	absent map[string]bool
	// literals are the paths of secrets that are written here.
	literals []string
	nodes    int // decoded so far, aliases counted each time
	tooBig   bool
	errs     Errors
}

// mark is a place in the file; the zero mark is none.
type mark struct{ line, col, width int }

// root parses the text and returns the one document's mapping, or nil after
// recording why there is none.
func (d *document) root(data []byte) ast.Node {
	if len(data) > maxFile {
		d.failAt("", "the file has %d bytes, more than %d", len(data), maxFile)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	d.lines = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	for i, line := range d.lines {
		if !utf8.ValidString(line) {
			d.fail(mark{line: i + 1, col: 1, width: 1}, "", "the line is not valid UTF-8")
			return nil
		}
	}
	file, err := parse(data)
	if err != nil {
		d.syntax(err)
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		d.failAt("", "the file is empty; it needs at least providers and orgs")
		return nil
	case 1:
		ast.Walk(anchors(d.anchors), bodies[0])
		return bodies[0]
	default:
		d.fail(markOf(bodies[1]), "", "a second YAML document begins here; put everything into one")
		return nil
	}
}

// parse is the YAML parser, whose panics on odd input become errors.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not readable as YAML: %v", r)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// anchors collects the values that aliases stand for.
type anchors map[string]ast.Node

func (a anchors) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil && anchor.Value != nil {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// syntaxHints say what to do about the parser's commonest complaints.
var syntaxHints = []struct{ in, hint string }{
	{"found character '\t'", "a tab indents this line; YAML wants spaces"},
	{"mapping value is not allowed", `a ": " inside plain text; put the text in quotes`},
	{"unexpected key name", `expected "name: value"; a name needs ": ", with a space, after it`},
	{"unexpected scalar value", `a text that begins with * needs quotes: "*"`},
	{"',' or ']' must be specified", `"]" or "," is missing before this`},
	{"',' or '}' must be specified", `"}" or "," is missing before this`},
	{"could not find end character of double-quoted", `the quote that opens here is never closed`},
	{"could not find end character of single-quoted", `the quote that opens here is never closed`},
	{"is a reserved character", "the character has a meaning in YAML; put the text in quotes"},
	{"unexpected directive value", "a value that begins with % needs quotes"},
	{"non-map value is specified", `expected "name: value" here; a name needs ": " (with a space) after it`},
	{"value is not allowed in this context", "the indentation does not fit the lines above"},
	{"undefined alias", "a plain * refers to an anchor; put the pattern in quotes"},
}

func (d *document) syntax(err error) {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil || ye.GetToken().Position == nil {
		d.failAt("", "%v", err)
		return
	}
	at, text := markOfToken(ye.GetToken()), "not valid YAML: "+ye.GetMessage()
	for _, h := range syntaxHints {
		if strings.Contains(ye.GetMessage(), h.in) {
			text = h.hint
			break
		}
	}
	switch line := d.line(at.line); {
	case d.openQuote(at.line) > 0:
		at, text = d.quoteMark(d.openQuote(at.line)), "a quote is opened on this line and not closed"
	case strings.Contains(line, "${") && strings.Contains(text, "is missing before"):
		text = `braces inside { } or [ ] need quotes: "${NAME}"`
	case strings.Contains(ye.GetMessage(), "mapping value is not allowed") && indent(d.line(at.line+1)) > indent(line):
		at = mark{line: at.line + 1, col: indent(d.line(at.line+1)) + 1, width: 1}
		text = "this line is indented deeper than the one above, which already has a value"
	}
	d.fail(at, "", "%s", text)
}

// line returns a line of the file, or nothing outside of it.
func (d *document) line(n int) string {
	if n < 1 || n > len(d.lines) {
		return ""
	}
	return d.lines[n-1]
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// openQuote finds the first line up to the given one with an odd number of
// double quotes: when the YAML is broken, that is likely the cause.
func (d *document) openQuote(upTo int) int {
	for n := 1; n <= upTo && n <= len(d.lines); n++ {
		line, _, _ := strings.Cut(d.line(n), " #")
		if strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1 {
			return n
		}
	}
	return 0
}

// quoteMark is the place of the last double quote on a line.
func (d *document) quoteMark(n int) mark {
	before := d.line(n)[:strings.LastIndex(d.line(n), `"`)]
	return mark{line: n, col: utf8.RuneCountInString(before) + 1, width: 1}
}

// fail records an error at a place.
func (d *document) fail(at mark, path, format string, args ...any) {
	for absent := range d.absent {
		if absent == path || strings.HasPrefix(absent, path+"[") {
			return // what stands in for a value may be wrong
		}
	}
	e := &Error{File: d.name, Line: at.line, Column: at.col, Path: path, width: at.width}
	e.Message = secretText.ReplaceAllString(fmt.Sprintf(format, args...), "****") // a key in a wrong place
	if at.line > 0 && at.line <= len(d.lines) {
		e.Source = mask(strings.TrimRight(d.lines[at.line-1], "\r"))
	}
	d.errs = append(d.errs, e)
}

// failAt records an error about the value at path, or about the nearest part
// around it that is in the file.
func (d *document) failAt(path, format string, args ...any) {
	d.fail(d.markAt(path), path, format, args...)
}

func (d *document) markAt(path string) mark {
	for p := path; p != ""; {
		if at, ok := d.marks[p]; ok {
			return at
		}
		p = p[:max(0, strings.LastIndexAny(p, ".["))]
	}
	return mark{}
}

// given reports whether the file has a value at path.
func (d *document) given(path string) bool {
	_, ok := d.marks[path]
	return ok
}

// broken reports whether the value at path, or one in it, could not be read,
// so that what is missing there need not be reported as well.
func (d *document) broken(path string) bool {
	return slices.ContainsFunc(d.errs, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".") || strings.HasPrefix(e.Path, path+"[")
	})
}

// join appends a field's name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// markOf is where a node begins: at its first key for a block mapping, at its
// own token otherwise.
func markOf(n ast.Node) mark {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return markOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return markOf(n.Key)
	}
	return markOfToken(n.GetToken())
}

func markOfToken(t *token.Token) mark {
	if t == nil || t.Position == nil {
		return mark{}
	}
	shown, _, _ := strings.Cut(strings.TrimSpace(t.Origin), "\n")
	return mark{
		line: t.Position.Line, col: t.Position.Column,
		width: max(1, utf8.RuneCountInString(strings.TrimSpace(shown))),
	}
}
