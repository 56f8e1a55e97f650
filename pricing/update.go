package pricing

import (
	"slices"
	"time"
)

// Updated returns the entry with the prices that a list states for the model, effective from a day
// on; what the list does not state is unchanged. Prices that the list dates later begin on their
// own dates. changed reports whether anything differs.
func (e Entry) Updated(list Entry, from time.Time) (updated Entry, changed bool) {
	updated = e
	updated.Prices = slices.Clone(e.Prices)
	updated.updatePeriod(list.InForce(from), from, &changed)
	var later []time.Time
	for _, r := range list.Prices {
		if r.EffectiveFrom.After(from) && !slices.Contains(later, r.EffectiveFrom) {
			later = append(later, r.EffectiveFrom)
		}
	}
	slices.SortFunc(later, time.Time.Compare)
	for _, day := range later {
		updated.updatePeriod(list.InForce(day), day, &changed)
	}
	return updated, changed
}

// updatePeriod starts a period with the prices in effect then and those of the rows.
func (e *Entry) updatePeriod(rows []Row, from time.Time, changed *bool) {
	period, differs := slices.Clone(e.InForce(from)), false
	for _, r := range rows {
		i := slices.IndexFunc(period, r.sameConditions)
		switch {
		case i >= 0:
			rates := r.Rates.over(period[i].Rates)
			differs = differs || rates != period[i].Rates
			period[i].Rates = rates
		case r.ServiceTier == "" && r.Region == "" && len(r.UTCHours) == 0 && len(period) > 0: // another context size
			r.Rates = r.Rates.over(period[0].Rates)
			period, differs = append(period, r), true
		}
	}
	if !differs {
		return
	}
	*changed = true
	e.Prices = slices.DeleteFunc(e.Prices, func(r Row) bool { return r.EffectiveFrom.Equal(from) })
	for i := range period {
		period[i].EffectiveFrom = from
	}
	e.Prices = append(e.Prices, period...)
}

// sameConditions reports whether two rows price the same calls. Lists give the edge of a context as
// 271,999 or as 272,000 tokens.
func (r Row) sameConditions(other Row) bool {
	apart := r.ContextOver - other.ContextOver
	return r.ServiceTier == other.ServiceTier && r.Region == other.Region && slices.Equal(r.UTCHours, other.UTCHours) &&
		apart >= -1 && apart <= 1
}

// Update is what a list changes in a catalogue.
type Update struct {
	Changed     []Entry // complete, with their earlier prices
	Differences []Difference
	Compared    int // number of models
}

// Update compares the catalogue's entries with those of a list, whose prices are effective from a
// day on. With add, models without a price are added. today is when the list was checked.
func (c *Catalogue) Update(list []Entry, from, today time.Time, add bool) (*Update, error) {
	theirs := index(list)
	u := &Update{}
	var before []Entry
	for _, ours := range c.Entries() {
		key := modelKey{ours.Provider, ours.Model}
		e, listed := theirs[key]
		if !listed {
			continue
		}
		delete(theirs, key)
		u.Compared++
		if next, changed := ours.Updated(e, from); changed {
			next.AsOf, next.Use = today, nil
			u.Changed, before = append(u.Changed, next), append(before, ours)
		}
	}
	for _, e := range list {
		if _, fresh := theirs[modelKey{e.Provider, e.Model}]; fresh && add {
			e.AsOf = today
			u.Changed = append(u.Changed, e)
			u.Compared++
		}
	}
	old, err := New("", sinceInForce(before, from))
	if err != nil {
		return nil, err
	}
	next, err := New("", sinceInForce(u.Changed, from))
	if err != nil {
		return nil, err
	}
	u.Differences = Diff(old, next)
	return u, nil
}

// Onto returns the changed entries, and those in list that they do not replace.
func (u *Update) Onto(list []Entry) []Entry {
	out := slices.Clone(u.Changed)
	for _, e := range list {
		replaced := func(n Entry) bool { return n.Model == e.Model && n.Provider == e.Provider }
		if !slices.ContainsFunc(out, replaced) {
			out = append(out, e)
		}
	}
	return out
}

// sinceInForce returns entries with the prices in effect on a day, undated, and those that begin
// later.
func sinceInForce(list []Entry, at time.Time) []Entry {
	out := slices.Clone(list)
	for i, e := range out {
		rows := e.InForce(at)
		for j := range rows {
			rows[j].EffectiveFrom = time.Time{}
		}
		for _, r := range e.Prices {
			if r.EffectiveFrom.After(at) {
				rows = append(rows, r)
			}
		}
		out[i].Prices, out[i].Use = rows, nil // its multipliers are expanded
	}
	return out
}
