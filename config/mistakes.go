package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// mistakes collects the mistakes in a file, and the places of its values.
type mistakes struct {
	name  string
	lines []string
	marks map[string]mark // places of values, by path
	// absent has, by path, why a value was replaced by a placeholder.
	absent map[string]string
	errs   Errors
}

// mark is a place in the file; the zero mark means none.
type mark struct{ line, col, width int }

// syntaxHints are fixes for the parser's most common errors.
var syntaxHints = []struct{ in, hint string }{
	{"found character '\t'", "this line is indented with a tab; YAML requires spaces"},
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
	{"value is not allowed in this context", "the indentation does not match the lines above"},
	{"could not find flow map content", `a name is missing between these commas or braces`},
	{"undefined alias", "a plain * refers to an anchor; put the pattern in quotes"},
}

func (m *mistakes) syntax(err error) {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil || ye.GetToken().Position == nil {
		m.failAt("", "%v", err)
		return
	}
	at, text := markOfToken(ye.GetToken()), "not valid YAML: "+ye.GetMessage()
	for _, h := range syntaxHints {
		if strings.Contains(ye.GetMessage(), h.in) {
			text = h.hint
			break
		}
	}
	switch line := m.line(at.line); {
	case m.openQuote(at.line) > 0:
		at, text = m.quoteMark(m.openQuote(at.line)), "a quote is opened on this line and not closed"
	case strings.Contains(line, "${") && strings.Contains(text, "is missing before"):
		text = `braces inside { } or [ ] need quotes: "${NAME}"`
	case strings.Contains(ye.GetMessage(), "mapping value is not allowed") && indent(m.line(at.line+1)) > indent(line):
		at = mark{line: at.line + 1, col: indent(m.line(at.line+1)) + 1, width: 1}
		text = "this line is indented deeper than the one above, which already has a value"
	}
	m.fail(at, "", "%s", text)
}

// line returns a line of the file, or "" outside of it.
func (m *mistakes) line(n int) string {
	if n < 1 || n > len(m.lines) {
		return ""
	}
	return m.lines[n-1]
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// openQuote finds the first line up to the given one with an odd number of double quotes, which is
// a likely cause of invalid YAML.
func (m *mistakes) openQuote(upTo int) int {
	for n := 1; n <= upTo && n <= len(m.lines); n++ {
		line, _, _ := strings.Cut(m.line(n), " #")
		if strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1 {
			return n
		}
	}
	return 0
}

// quoteMark returns the place of the last double quote on a line.
func (m *mistakes) quoteMark(n int) mark {
	before := m.line(n)[:strings.LastIndex(m.line(n), `"`)]
	return mark{line: n, col: utf8.RuneCountInString(before) + 1, width: 1}
}

// fail records an error at a place.
func (m *mistakes) fail(at mark, path, format string, args ...any) {
	for absent := range m.absent {
		if absent == path || strings.HasPrefix(absent, path+"[") {
			return // a placeholder may be invalid
		}
	}
	e := &Error{File: m.name, Line: at.line, Column: at.col, Path: path, width: at.width}
	e.Message = secretText.ReplaceAllString(fmt.Sprintf(format, args...), "****") // a key in the wrong place
	e.Source = mask(strings.TrimRight(m.line(at.line), "\r"))
	m.errs = append(m.errs, e)
}

// hide masks the rest of a line, from a place on, in all errors.
func (m *mistakes) hide(at mark) {
	runes := []rune(m.line(at.line))
	m.lines[at.line-1] = string(runes[:min(at.col-1, len(runes))]) + "****"
	for _, e := range m.errs {
		if e.Line == at.line {
			e.Source = mask(m.lines[at.line-1])
		}
	}
}

// failAt records an error about the value at path, or about its nearest parent in the file.
func (m *mistakes) failAt(path, format string, args ...any) {
	m.fail(m.markAt(path), path, format, args...)
}

func (m *mistakes) markAt(path string) mark {
	for p := path; p != ""; {
		if at, ok := m.marks[p]; ok {
			return at
		}
		p = p[:max(0, strings.LastIndexAny(p, ".["))]
	}
	return mark{}
}

// given reports whether the file has a value at path.
func (m *mistakes) given(path string) bool {
	_, ok := m.marks[path]
	return ok
}

// broken reports whether the value at path, or one in it, could not be read, so that missing parts
// of it need not be reported as well.
func (m *mistakes) broken(path string) bool {
	return slices.ContainsFunc(m.errs, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".") || strings.HasPrefix(e.Path, path+"[")
	})
}

// markOf returns where a node begins: at its first key for a block mapping, at its own token
// otherwise.
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

// Places locates values in the file, for remarks about a valid one.
type Places struct{ found *mistakes }

// LoadPlaces reads the file at path. If it is not valid YAML, no place is known.
func LoadPlaces(path string) (*Places, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := newDocument(path, os.LookupEnv)
	d.optional = always
	if root := d.root(data); root != nil {
		d.section("", root, reflect.ValueOf(&Config{}).Elem())
	}
	return &Places{&d.mistakes}, nil
}

// At returns a remark about the value at a path, such as providers[0].base_url, in the form of an
// error. If the file does not have the value, the remark is about its nearest parent.
func (p *Places) At(path, message string) *Error {
	at := p.found.markAt(path)
	return &Error{
		File: p.found.name, Path: path, Message: message, Line: at.line, Column: at.col, width: at.width,
		Source: mask(strings.TrimRight(p.found.line(at.line), "\r")),
	}
}

// describe describes a node in an error.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.StringNode:
		return "the text " + mask(quote(n.Value))
	}
	return "text"
}
