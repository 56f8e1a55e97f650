package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/wire"
)

// Usage is what an org spent in a number of UTC days.
type Usage struct {
	From  string      `json:"from"` // first and last day
	To    string      `json:"to"`
	Lines []UsageLine `json:"lines"`
	Total UsageSums   `json:"total"`
}

// UsageLine is one sum. What it was not summed by is empty.
type UsageLine struct {
	Day      string `json:"day"`
	User     string `json:"user"`
	Key      string `json:"key"`
	Model    string `json:"model"`
	Provider string `json:"provider"`
	Endpoint string `json:"endpoint"`
	UsageSums
}

// UsageSums are figures; amounts are nano-USD.
type UsageSums struct {
	Calls     int64 `json:"calls"`
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Written   int64 `json:"cache_write_tokens"`
	Output    int64 `json:"output_tokens"`
	Cost      int64 `json:"cost_nano_usd"`
	Estimated int64 `json:"estimated_nano_usd"`
	Overrun   int64 `json:"overrun_nano_usd"`
	Adjusted  int64 `json:"adjusted_nano_usd"`
	// Costs is what of the cost was paid for which class of tokens. The rest is what was
	// charged without the provider's usage, and what was adjusted.
	Costs budget.Costs `json:"costs_nano_usd"`
}

func (u *UsageSums) add(s budget.Sums) {
	u.Calls, u.Input, u.Cached, u.Output = u.Calls+s.Calls, u.Input+s.Input, u.Cached+s.Cached, u.Output+s.Output
	u.Cost, u.Estimated = u.Cost+int64(s.Cost), u.Estimated+int64(s.Estimated)
	u.Overrun, u.Adjusted, u.Written = u.Overrun+int64(s.Overrun), u.Adjusted+int64(s.Adjusted), u.Written+s.Written
	u.Costs.Input, u.Costs.CachedInput = u.Costs.Input+s.Split.Input, u.Costs.CachedInput+s.Split.CachedInput
	u.Costs.CacheWrite, u.Costs.Output = u.Costs.CacheWrite+s.Split.CacheWrite, u.Costs.Output+s.Split.Output
	u.Costs.Fees += s.Split.Fees
}

// dimensions set a part of a line's name from a roll-up.
var dimensions = map[string]func(*UsageLine, budget.Rollup){
	"day":      func(l *UsageLine, r budget.Rollup) { l.Day = r.Day.Format(time.DateOnly) },
	"user":     func(l *UsageLine, r budget.Rollup) { l.User = r.User },
	"key":      func(l *UsageLine, r budget.Rollup) { l.Key = r.Key },
	"model":    func(l *UsageLine, r budget.Rollup) { l.Model = r.Model },
	"provider": func(l *UsageLine, r budget.Rollup) { l.Provider = r.Provider },
	"endpoint": func(l *UsageLine, r budget.Rollup) { l.Endpoint = r.Endpoint },
}

const maxUsageDays = 400 // for which daily sums are kept

func (c *call) getUsage() (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	from, to, err := c.days()
	if err != nil {
		return nil, err
	}
	by := strings.Split(cmp.Or(c.r.URL.Query().Get("by"), "user,model"), ",")
	for _, d := range by {
		if dimensions[d] == nil {
			return nil, wire.BadRequest("by", "invalid_value", "by must be any of day, user, key, model, provider and endpoint, not %.80q", d)
		}
	}
	rollups, err := c.o.Budget.Rollups(c.r.Context(), org, from, to)
	if err != nil {
		return nil, err
	}
	u := Usage{From: from.Format(time.DateOnly), To: to.Add(-1).Format(time.DateOnly), Lines: []UsageLine{}}
	sums := map[UsageLine]*UsageSums{}
	for _, r := range rollups {
		var at UsageLine
		for _, d := range by {
			dimensions[d](&at, r)
		}
		if sums[at] == nil {
			sums[at] = &UsageSums{}
		}
		sums[at].add(r.Sums)
		u.Total.add(r.Sums)
	}
	for line, s := range sums {
		line.UsageSums = *s
		u.Lines = append(u.Lines, line)
	}
	slices.SortFunc(u.Lines, func(a, b UsageLine) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return u, nil
}

// days reads the first and last UTC day wanted, both today when not given.
func (c *call) days() (from, to time.Time, err error) {
	today := c.start.UTC().Truncate(24 * time.Hour)
	days := [2]time.Time{today, today}
	for i, name := range []string{"from", "to"} {
		text := c.r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if days[i], err = time.Parse(time.DateOnly, text); err != nil {
			return from, to, wire.BadRequest(name, "invalid_value", "%s must be a day such as 2026-11-01", name)
		}
	}
	from, to = days[0], days[1].AddDate(0, 0, 1)
	if n := int(to.Sub(from) / (24 * time.Hour)); n < 1 || n > maxUsageDays {
		return from, to, wire.BadRequest("from", "invalid_value", "from and to must span 1 to %d days", maxUsageDays)
	}
	return from, to, nil
}
