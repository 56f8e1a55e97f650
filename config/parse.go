package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
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
	d := &document{name: name, getenv: getenv, marks: map[string]mark{}, anchors: map[string]ast.Node{}}
	cfg := &Config{Name: name}
	setDefaults(reflect.ValueOf(cfg).Elem())
	if root := d.root(data); root != nil {
		d.section("", root, reflect.ValueOf(cfg).Elem())
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
	lines   []string
	anchors map[string]ast.Node
	marks   map[string]mark // by path, where the value stands
	nodes   int             // decoded so far, aliases counted each time
	tooBig  bool
	errs    Errors
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
	if at.line <= len(d.lines) && strings.Contains(d.lines[at.line-1], "${") && strings.Contains(text, "must be specified") {
		text = `braces inside { } or [ ] need quotes: "${NAME}"`
	}
	d.fail(at, "", "%s", text)
}

// fail records an error at a place.
func (d *document) fail(at mark, path, format string, args ...any) {
	e := &Error{File: d.name, Line: at.line, Column: at.col, Path: path, width: at.width, Message: fmt.Sprintf(format, args...)}
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
	return mark{line: t.Position.Line, col: t.Position.Column, width: max(1, utf8.RuneCountInString(strings.TrimSpace(shown)))}
}
