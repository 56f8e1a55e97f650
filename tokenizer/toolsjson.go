package tokenizer

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

	errNotTools = errors.New("tokenizer: not an array of tool definitions")
)

func newDecoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
}

// parseTools parses "tools" ({type, function: {...}} or flat) or "functions".
func parseTools(raw []byte) ([]toolDefinition, error) {
	d := newDecoder(raw)
	if d.PeekKind() != '[' {
		return nil, errNotTools
	}
	var tools []toolDefinition
	err := elements(d, func() error {
		var t toolDefinition
		if d.PeekKind() != '{' {
			return errNotTools
		}
		if err := t.parse(d, 0); err != nil {
			return err
		}
		tools = append(tools, t)
		return nil
	})
	return tools, err
}

func (t *toolDefinition) parse(d *jsontext.Decoder, depth int) error {
	return members(d, func(name string) (err error) {
		switch {
		case (name == "function" || name == "custom") && depth == 0 && d.PeekKind() == '{':
			err = t.parse(d, 1)
		case name == "name":
			t.name, err = stringValue(d)
		case name == "description":
			t.description, err = stringValue(d)
		case name == "parameters":
			t.parameters, err = parseSchema(d, 0)
		default:
			err = d.SkipValue()
		}
		return err
	})
}

// parseSchema parses one schema; anything but an object counts as an empty one.
func parseSchema(d *jsontext.Decoder, depth int) (*schema, error) {
	s := new(schema)
	if d.PeekKind() != '{' || depth > schemaDepth {
		return s, d.SkipValue()
	}
	err := members(d, func(name string) error { return s.parseMember(d, name, depth) })
	return s, err
}

func (s *schema) parseMember(d *jsontext.Decoder, name string, depth int) (err error) {
	kind := d.PeekKind()
	switch {
	case name == "type" && kind == '"':
		s.types = make([]string, 1)
		s.types[0], err = stringValue(d)
	case name == "type" && kind == '[':
		s.types, err = stringValues(d)
	case name == "description":
		s.description, err = stringValue(d)
	case name == "properties" && kind == '{':
		err = members(d, func(name string) error {
			p, err := parseSchema(d, depth+1)
			s.properties = append(s.properties, property{name, *p})
			return err
		})
	case name == "required" && kind == '[':
		var names []string
		names, err = stringValues(d)
		s.required = make(map[string]bool, len(names))
		for _, name := range names {
			s.required[name] = true
		}
	case name == "enum" && kind == '[':
		err = elements(d, func() error { return s.addEnum(d) })
	case name == "const":
		err = s.addEnum(d)
	case name == "items":
		s.items, err = parseSchema(d, depth+1)
	case (name == "anyOf" || name == "oneOf") && kind == '[':
		err = elements(d, func() error {
			option, err := parseSchema(d, depth+1)
			s.anyOf = append(s.anyOf, option)
			return err
		})
	default:
		err = d.SkipValue()
	}
	return err
}

// addEnum adds the next value in its rendered form: strings in plain quotes.
func (s *schema) addEnum(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		text, err := stringValue(d)
		s.enum = append(s.enum, `"`+text+`"`)
		return err
	}
	v, err := d.ReadValue()
	s.enum = append(s.enum, string(v))
	return err
}

// members calls f with the name of each member of the next object; f must read the value.
func members(d *jsontext.Decoder, f func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := f(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// elements calls f before each element of the next array; f must read it.
func elements(d *jsontext.Decoder, f func() error) error {
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := f(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// stringValue reads the next value: the text of a string, "" for others.
func stringValue(d *jsontext.Decoder) (string, error) {
	if d.PeekKind() != '"' {
		return "", d.SkipValue()
	}
	t, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// stringValues reads the strings of the next array.
func stringValues(d *jsontext.Decoder) ([]string, error) {
	var out []string
	err := elements(d, func() error {
		s, err := stringValue(d)
		out = append(out, s)
		return err
	})
	return out, err
}
