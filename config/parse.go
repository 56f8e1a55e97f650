package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile is far larger than any reasonable configuration: 10,000 users are 3 MB.
const maxFile = 64 << 20

// Load reads and checks the file at path with the process's environment. If the file could be read
// but is invalid, the error is of type Errors.
func Load(path string) (*Config, error) { return load(path, never) }

// LoadOperator is Load for commands that call no provider: secrets that only calls, traces and alerts need may be
// missing in the environment or unusable. Config.Unset and Config.Unusable have them.
func LoadOperator(path string) (*Config, error) { return load(path, forCalls) }

func load(path string, optional func(path string, secret bool) bool) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	d := newDocument(path, os.LookupEnv)
	d.optional = optional
	return parseConfig(d, data)
}

// forCalls reports whether only calls need a value. Operators' commands store or compare others, such as peppers and
// the ids of pools.
func forCalls(path string, secret bool) bool {
	section, _, _ := strings.Cut(path, ".")
	return secret && (strings.HasPrefix(section, "providers[") || section == "tracing" || section == "alerts")
}

// Parse reads and checks data. name is the file's name in errors, and getenv looks up environment
// variables (os.LookupEnv). The error is of type Errors with all mistakes; the Config is nil then.
func Parse(name string, data []byte, getenv func(string) (string, bool)) (*Config, error) {
	return parseConfig(newDocument(name, getenv), data)
}

// LoadPolicy is Load for commands that only evaluate a configuration and do not connect: variables without a value or a
// default, and files of secrets, may be missing.
func LoadPolicy(path string) (*Config, error) { return load(path, always) }

func always(string, bool) bool { return true }

func never(string, bool) bool { return false }

func parseConfig(d *document, data []byte) (*Config, error) {
	name := d.mistakes.name
	d.files = true
	cfg := &Config{Name: name, Sum: sha256.Sum256(data)}
	setDefaults(reflect.ValueOf(cfg).Elem())
	if root := d.root(data); root != nil {
		d.section("", root, reflect.ValueOf(cfg).Elem())
		cfg.Literals, cfg.Unset, cfg.Unusable = d.literals, d.mistakes.absent, d.unusable
		if !d.tooBig {
			finish(&d.mistakes, cfg)
			validate(&d.mistakes, cfg)
		}
	}
	if len(d.mistakes.errs) > 0 {
		d.mistakes.errs.sort()
		return nil, d.mistakes.errs
	}
	cfg.lines = d.mistakes.limitLines()
	return cfg, nil
}

// document is one file being read.
type document struct {
	mistakes mistakes
	getenv   func(string) (string, bool)
	files    bool // secrets may be in separate files
	// optional reports whether a value that the environment or a file does not have is replaced by a placeholder.
	optional func(path string, secret bool) bool
	anchors  map[string]ast.Node
	// literals are the paths of secrets whose text is in this file.
	literals []string
	unusable map[string]string
	nodes    int // decoded so far, counting aliases each time
	tooBig   bool
}

func newDocument(name string, getenv func(string) (string, bool)) *document {
	return &document{
		mistakes: mistakes{name: name, marks: map[string]mark{}}, getenv: getenv, anchors: map[string]ast.Node{},
		optional: never, unusable: map[string]string{},
	}
}

// root parses the text and returns the mapping of its only document, or nil after recording why
// there is none.
func (d *document) root(data []byte) ast.Node {
	if len(data) > maxFile {
		d.mistakes.failAt("", "the file has %d bytes, more than %d", len(data), maxFile)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	d.mistakes.lines = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	for i, line := range d.mistakes.lines {
		if !utf8.ValidString(line) {
			d.mistakes.fail(mark{line: i + 1, col: 1, width: 1}, "", "the line is not valid UTF-8")
			return nil
		}
	}
	file, err := parse(data)
	if err != nil {
		d.mistakes.syntax(err)
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
		d.mistakes.failAt("", "the file is empty; it needs at least providers and orgs")
		return nil
	case 1:
		ast.Walk(anchors(d.anchors), bodies[0])
		return bodies[0]
	default:
		d.mistakes.fail(markOf(bodies[1]), "", "a second YAML document begins here; put everything into one")
		return nil
	}
}

// parse runs the YAML parser and converts its panics on unusual input to errors.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not readable as YAML: %v", r)
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// anchors collects the values that aliases refer to.
type anchors map[string]ast.Node

func (a anchors) Visit(n ast.Node) ast.Visitor {
	if anchor, ok := n.(*ast.AnchorNode); ok && anchor.Name != nil && anchor.Value != nil {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// join appends a field's name to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
