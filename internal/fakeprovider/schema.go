package fakeprovider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// schema is the supported part of JSON Schema.
type schema struct {
	Ref         string            `json:"$ref"`
	Type        typeNames         `json:"type"`
	Enum        []json.RawMessage `json:"enum"`
	Const       json.RawMessage   `json:"const"`
	Properties  properties        `json:"properties"`
	Required    []string          `json:"required"`
	Items       *schema           `json:"items"`
	MinItems    int               `json:"minItems"`
	MinLength   int               `json:"minLength"`
	MaxLength   *int              `json:"maxLength"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	Format      string            `json:"format"`
	AnyOf       []*schema         `json:"anyOf"`
	OneOf       []*schema         `json:"oneOf"`
	Defs        properties        `json:"$defs"`
	Definitions properties        `json:"definitions"`
}

// typeNames is "type": a name or a list of names.
type typeNames []string

// UnmarshalJSON accepts both forms.
func (t *typeNames) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = typeNames{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// properties keeps their order, in which models write them.
type properties []property

type property struct {
	name   string
	schema *schema
}

// UnmarshalJSON reads an object and keeps its order.
func (p *properties) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("properties: not an object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		prop := property{name: name.(string), schema: &schema{}}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if err := json.Unmarshal(raw, prop.schema); err != nil && string(raw) != "true" {
			return err
		}
		*p = append(*p, prop)
	}
	return nil
}

func (p properties) get(name string) *schema {
	i := slices.IndexFunc(p, func(one property) bool { return one.name == name })
	if i < 0 {
		return nil
	}
	return p[i].schema
}

// instance generates a compact JSON value that satisfies the schema. It ignores patterns,
// conditions, multiples and allOf.
func instance(rng *rand.Rand, raw json.RawMessage) (string, error) {
	root := &schema{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, root); err != nil {
			return "", err
		}
	}
	g := &generator{rng: rng, root: root}
	g.value(root, 0)
	return g.out.String(), nil
}

type generator struct {
	rng  *rand.Rand
	root *schema
	out  bytes.Buffer
}

// maxDepth limits recursion: deeper values are as small as possible.
const maxDepth = 6

func (g *generator) value(s *schema, depth int) {
	s = g.resolve(s)
	if depth > 4*maxDepth { // a schema that recurses without end
		g.out.WriteString("null")
		return
	}
	switch {
	case len(s.Const) > 0:
		g.compact(s.Const)
	case len(s.Enum) > 0:
		g.compact(s.Enum[g.rng.IntN(len(s.Enum))])
	case len(s.AnyOf) > 0:
		g.value(g.choose(s.AnyOf, depth), depth+1)
	case len(s.OneOf) > 0:
		g.value(g.choose(s.OneOf, depth), depth+1)
	default:
		g.typed(s, depth)
	}
}

func (g *generator) compact(raw json.RawMessage) {
	if err := json.Compact(&g.out, raw); err != nil {
		g.out.WriteString("null")
	}
}

// resolve follows $ref.
func (g *generator) resolve(s *schema) *schema {
	for range 16 {
		if s.Ref == "" {
			return s
		}
		s = g.lookup(s.Ref)
	}
	return &schema{}
}

func (g *generator) lookup(ref string) *schema {
	if ref == "#" {
		return g.root
	}
	for prefix, defs := range map[string]properties{"#/$defs/": g.root.Defs, "#/definitions/": g.root.Definitions} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			if found := defs.get(name); found != nil {
				return found
			}
		}
	}
	return &schema{}
}

// choose picks the first alternative that is not null, or null below maxDepth.
func (g *generator) choose(list []*schema, depth int) *schema {
	for _, s := range list {
		if isNull := slices.Contains(s.Type, "null"); isNull == (depth >= maxDepth) {
			return s
		}
	}
	return list[0]
}

func (g *generator) typed(s *schema, depth int) {
	switch s.kind(depth) {
	case "object":
		g.object(s, depth)
	case "array":
		g.array(s, depth)
	case "integer", "number":
		g.number(s)
	case "boolean":
		fmt.Fprint(&g.out, g.rng.IntN(2) == 0)
	case "null":
		g.out.WriteString("null")
	default:
		text, _ := json.Marshal(g.text(s))
		g.out.Write(text)
	}
}

// kind picks one type, and guesses if none is given.
func (s *schema) kind(depth int) string {
	if depth >= maxDepth && slices.Contains(s.Type, "null") {
		return "null"
	}
	for _, t := range s.Type {
		if t != "null" {
			return t
		}
	}
	switch {
	case len(s.Type) > 0:
		return "null"
	case s.Properties != nil || s.Defs != nil:
		return "object"
	case s.Items != nil:
		return "array"
	}
	return "string"
}

func (g *generator) object(s *schema, depth int) {
	g.out.WriteByte('{')
	first := true
	for _, p := range s.Properties {
		if depth >= maxDepth && !slices.Contains(s.Required, p.name) {
			continue
		}
		if !first {
			g.out.WriteByte(',')
		}
		first = false
		name, _ := json.Marshal(p.name)
		g.out.Write(name)
		g.out.WriteByte(':')
		g.value(p.schema, depth+1)
	}
	g.out.WriteByte('}')
}

func (g *generator) array(s *schema, depth int) {
	n := max(s.MinItems, 1+g.rng.IntN(2))
	if depth >= maxDepth {
		n = s.MinItems
	}
	g.out.WriteByte('[')
	for i := range n {
		if i > 0 {
			g.out.WriteByte(',')
		}
		if s.Items == nil {
			g.out.WriteString(`"item"`)
			continue
		}
		g.value(s.Items, depth+1)
	}
	g.out.WriteByte(']')
}

// number writes an integer within the bounds.
func (g *generator) number(s *schema) {
	low, high := 1.0, 100.0
	switch {
	case s.Minimum != nil:
		low, high = *s.Minimum, *s.Minimum+99
	case s.Maximum != nil:
		low = *s.Maximum - 99
	}
	if s.Maximum != nil {
		high = *s.Maximum
	}
	low = math.Ceil(low)
	span := max(min(math.Floor(high)-low, 1e6), 0)
	raw, _ := json.Marshal(low + float64(g.rng.IntN(int(span)+1)))
	g.out.Write(raw)
}

// formats are example values of common string formats.
var formats = map[string]string{
	"date": "2026-03-14", "date-time": "2026-03-14T15:09:26Z", "time": "15:09:26Z",
	"duration": "P1DT2H", "email": "ada@example.com", "hostname": "example.com",
	"uri": "https://example.com/", "uuid": "6f1c2d1e-7a35-4c0e-9b5a-2f1d8c3b4a59",
	"ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
}

func (g *generator) text(s *schema) string {
	if v, ok := formats[s.Format]; ok {
		return v
	}
	p := prose{rng: g.rng}
	text := strings.Join(p.take(int64(2+g.rng.IntN(4)), false), "")
	for len(text) < s.MinLength {
		text += p.next()
	}
	if s.MaxLength != nil && len(text) > *s.MaxLength {
		text = text[:max(*s.MaxLength, 0)]
	}
	return text
}
