package pricing

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
)

type (
	modelsDevProvider struct {
		Models map[string]modelsDevModel `json:"models"`
	}
	modelsDevModel struct {
		Cost  *modelsDevCost `json:"cost"`
		Limit struct {
			Context json.Number `json:"context"`
			Output  json.Number `json:"output"`
		} `json:"limit"`
		Experimental struct {
			Modes map[string]struct {
				Cost *modelsDevCost `json:"cost"`
			} `json:"modes"`
		} `json:"experimental"`
	}
	modelsDevCost struct {
		Input       json.Number    `json:"input"`
		Output      json.Number    `json:"output"`
		Reasoning   json.Number    `json:"reasoning"`
		CacheRead   json.Number    `json:"cache_read"`
		CacheWrite  json.Number    `json:"cache_write"`
		InputAudio  json.Number    `json:"input_audio"`
		OutputAudio json.Number    `json:"output_audio"`
		Over200k    *modelsDevCost `json:"context_over_200k"`
		Tiers       []struct {
			modelsDevCost
			Tier struct {
				Type string `json:"type"`
				Size int64  `json:"size"`
			} `json:"tier"`
		} `json:"tiers"`
	}
)

// ImportModelsDev reads api.json of models.dev (MIT): base prices, context tiers, fast modes and
// limits. A model that is free in every class is left out, because the feed lists subscriptions and
// promotions that way.
func ImportModelsDev(from io.Reader) (*Feed, error) {
	var providers map[string]modelsDevProvider
	r := newFeedReader("models.dev")
	if err := decodeFeed(r.feed.Name, from, &providers); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(providers)) {
		models := providers[id].Models
		for _, name := range slices.Sorted(maps.Keys(models)) {
			r.modelsDev(Entry{Model: name, Provider: canonicalProvider(id)}, models[name])
		}
	}
	return &r.feed, nil
}

func (r *feedReader) modelsDev(e Entry, m modelsDevModel) {
	if m.Cost == nil || m.Cost.Input == "" || m.Cost.Output == "" {
		r.note(e.Provider, e.Model, "left out: no price")
		return
	}
	e.Context = feedCount(m.Limit.Context)
	if !isEmbedding(e.Model) { // for embeddings limit.output is the size of the vector
		e.MaxOutput = feedCount(m.Limit.Output)
	}
	var err error
	e.Prices, err = m.Cost.rows()
	if err == nil && free(e.Prices) {
		err = errors.New("every price is 0")
	}
	if err != nil {
		r.note(e.Provider, e.Model, "left out: %v", err)
		return
	}
	if m.Cost.Reasoning != "" && m.Cost.Reasoning != m.Cost.Output {
		r.note(e.Provider, e.Model, "reasoning price %s left out; it is charged as output", m.Cost.Reasoning)
	}
	for _, mode := range slices.Sorted(maps.Keys(m.Experimental.Modes)) {
		cost := m.Experimental.Modes[mode].Cost
		if cost == nil {
			continue
		}
		rates, err := cost.rates(Rates{})
		if err != nil || len(e.Prices) > 1 {
			r.note(e.Provider, e.Model, "mode %.40q left out", mode)
			continue
		}
		e.Prices = append(e.Prices[:1:1], Row{ServiceTier: mode, Rates: rates})
	}
	r.add(e)
}

func free(rows []Row) bool {
	for _, row := range rows {
		for _, f := range row.Rates.fields() {
			if f.rate.Pico > 0 {
				return false
			}
		}
	}
	return true
}

// feedCount parses a token count; 0 if it is not a plausible integer.
func feedCount(n json.Number) int64 {
	v, err := parseDecimal(n.String(), 0)
	if err != nil || v > MaxCount {
		return 0
	}
	return v
}

func (c *modelsDevCost) rows() ([]Row, error) {
	base, err := c.rates(Rates{})
	if err != nil {
		return nil, err
	}
	rows := []Row{{Rates: base}}
	for _, t := range c.Tiers {
		if t.Tier.Type != "context" || t.Tier.Size <= 0 {
			return nil, errors.New("a tier that is not by context")
		}
		rates, err := t.rates(base)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{ContextOver: t.Tier.Size, Rates: rates})
	}
	if len(c.Tiers) == 0 && c.Over200k != nil {
		rates, err := c.Over200k.rates(base)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{ContextOver: 200_000, Rates: rates})
	}
	return rows, nil
}

// rates parses the prices; missing ones are taken from base.
func (c *modelsDevCost) rates(base Rates) (Rates, error) {
	for _, f := range []struct {
		price json.Number
		rate  *Rate
	}{
		{c.Input, &base.Input},
		{c.Output, &base.Output},
		{c.CacheRead, &base.CachedInput},
		{c.CacheWrite, &base.CacheWrite},
		{c.InputAudio, &base.AudioIn},
		{c.OutputAudio, &base.AudioOut},
	} {
		if f.price == "" {
			continue
		}
		var err error
		*f.rate, err = feedPrice(f.price, tokenDigits)
		if err != nil {
			return Rates{}, err
		}
	}
	return base, nil
}
