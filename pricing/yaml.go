package pricing

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// The YAML form mirrors Entry with decimals kept as text.
type (
	fileYAML struct {
		Unit   string                      `yaml:"unit"`
		AsOf   scalar                      `yaml:"as_of"`
		Shared map[string][]multiplierYAML `yaml:"shared"`
		Models []entryYAML                 `yaml:"models"`
	}
	entryYAML struct {
		Model       string           `yaml:"model"`
		Provider    string           `yaml:"provider"`
		Names       []string         `yaml:"names"`
		Prefixes    []string         `yaml:"prefixes"`
		Context     int64            `yaml:"context"`
		MaxOutput   int64            `yaml:"max_output"`
		AsOf        scalar           `yaml:"as_of"`
		Note        string           `yaml:"note"`
		Use         []string         `yaml:"use"`
		Multipliers []multiplierYAML `yaml:"multipliers"`
		Prices      []rowYAML        `yaml:"prices"`
	}
	rowYAML struct {
		EffectiveFrom scalar   `yaml:"effective_from"`
		UTCHours      []scalar `yaml:"utc_hours"`
		ServiceTier   string   `yaml:"service_tier"`
		Region        string   `yaml:"region"`
		ContextOver   int64    `yaml:"context_over"`
		Input         scalar   `yaml:"input"`
		CachedInput   scalar   `yaml:"cached_input"`
		CacheWrite    scalar   `yaml:"cache_write"`
		CacheWrite1h  scalar   `yaml:"cache_write_1h"`
		Output        scalar   `yaml:"output"`
		ImageIn       scalar   `yaml:"image_in"`
		ImageOut      scalar   `yaml:"image_out"`
		AudioIn       scalar   `yaml:"audio_in"`
		AudioOut      scalar   `yaml:"audio_out"`
		PerRequest    scalar   `yaml:"per_request"`
		PerToolCall   scalar   `yaml:"per_tool_call"`
	}
	multiplierYAML struct {
		ServiceTier string   `yaml:"service_tier"`
		Region      string   `yaml:"region"`
		UTCHours    []scalar `yaml:"utc_hours"`
		Batch       bool     `yaml:"batch"`
		Times       scalar   `yaml:"times"`
	}
)

// scalar keeps the source text of a value, so that a decimal never passes
// through a float.
type scalar struct {
	text  string
	given bool
}

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (s *scalar) UnmarshalYAML(b []byte) error {
	text := strings.TrimSpace(string(b))
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		text = text[1 : n-1]
	}
	if text == "" || text == "~" || text == "null" {
		return fmt.Errorf("an empty value; leave the line out if there is no price")
	}
	s.text, s.given = text, true
	return nil
}

// Parse reads a whole catalogue file: unit, as_of, shared and models. It is
// strict: an unknown key, a duplicate key and a price that is not exactly
// representable are errors.
func Parse(text []byte) (*Catalogue, error) {
	var f fileYAML
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("pricing: %w", err)
	}
	c := &Catalogue{unit: cmp.Or(f.Unit, "usd"), shared: make(map[string][]Multiplier, len(f.Shared))}
	for name, list := range f.Shared {
		ms, err := multipliers(list)
		if err != nil {
			return nil, fmt.Errorf("pricing: shared %s: %w", name, err)
		}
		c.shared[name] = ms
	}
	asOf, err := f.AsOf.time()
	if err != nil {
		return nil, fmt.Errorf("pricing: as_of: %w", err)
	}
	entries, err := entries(f.Models, asOf)
	if err != nil {
		return nil, err
	}
	return c.With(entries)
}

// ParseEntries reads a list of models, the form used under prices in the
// configuration, or a whole catalogue file, of which it returns the models.
func ParseEntries(text []byte) ([]Entry, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("pricing: %w", err)
	}
	isList := false
	if len(file.Docs) > 0 && file.Docs[0].Body != nil {
		isList = file.Docs[0].Body.Type() == ast.SequenceType
	}
	var f fileYAML
	into := any(&f)
	if isList {
		into = &f.Models
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("pricing: %w", err)
	}
	asOf, err := f.AsOf.time()
	if err != nil {
		return nil, fmt.Errorf("pricing: as_of: %w", err)
	}
	return entries(f.Models, asOf)
}

