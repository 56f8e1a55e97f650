package pricing

import (
	"cmp"
	"fmt"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// The YAML form mirrors Entry. Its scalars are decoded from their source text, so that a decimal
// never becomes a float.
type (
	fileYAML struct {
		Unit   string                  `yaml:"unit"`
		AsOf   dateYAML                `yaml:"as_of"`
		Shared map[string][]Multiplier `yaml:"shared"`
		Models []entryYAML             `yaml:"models"`
	}
	entryYAML struct {
		Model       string       `yaml:"model"`
		Provider    string       `yaml:"provider"`
		Names       []string     `yaml:"names"`
		Prefixes    []string     `yaml:"prefixes"`
		Context     int64        `yaml:"context"`
		MaxOutput   int64        `yaml:"max_output"`
		AsOf        dateYAML     `yaml:"as_of"`
		Note        string       `yaml:"note"`
		Use         []string     `yaml:"use"`
		Multipliers []Multiplier `yaml:"multipliers"`
		Prices      []rowYAML    `yaml:"prices"`
	}
	rowYAML struct {
		EffectiveFrom dateYAML    `yaml:"effective_from"`
		UTCHours      []Hours     `yaml:"utc_hours"`
		ServiceTier   string      `yaml:"service_tier"`
		Region        string      `yaml:"region"`
		ContextOver   int64       `yaml:"context_over"`
		Input         tokenYAML   `yaml:"input"`
		CachedInput   tokenYAML   `yaml:"cached_input"`
		CacheWrite    tokenYAML   `yaml:"cache_write"`
		CacheWrite1h  tokenYAML   `yaml:"cache_write_1h"`
		Output        tokenYAML   `yaml:"output"`
		ImageIn       tokenYAML   `yaml:"image_in"`
		ImageOut      tokenYAML   `yaml:"image_out"`
		AudioIn       tokenYAML   `yaml:"audio_in"`
		CachedAudioIn tokenYAML   `yaml:"cached_audio_in"`
		AudioOut      tokenYAML   `yaml:"audio_out"`
		PerRequest    feeYAML     `yaml:"per_request"`
		PerToolCall   feeYAML     `yaml:"per_tool_call"`
		PerSearchUnit feeYAML     `yaml:"per_search_unit"`
		PerMinute     feeYAML     `yaml:"per_minute"`
		Characters    tokenYAML   `yaml:"characters"`
		Images        []imageYAML `yaml:"images"`
	}
	imageYAML struct {
		Size    string  `yaml:"size"`
		Quality string  `yaml:"quality"`
		Each    feeYAML `yaml:"each"`
		Tokens  int64   `yaml:"tokens"`
	}
)

type (
	tokenYAML Rate
	feeYAML   Rate
	dateYAML  struct{ time.Time }
)

// UnmarshalYAML implements yaml.NodeUnmarshaler, as do those below.
func (y *tokenYAML) UnmarshalYAML(n ast.Node) error {
	return scalar(n, func(s string) (err error) { *(*Rate)(y), err = PerMillion(s); return })
}

func (y *feeYAML) UnmarshalYAML(n ast.Node) error {
	return scalar(n, func(s string) (err error) { *(*Rate)(y), err = PerCall(s); return })
}

// UnmarshalYAML reads what [ParseFactor] does.
func (f *Factor) UnmarshalYAML(n ast.Node) error {
	return scalar(n, func(s string) (err error) { *f, err = ParseFactor(s); return })
}

// UnmarshalYAML reads what [ParseHours] does.
func (h *Hours) UnmarshalYAML(n ast.Node) error {
	return scalar(n, func(s string) (err error) { *h, err = ParseHours(s); return })
}

func (y *dateYAML) UnmarshalYAML(n ast.Node) error {
	return scalar(n, func(s string) (err error) { y.Time, err = parseDate(s); return })
}

// scalar passes a scalar's text to parse and adds the position in the file to its error.
func scalar(n ast.Node, parse func(string) error) error {
	if a, ok := n.(*ast.AnchorNode); ok {
		n = a.Value
	}
	err := fmt.Errorf("want a single value")
	if _, ok := n.(ast.ScalarNode); ok && n.Type() != ast.LiteralType {
		err = parse(n.GetToken().Value)
	}
	if err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: n.GetToken()}
	}
	return nil
}

