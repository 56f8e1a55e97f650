package pricing

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Difference is one fact on which two catalogues disagree.
type Difference struct {
	Provider, Model string
	// Field names the fact, such as "input", "over 200000 output" or "times tier flex". It is "" if
	// the whole model is in only one catalogue.
	Field string
	// Old and New are decimals, USD per 1M tokens for token prices; "" if the fact is missing.
	Old, New string
}

// OneSided reports whether only the older list states the fact, or only one of them lists the
// model.
func (d *Difference) OneSided() bool { return d.Field == "" || d.New == "" }

// Diff lists the changes from a to b, sorted by provider, model and field.
func Diff(a, b *Catalogue) []Difference {
	old, fresh := index(a.Entries()), index(b.Entries())
	var list []Difference
	for k, e := range old {
		if _, ok := fresh[k]; !ok {
			list = append(list, Difference{Provider: e.Provider, Model: e.Model, Old: "listed"})
		}
	}
	for k, e := range fresh {
		if before, ok := old[k]; ok {
			list = append(list, diffEntry(before, e)...)
		} else {
			list = append(list, Difference{Provider: e.Provider, Model: e.Model, New: "listed"})
		}
	}
	slices.SortFunc(list, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.Provider, y.Provider), cmp.Compare(x.Model, y.Model), cmp.Compare(x.Field, y.Field))
	})
	return list
}

type modelKey struct{ provider, model string }

func index(list []Entry) map[modelKey]Entry {
	m := make(map[modelKey]Entry)
	for _, e := range list {
		m[modelKey{e.Provider, e.Model}] = e
	}
	return m
}

func diffEntry(a, b Entry) []Difference {
	old, fresh := allFacts(a), allFacts(b)
	var list []Difference
	for name, v := range old {
		if fresh[name] != v {
			list = append(list, Difference{a.Provider, a.Model, name, v, fresh[name]})
		}
	}
	for name, v := range fresh {
		if _, ok := old[name]; !ok {
			list = append(list, Difference{a.Provider, a.Model, name, "", v})
		}
	}
	return list
}

func allFacts(e Entry) map[string]string {
	m := make(map[string]string)
	for _, f := range facts(e) {
		m[f.name] = f.value
	}
	for name, n := range map[string]int64{"context": e.Context, "max_output": e.MaxOutput} {
		if n != 0 {
			m[name] = strconv.FormatInt(n, 10)
		}
	}
	return m
}

// Disagreement is a price that sources state differently.
type Disagreement struct {
	Provider, Model string
	// Field is "input", "cached_input", "cache_write", "output" or, for the most expensive context
	// tier, the same with the prefix "long ".
	Field string
	// Values are the prices by source, in USD per 1M tokens, starting with that of the catalogue.
	Values []SourcedPrice
}

// SourcedPrice is the price stated by one source.
type SourcedPrice struct{ Source, Price string }

// Verify compares the default prices of the catalogue's models in effect at a time with feeds that
// list them under the same provider and name. A fact that only one source states is not a
// disagreement.
func Verify(c *Catalogue, at time.Time, feeds ...*Feed) ([]Disagreement, error) {
	catalogues := make([]*Catalogue, len(feeds))
	for i, f := range feeds {
		var err error
		catalogues[i], err = f.Catalogue()
		if err != nil {
			return nil, err
		}
	}
	var list []Disagreement
	for _, own := range c.Entries() {
		mine, err := c.Lookup(own.Provider, own.Model, at)
		if err != nil {
			continue
		}
		for _, field := range []string{"input", "cached_input", "cache_write", "output"} {
			for _, long := range []bool{false, true} {
				d := Disagreement{Provider: own.Provider, Model: own.Model, Field: field}
				if long {
					d.Field = "long " + field
				}
				d.add("catalogue", mine.entry, at, field, long)
				for i, other := range catalogues {
					if theirs, err := other.Lookup(own.Provider, own.Model, at); err == nil && theirs.Provider == own.Provider {
						d.add(feeds[i].Name, theirs.entry, at, field, long)
					}
				}
				if slices.ContainsFunc(d.Values, func(v SourcedPrice) bool { return v.Price != d.Values[0].Price }) {
					list = append(list, d)
				}
			}
		}
	}
	return list, nil
}

// add adds the price that an entry states, if it states one.
func (d *Disagreement) add(source string, e *entry, at time.Time, field string, long bool) {
	from, over := e.periodAt(at.Unix()).from, int64(0)
	var price string
	for _, r := range e.src.Prices {
		if r.start() != from || r.ServiceTier != "" || r.Region != "" || len(r.UTCHours) > 0 || (r.ContextOver > 0) != long ||
			r.ContextOver < over {
			continue
		}
		over = r.ContextOver
		if f := r.Rates.field(field); f.rate.Given {
			price = formatDecimal(int64(f.rate.Pico), f.digits)
		}
	}
	if price != "" {
		d.Values = append(d.Values, SourcedPrice{source, price})
	}
}

// Shared counts the entries of a catalogue that satisfy fits and that the feed prices at a time,
// because agreement is meaningless without common entries.
func (f *Feed) Shared(c *Catalogue, at time.Time, fits func(provider, model string) bool) (int, error) {
	theirs, err := f.Catalogue()
	if err != nil {
		return 0, err
	}
	shared := 0
	for _, e := range c.Entries() {
		if !fits(e.Provider, e.Model) {
			continue
		}
		if p, err := theirs.Lookup(e.Provider, e.Model, at); err == nil && p.Provider == e.Provider {
			shared++
		}
	}
	return shared, nil
}
