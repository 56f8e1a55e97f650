package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/llmguard/llmguard/pricing"
)

// raw cuts a top-level value out of the source, for another package to read.
func (d *document) raw(path string, parent ast.Node, i int, pair *ast.MappingValueNode, f field) Raw {
	value, ok := d.resolve(path, pair.Value)
	if !ok {
		return Raw{}
	}
	_, isList := value.(*ast.SequenceNode)
	_, isMap := entries(value)
	switch {
	case value.Type() == ast.NullType:
		return Raw{}
	case f.kind == "list" && !isList, f.kind == "mapping" && !isMap:
		d.fail(markOf(value), path, "expected a %s, got %s", f.kind, describe(value))
		return Raw{}
	}
	root, _ := parent.(*ast.MappingNode)
	if root == nil || root.IsFlowStyle || value != pair.Value {
		return Raw{YAML: []byte(value.String()), Line: markOf(value).line}
	}
	first, last := markOf(value), len(d.lines)
	if i+1 < len(root.Values) {
		last = markOf(root.Values[i+1].Key).line - 1
	}
	lines := slices.Clone(d.lines[first.line-1 : last])
	if runes := []rune(lines[0]); strings.TrimSpace(string(runes[:first.col-1])) != "" && !strings.HasPrefix(strings.TrimSpace(lines[0]), "-") {
		lines[0] = string(runes[first.col-1:]) // on the line of its name
	}
	return Raw{YAML: []byte(strings.Join(lines, "\n")), Line: first.line}
}

// prices lets package pricing read its part, and points at what it refuses.
func (d *document) prices(cfg *Config) {
	if d.given("unknown_model_price") && !d.broken("unknown_model_price") {
		d.failAt("unknown_model_price", "is not built yet; write an entry for the model under prices")
	}
	raw := cfg.Prices
	if len(raw.YAML) == 0 {
		return
	}
	entries, err := pricing.ParseEntries(raw.YAML)
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil && ye.GetToken().Position != nil {
		at := markOfToken(ye.GetToken())
		at.line += raw.Line - 1
		d.fail(at, "prices", "%s", ye.GetMessage())
		return
	}
	if err == nil {
		var base *pricing.Catalogue
		if base, err = pricing.Embedded(); err == nil {
			_, err = base.With(entries)
		}
	}
	if err != nil {
		d.failAt("prices", "%s", strings.TrimPrefix(err.Error(), "pricing: "))
	}
}