// UnmarshalYAML lets a configuration hold entries directly.
func (e *Entry) UnmarshalYAML(text []byte) error {
	var y entryYAML
	if err := yaml.UnmarshalWithOptions(text, &y, yaml.Strict()); err != nil {
		return err
	}
	got, err := y.entry(time.Time{})
	*e = got
	return err
}

func entries(list []entryYAML, asOf time.Time) ([]Entry, error) {
	out := make([]Entry, 0, len(list))
	for i, y := range list {
		e, err := y.entry(asOf)
		if err != nil {
			return nil, fmt.Errorf("pricing: models[%d] %.100q: %w", i, y.Model, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func (y entryYAML) entry(asOf time.Time) (Entry, error) {
	e := Entry{
		Model: y.Model, Provider: y.Provider, Names: y.Names, Prefixes: y.Prefixes,
		Context: y.Context, MaxOutput: y.MaxOutput, AsOf: asOf, Use: y.Use, Note: y.Note,
	}
	var err error
	if y.AsOf.given {
		if e.AsOf, err = y.AsOf.time(); err != nil {
			return Entry{}, fmt.Errorf("as_of: %w", err)
		}
	}
	for i, r := range y.Prices {
		row, err := r.row()
		if err != nil {
			return Entry{}, fmt.Errorf("prices[%d]: %w", i, err)
		}
		e.Prices = append(e.Prices, row)
	}
	e.Multipliers, err = multipliers(y.Multipliers)
	return e, err
}

func (y rowYAML) row() (Row, error) {
	r := Row{ServiceTier: y.ServiceTier, Region: y.Region, ContextOver: y.ContextOver}
	var err error
	if r.EffectiveFrom, err = y.EffectiveFrom.time(); err != nil {
		return Row{}, fmt.Errorf("effective_from: %w", err)
	}
	if r.UTCHours, err = hoursOf(y.UTCHours); err != nil {
		return Row{}, err
	}
	for _, f := range []struct {
		name  string
		text  scalar
		rate  *Rate
		parse func(string) (Rate, error)
	}{
		{"input", y.Input, &r.Rates.Input, PerMillion},
		{"cached_input", y.CachedInput, &r.Rates.CachedInput, PerMillion},
		{"cache_write", y.CacheWrite, &r.Rates.CacheWrite, PerMillion},
		{"cache_write_1h", y.CacheWrite1h, &r.Rates.CacheWrite1h, PerMillion},
		{"output", y.Output, &r.Rates.Output, PerMillion},
		{"image_in", y.ImageIn, &r.Rates.ImageIn, PerMillion},
		{"image_out", y.ImageOut, &r.Rates.ImageOut, PerMillion},
		{"audio_in", y.AudioIn, &r.Rates.AudioIn, PerMillion},
		{"audio_out", y.AudioOut, &r.Rates.AudioOut, PerMillion},
		{"per_request", y.PerRequest, &r.Rates.PerRequest, PerCall},
		{"per_tool_call", y.PerToolCall, &r.Rates.PerToolCall, PerCall},
	} {
		if !f.text.given {
			continue
		}
		if *f.rate, err = f.parse(f.text.text); err != nil {
			return Row{}, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return r, nil
}

func multipliers(list []multiplierYAML) ([]Multiplier, error) {
	var out []Multiplier
	for i, y := range list {
		hours, err := hoursOf(y.UTCHours)
		if err != nil {
			return nil, fmt.Errorf("multipliers[%d]: %w", i, err)
		}
		times, err := ParseFactor(y.Times.text)
		if err != nil {
			return nil, fmt.Errorf("multipliers[%d]: times: %w", i, err)
		}
		out = append(out, Multiplier{ServiceTier: y.ServiceTier, Region: y.Region, UTCHours: hours, Batch: y.Batch, Times: times})
	}
	return out, nil
}

func hoursOf(list []scalar) ([]Hours, error) {
	var out []Hours
	for _, s := range list {
		h, err := ParseHours(s.text)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// time reads a date (midnight UTC) or an RFC 3339 time; not given is zero.
func (s scalar) time() (time.Time, error) {
	if !s.given {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.DateOnly, s.text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s.text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q: want a date such as 2026-10-07 or an RFC 3339 time", s.text)
	}
	return t, nil
}
