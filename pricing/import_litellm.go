package pricing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ImportLiteLLM reads model_prices_and_context_window.json of LiteLLM (MIT): base prices,
// _above_<n>k_tokens tiers, _flex and _priority service tiers, _batches, one-hour cache writes,
// search fees and regional uplifts. Models that are not priced per token, and models that are free
// in every class (placeholders for self-hosted and subscription models), are left out.
func ImportLiteLLM(from io.Reader) (*Feed, error) {
	var models map[string]json.RawMessage
	r := newFeedReader("litellm")
	if err := decodeFeed(r.feed.Name, from, &models); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(models)) {
		if key == "sample_spec" {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(models[key], &fields); err != nil {
			_, what := jsonProblem(models[key], err)
			r.note("", key, "left out: %v", what)
			continue
		}
		r.liteLLM(key, fields)
	}
	return &r.feed, nil
}

func (r *feedReader) liteLLM(key string, fields map[string]json.RawMessage) {
	var provider, mode string
	_ = json.Unmarshal(fields["litellm_provider"], &provider)
	_ = json.Unmarshal(fields["mode"], &mode)
	if !slices.Contains([]string{"", "chat", "completion", "responses", "embedding"}, mode) {
		return
	}
	e := Entry{Model: strings.TrimPrefix(key, provider+"/"), Provider: canonicalProvider(provider)}
	e.Context, e.MaxOutput = rawCount(fields["max_input_tokens"]), rawCount(fields["max_output_tokens"])
	if mode == "embedding" {
		e.MaxOutput = 0
	}
	grid, err := liteLLMGrid(fields)
	if err == nil {
		e.Prices, err = grid.rows(mode == "embedding")
	}
	if err == nil && free(e.Prices) {
		err = errors.New("every price is 0")
	}
	if err != nil {
		r.note(e.Provider, e.Model, "left out: %v", err)
		return
	}
	r.liteLLMMultipliers(&e, grid, fields)
	r.add(e)
}

func rawCount(raw json.RawMessage) int64 {
	return feedCount(json.Number(strings.Trim(string(raw), `"`)))
}

// cell is a position in the grid of a model's prices: a service tier ("batches" for the batch API)
// and a context edge.
type cell struct {
	tier string
	edge int64
}

type liteLLMPrices map[cell]Rates

// liteLLMGrid sorts the price fields into cells.
func liteLLMGrid(fields map[string]json.RawMessage) (liteLLMPrices, error) {
	grid := make(liteLLMPrices)
	for name, raw := range fields {
		at, field := liteLLMField(name)
		if field == "" || string(raw) == "null" {
			continue
		}
		rates := grid[at]
		var err error
		*rates.field(field).rate, err = feedPrice(json.Number(raw), feeDigits)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		grid[at] = rates
	}
	return grid, nil
}

// liteLLMClasses are the names of our rates by those of the feed.
var liteLLMClasses = map[string]string{
	"input_cost_per_token":                      "input",
	"output_cost_per_token":                     "output",
	"cache_read_input_token_cost":               "cached_input",
	"cache_creation_input_token_cost":           "cache_write",
	"cache_creation_input_token_cost_above_1hr": "cache_write_1h",
	"input_cost_per_audio_token":                "audio_in",
	"cache_read_input_audio_token_cost":         "cached_audio_in",
	"output_cost_per_audio_token":               "audio_out",
	"input_cost_per_image_token":                "image_in",
	"output_cost_per_image_token":               "image_out",
	"input_cost_per_request":                    "per_request",
}

