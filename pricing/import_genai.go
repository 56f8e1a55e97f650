package pricing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

type (
	genaiProvider struct {
		ID     string       `json:"id"`
		Models []genaiModel `json:"models"`
	}
	genaiModel struct {
		ID      string          `json:"id"`
		Match   genaiMatch      `json:"match"`
		Context int64           `json:"context_window"`
		Prices  json.RawMessage `json:"prices"`
	}
	genaiMatch struct {
		Equals     string       `json:"equals"`
		StartsWith string       `json:"starts_with"`
		EndsWith   string       `json:"ends_with"`
		Contains   string       `json:"contains"`
		Regex      string       `json:"regex"`
		Or         []genaiMatch `json:"or"`
		And        []genaiMatch `json:"and"`
	}
	genaiConditional struct {
		Constraint struct {
			StartDate string `json:"start_date"`
			StartTime string `json:"start_time"`
			EndTime   string `json:"end_time"`
		} `json:"constraint"`
		Prices genaiPrices `json:"prices"`
	}
	genaiPrices map[string]genaiPrice
	genaiPrice  struct {
		Base  json.Number `json:"base"`
		Tiers []struct {
			Start int64       `json:"start"`
			Price json.Number `json:"price"`
		} `json:"tiers"`
	}
)

// UnmarshalJSON parses a bare number or {base, tiers}.
func (p *genaiPrice) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		type plain genaiPrice
		return json.Unmarshal(b, (*plain)(p))
	}
	return json.Unmarshal(b, &p.Base)
}

// ImportGenAI reads prices/new_data/v2/data.json of pydantic/genai-prices (MIT): base prices and
// context tiers (strictly above start), cache classes, effective dates and times of day. Match
// clauses other than equals and starts_with are left out with a note, except a dated-snapshot
// regex, which becomes a prefix.
func ImportGenAI(from io.Reader) (*Feed, error) {
	var providers []genaiProvider
	r := newFeedReader("genai-prices")
	if err := decodeFeed(r.feed.Name, from, &providers); err != nil {
		return nil, err
	}
	for _, p := range providers {
		for _, m := range p.Models {
			e := Entry{Model: m.ID, Provider: canonicalProvider(p.ID), Context: m.Context}
			r.genaiMatch(&e, m.Match)
			rows, err := r.genaiRows(e, m.Prices)
			if err != nil {
				r.note(e.Provider, e.Model, "left out: %v", err)
				continue
			}
			e.Prices = rows
			r.add(e)
		}
	}
	return &r.feed, nil
}

func (r *feedReader) genaiMatch(e *Entry, m genaiMatch) {
	switch {
	case m.Equals != "":
		if m.Equals != e.Model && !slices.Contains(e.Names, m.Equals) {
			e.Names = append(e.Names, m.Equals)
		}
	case m.StartsWith != "":
		if !slices.Contains(e.Prefixes, m.StartsWith) {
			e.Prefixes = append(e.Prefixes, m.StartsWith)
		}
	case m.Regex != "":
		if p, ok := snapshotPrefix(m.Regex); ok {
			e.Prefixes = append(e.Prefixes, p)
			return
		}
		r.note(e.Provider, e.Model, "match by regex %.80q left out", m.Regex)
	case len(m.Or) > 0:
		for _, x := range m.Or {
			r.genaiMatch(e, x)
		}
	default:
		r.note(e.Provider, e.Model, "a match by contains, ends_with or and is left out")
	}
}

// snapshotPrefix converts ^name-\d{4}-\d{2}-\d{2}$ into "name-20".
func snapshotPrefix(regex string) (string, bool) {
	name, ok := strings.CutSuffix(regex, `-\d{4}-\d{2}-\d{2}$`)
	name, ok2 := strings.CutPrefix(name, "^")
	name = strings.ReplaceAll(name, `\.`, ".")
	return name + "-20", ok && ok2 && !strings.ContainsAny(name, `\[](){}*+?|^$`)
}

