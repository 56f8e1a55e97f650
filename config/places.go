package config

import (
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Places are where the parts of a file are, for remarks about one that is right.
type Places struct{ doc *document }

// LoadPlaces reads the file at path. It has no place where the file is no YAML.
func LoadPlaces(path string) (*Places, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &document{
		name: path, getenv: os.LookupEnv, absent: map[string]bool{}, marks: map[string]mark{},
		anchors: map[string]ast.Node{},
	}
	if root := d.root(data); root != nil {
		d.section("", root, reflect.ValueOf(&Config{}).Elem())
	}
	return &Places{d}, nil
}

// At is a remark about the value at a path, such as providers[0].base_url, in the form of an
// error; about the nearest part around it where the file does not have it.
func (p *Places) At(path, message string) *Error {
	at := p.doc.markAt(path)
	return &Error{
		File: p.doc.name, Path: path, Message: message, Line: at.line, Column: at.col, width: at.width,
		Source: mask(strings.TrimRight(p.doc.line(at.line), "\r")),
	}
}
