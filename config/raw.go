package config

import (
	"errors"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/llmguard/llmguard/pricing"
)

// raw cuts a top-level value out of the source, to be parsed by another package.
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
	case f.Kind == "list" && !isList, f.Kind == "mapping" && !isMap:
		d.mistakes.fail(markOf(value), path, "expected a %s, got %s%s", f.Kind, describe(value), priceForm(path))
		return Raw{}
	}
	d.mistakes.markElements(path, value)
	root, _ := parent.(*ast.MappingNode)
	if root == nil || root.IsFlowStyle || value != pair.Value {
		return Raw{YAML: []byte(value.String()), Line: markOf(value).line, rendered: true}
	}
	first, last := markOf(value), len(d.mistakes.lines)
	if i+1 < len(root.Values) {
		last = markOf(root.Values[i+1].Key).line - 1
	}
	lines := slices.Clone(d.mistakes.lines[first.line-1 : last])
	if runes := []rune(lines[0]); strings.TrimSpace(string(runes[:first.col-1])) != "" &&
		!strings.HasPrefix(strings.TrimSpace(lines[0]), "-") {
		// The value is on the line of its name, which is replaced by as many spaces, so that errors
		// have the right column.
		lines[0] = strings.Repeat(" ", first.col-1) + string(runes[first.col-1:])
	}
	return Raw{YAML: []byte(strings.Join(lines, "\n")), Line: first.line}
}

// markElements records the places of the parts of a raw value.
func (m *mistakes) markElements(path string, value ast.Node) {
	if seq, ok := value.(*ast.SequenceNode); ok {
		for i, element := range seq.Values {
			m.marks[path+"["+strconv.Itoa(i)+"]"] = markOf(element)
		}
	}
	pairs, _ := entries(value)
	for _, pair := range pairs {
		m.marks[join(path, pair.Key.GetToken().Value)] = placeOf(pair)
	}
}

// checkPrices lets package pricing parse its parts, and maps its errors to places in the file.
func checkPrices(m *mistakes, cfg *Config) {
	readPrices(m, cfg)
	base, err := cfg.Catalogue()
	if err != nil {
		m.failAt("prices", "the built-in catalogue: %s", err)
		return
	}
	if list, err := pricing.ParseEntries(cfg.Prices.YAML); err != nil {
		m.failRaw("prices", cfg.Prices, err)
	} else {
		checkOverrides(m, base, list)
	}
	if _, err := cfg.UnknownModelEntry(); err != nil {
		path := "unknown_model_price"
		if rule, ok := errors.AsType[*matchRuleError](err); ok {
			path = join(path, rule.field)
		}
		m.failRaw(path, cfg.UnknownModelPrice, err)
	}
}

// checkOverrides checks every entry against the catalogue and the entries before it.
func checkOverrides(m *mistakes, base *pricing.Catalogue, list []pricing.Entry) {
	index := make([]int, len(list)) // original indexes of the remaining list
	for i := range list {
		index[i] = i
	}
	const most = 20
	for range most {
		if _, err := base.With(list); err == nil {
			return
		}
		i := sort.Search(len(list)-1, func(i int) bool {
			_, err := base.With(list[:i+1])
			return err != nil
		})
		_, why := base.With(list[:i+1])
		m.failAt("prices["+strconv.Itoa(index[i])+"]", "%s", plain(why))
		list, index = slices.Delete(list, i, i+1), slices.Delete(index, i, i+1)
	}
}

// failRaw records an error of package pricing at the place that the error names.
func (m *mistakes) failRaw(path string, raw Raw, err error) {
	var ye yaml.Error
	if raw.rendered || !errors.As(err, &ye) || ye.GetToken() == nil || ye.GetToken().Position == nil {
		m.failAt(path, "%s", plain(err))
		return
	}
	at := markOfToken(ye.GetToken())
	at.line += raw.Line - 1
	m.fail(at, path, "%s%s", ye.GetMessage(), priceForm(path))
}

// priceForm returns the end of errors in the form of prices.
func priceForm(path string) string {
	form := "prices: [{input: 2.5, output: 10}]"
	if !strings.HasPrefix(path, "unknown_model_price") {
		form = "[{model: NAME, " + form + "}]"
	}
	return "; expected " + form + ", in USD per million tokens"
}

func plain(err error) string {
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		return ye.GetMessage() // without its own excerpt of the source
	}
	return strings.TrimPrefix(err.Error(), "pricing: ")
}

// UnknownModel is the name in metrics of all models priced by unknown_model_price, because a series
// per spelling would be too many.
const UnknownModel = "unknown"

// matchRuleError is a match rule in a place without anything to match.
type matchRuleError struct{ field string }

func (e *matchRuleError) Error() string {
	return e.field + " is not allowed here: this price is for every model that is not in the catalogue; for a model of " +
		"your own, add an entry under prices"
}

// UnknownModelEntry parses UnknownModelPrice; nil if the file has none. After Parse it does not
// return an error.
func (c *Config) UnknownModelEntry() (*pricing.Entry, error) {
	if len(c.UnknownModelPrice.YAML) == 0 {
		return nil, nil
	}
	var e pricing.Entry
	if err := yaml.Unmarshal(c.UnknownModelPrice.YAML, &e); err != nil {
		return nil, err
	}
	for _, rule := range []struct {
		field string
		given bool
	}{
		{"model", e.Model != ""},
		{"provider", e.Provider != ""},
		{"names", len(e.Names) > 0},
		{"prefixes", len(e.Prefixes) > 0},
	} {
		if rule.given {
			return nil, &matchRuleError{rule.field}
		}
	}
	e.Model = UnknownModel
	if _, err := pricing.New("", []pricing.Entry{e}); err != nil {
		return nil, errors.Unwrap(err) // without the name, which is not in the file
	}
	return &e, nil
}