// parseDate parses a date (midnight UTC) or an RFC 3339 time.
func parseDate(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q: want a date such as 2026-10-07 or an RFC 3339 time", text)
	}
	return t, nil
}

// Parse parses a whole catalogue file: unit, as_of, shared and models. It is strict: an unknown
// key, a duplicate key and a price that is not exactly representable are errors that show the line.
func Parse(text []byte) (*Catalogue, error) {
	f, err := parseFile(text)
	if err != nil {
		return nil, err
	}
	return f.catalogue()
}

func parseFile(text []byte) (catalogueFile, error) {
	var y fileYAML
	if err := yaml.UnmarshalWithOptions(text, &y, yaml.Strict()); err != nil {
		return catalogueFile{}, fmt.Errorf("pricing: %w", err)
	}
	return catalogueFile{cmp.Or(y.Unit, "usd"), y.Shared, entries(y.Models, y.AsOf.Time)}, nil
}

// ParseEntries parses a list of models, in the format of prices in the configuration, or a whole
// catalogue file, of which it returns the models.
func ParseEntries(text []byte) ([]Entry, error) {
	list, _, err := ParseList(text)
	return list, err
}

// ParseList is ParseEntries, and also returns when all prices were last checked, if the file says
// so (as_of).
func ParseList(text []byte) (list []Entry, checked time.Time, err error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, checked, fmt.Errorf("pricing: %w", err)
	}
	var f fileYAML
	into := any(&f)
	if len(file.Docs) > 0 && file.Docs[0].Body != nil && file.Docs[0].Body.Type() == ast.SequenceType {
		into = &f.Models
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		return nil, checked, fmt.Errorf("pricing: %w", err)
	}
	return entries(f.Models, f.AsOf.Time), f.AsOf.Time, nil
}

// UnmarshalYAML lets a configuration contain entries directly. It is as strict as [Parse].
func (e *Entry) UnmarshalYAML(n ast.Node) error {
	var y entryYAML
	if err := yaml.NodeToValue(n, &y, yaml.Strict()); err != nil {
		return err
	}
	*e = y.entry(time.Time{})
	return nil
}

func entries(list []entryYAML, asOf time.Time) []Entry {
	out := make([]Entry, 0, len(list))
	for _, y := range list {
		out = append(out, y.entry(asOf))
	}
	return out
}

func (y entryYAML) entry(asOf time.Time) Entry {
	e := Entry{
		Model: y.Model, Provider: y.Provider, Names: y.Names, Prefixes: y.Prefixes,
		Context: y.Context, MaxOutput: y.MaxOutput, AsOf: asOf, Use: y.Use, Note: y.Note,
		Multipliers: y.Multipliers,
	}
	if !y.AsOf.IsZero() {
		e.AsOf = y.AsOf.Time
	}
	for _, r := range y.Prices {
		e.Prices = append(e.Prices, r.row())
	}
	return e
}

func (y rowYAML) row() Row {
	return Row{
		EffectiveFrom: y.EffectiveFrom.Time, UTCHours: y.UTCHours,
		ServiceTier: y.ServiceTier, Region: y.Region, ContextOver: y.ContextOver,
		Rates: Rates{
			Input: Rate(y.Input), CachedInput: Rate(y.CachedInput),
			CacheWrite: Rate(y.CacheWrite), CacheWrite1h: Rate(y.CacheWrite1h),
			Output: Rate(y.Output), ImageIn: Rate(y.ImageIn), ImageOut: Rate(y.ImageOut),
			AudioIn: Rate(y.AudioIn), CachedAudioIn: Rate(y.CachedAudioIn), AudioOut: Rate(y.AudioOut),
			PerRequest: Rate(y.PerRequest), PerToolCall: Rate(y.PerToolCall),
			PerSearchUnit: Rate(y.PerSearchUnit), PerMinute: Rate(y.PerMinute), Characters: Rate(y.Characters),
		},
		Images: images(y.Images),
	}
}