// genaiRows flattens the conditional prices. In the feed the last applicable price counts; here a
// period is complete in itself and hours are conditions in it.
func (r *feedReader) genaiRows(e Entry, raw json.RawMessage) ([]Row, error) {
	list := make([]genaiConditional, 1)
	into := any(&list[0].Prices)
	if len(raw) > 0 && raw[0] == '[' {
		into = &list
	}
	if err := json.Unmarshal(raw, into); err != nil {
		_, what := jsonProblem(raw, err)
		return nil, what
	}
	var rows []Row
	last := time.Time{}
	for i, c := range list {
		if c.Constraint.StartTime != "" {
			continue
		}
		start, err := genaiDate(c.Constraint.StartDate)
		if err != nil || i > 0 && !start.After(last) {
			return nil, fmt.Errorf("start dates out of order or unreadable: %.40q", c.Constraint.StartDate)
		}
		last = start
		period, err := r.genaiRates(e, c.Prices, Row{EffectiveFrom: start})
		if err != nil {
			return nil, err
		}
		rows = append(rows, period...)
		for _, h := range list[i+1:] {
			if h.Constraint.StartTime == "" {
				continue
			}
			row := Row{EffectiveFrom: start}
			row.UTCHours, err = genaiHours(h.Constraint.StartTime, h.Constraint.EndTime)
			if err != nil {
				return nil, err
			}
			period, err = r.genaiRates(e, h.Prices, row)
			if err != nil {
				return nil, err
			}
			rows = append(rows, period...)
		}
	}
	return rows, nil
}

func genaiDate(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return parseDate(text)
}

// genaiHours parses "00:30:00Z"; a time with seconds or in another zone is refused.
func genaiHours(start, end string) ([]Hours, error) {
	trim := func(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "Z"), ":00") }
	h, err := ParseHours(trim(start) + "-" + trim(end))
	return []Hours{h}, err
}

// genaiRates returns a row per context tier of a set of prices.
func (r *feedReader) genaiRates(e Entry, prices genaiPrices, row Row) ([]Row, error) {
	edges := []int64{0}
	for _, p := range prices {
		for _, t := range p.Tiers {
			edges = append(edges, t.Start)
		}
	}
	slices.Sort(edges)
	var rows []Row
	for _, edge := range slices.Compact(edges) {
		row.ContextOver, row.Rates = edge, Rates{}
		for _, name := range slices.Sorted(maps.Keys(prices)) {
			if err := r.genaiRate(e, &row.Rates, name, prices[name].over(edge), edge == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if !row.Rates.Input.Given {
			return nil, errors.New("no input price")
		}
		if !row.Rates.Output.Given && isEmbedding(e.Model) {
			row.Rates.Output = Rate{Given: true}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// over returns the price of a request with more than edge input tokens.
func (p genaiPrice) over(edge int64) json.Number {
	price, start := p.Base, int64(0)
	for _, t := range p.Tiers {
		if t.Start <= edge && t.Start >= start {
			price, start = t.Price, t.Start
		}
	}
	return cmp.Or(price, p.Base)
}

// genaiClasses are the names of our rates by those of the feed.
var genaiClasses = map[string]string{
	"input_mtok":          "input",
	"output_mtok":         "output",
	"cache_read_mtok":     "cached_input",
	"cache_write_mtok":    "cache_write",
	"cache_write_5m_mtok": "cache_write",
	"cache_write_1h_mtok": "cache_write_1h",
	"input_audio_mtok":    "audio_in",
	"output_audio_mtok":   "audio_out",
	"input_image_mtok":    "image_in",
	"output_image_mtok":   "image_out",
	"requests_kcount":     "per_request",
	"web_searches_kcount": "per_tool_call",
}

// genaiRate sets one price. Only the base row adds notes, to avoid repetitions.
func (r *feedReader) genaiRate(e Entry, rates *Rates, name string, price json.Number, note bool) (err error) {
	f := rates.field(genaiClasses[name])
	switch {
	case f.rate == nil && note:
		r.note(e.Provider, e.Model, "price %.60s left out", name)
	case f.rate == nil:
	case f.digits == feeDigits: // per thousand
		*f.rate, err = feedPrice(price, feeDigits-3)
	default:
		*f.rate, err = feedPrice(price, tokenDigits)
	}
	return err
}