// liteLLMField parses class[_above_<n>k_tokens][_flex|_priority|_batches]. field is our name, "" for others.
func liteLLMField(name string) (at cell, field string) {
	for _, tier := range []string{"flex", "priority", "batches"} {
		if rest, found := strings.CutSuffix(name, "_"+tier); found {
			name, at.tier = rest, tier
		}
	}
	if rest, found := strings.CutSuffix(name, "k_tokens"); found {
		class, thousands, _ := cutLast(rest, "_above_")
		n, err := strconv.ParseInt(thousands, 10, 32)
		if err != nil || n <= 0 {
			return cell{}, ""
		}
		name, at.edge = class, n*1000
	}
	return at, liteLLMClasses[name]
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// rows returns a row per tier and context edge. A price missing for a tier or an edge is taken from
// the tier or edge below.
func (g liteLLMPrices) rows(embedding bool) ([]Row, error) {
	base := g[cell{}]
	if !base.Output.Given && embedding {
		base.Output = Rate{Given: true}
	}
	if !base.Input.Given || !base.Output.Given {
		return nil, errors.New("no input and output price per token")
	}
	edges := []int64{0}
	tiers := []string{""}
	for at := range g {
		if at.tier == "batches" {
			continue
		}
		if !slices.Contains(edges, at.edge) {
			edges = append(edges, at.edge)
		}
		if !slices.Contains(tiers, at.tier) {
			tiers = append(tiers, at.tier)
		}
	}
	slices.Sort(edges)
	slices.Sort(tiers)
	var rows []Row
	for _, tier := range tiers {
		low := base
		if tier != "" {
			low = g[cell{tier, 0}].over(base)
		}
		for _, edge := range edges {
			rates := low
			if edge > 0 {
				rates = g[cell{tier, edge}].over(dearer(low, g[cell{"", edge}]))
			}
			rows = append(rows, Row{ServiceTier: tier, ContextOver: edge, Rates: rates})
		}
	}
	return rows, nil
}

// dearer returns the higher of each price that a or b gives.
func dearer(a, b Rates) Rates {
	others := b.fields()
	for i, f := range a.fields() {
		if y := others[i].rate; y.Given && y.Pico > f.rate.Pico {
			*f.rate = *y
		}
	}
	return a
}

func (r *feedReader) liteLLMMultipliers(e *Entry, grid liteLLMPrices, fields map[string]json.RawMessage) {
	if batch, given := grid[cell{"batches", 0}]; given {
		times, ok := ratio(batch, grid[cell{}])
		if ok {
			e.Multipliers = append(e.Multipliers, Multiplier{Batch: true, Times: times})
		} else {
			r.note(e.Provider, e.Model, "batch prices left out: not one multiple of the base prices")
		}
	}
	extra := make(map[string]json.Number)
	_ = json.Unmarshal(fields["provider_specific_entry"], &extra)
	const uplift = "regional_processing_uplift_multiplier_"
	for name, raw := range fields {
		if region, ok := strings.CutPrefix(name, uplift); ok {
			extra[region] = json.Number(raw)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		times, err := ParseFactor(extra[name].String())
		m := Multiplier{Region: name, Times: times}
		if name == "fast" {
			m = Multiplier{ServiceTier: name, Times: times}
		}
		if err != nil {
			r.note(e.Provider, e.Model, "multiplier %.40q left out: %v", name, err)
			continue
		}
		e.Multipliers = append(e.Multipliers, m)
	}
	search := make(map[string]json.Number)
	_ = json.Unmarshal(fields["search_context_cost_per_query"], &search)
	var fee Rate
	for _, n := range search {
		if f, err := feedPrice(n, feeDigits); err == nil && f.Pico >= fee.Pico {
			fee = f
		}
	}
	for i := range e.Prices {
		e.Prices[i].Rates.PerToolCall = fee
	}
}

// ratio returns the single factor between two price lists, if there is one.
func ratio(batch, base Rates) (Factor, bool) {
	if !batch.Input.Given || base.Input.Pico <= 0 {
		return 0, false
	}
	times := int64(batch.Input.Pico) * factorUnit / int64(base.Input.Pico)
	same := func(a, b Rate) bool { return int64(a.Pico)*factorUnit == times*int64(b.Pico) }
	ok := times > 0 && times <= maxFactor && same(batch.Input, base.Input) &&
		(!batch.Output.Given || same(batch.Output, base.Output))
	return Factor(times), ok
}
