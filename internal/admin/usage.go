package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// Usage is what an org spent in a period of days or hours.
type Usage struct {
	From  string      `json:"from"` // first and last day; for hours, start and end
	To    string      `json:"to"`
	Lines []UsageLine `json:"lines"`
	Total UsageSums   `json:"total"`
}

// UsageLine is one sum. Dimensions that it is not grouped by are empty.
type UsageLine struct {
	Day string `json:"day"`
	// Hour is the start of the hour; empty for a UTC day without hourly data.
	Hour     string `json:"hour"`
	User     string `json:"user"`
	Key      string `json:"key"`
	Model    string `json:"model"`
	Provider string `json:"provider"`
	Endpoint string `json:"endpoint"`
	// Label is the value of the label with by=label:NAME.
	Label string `json:"label,omitempty"`
	UsageSums
}

// UsageSums are totals; amounts are in nano-USD.
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
	// Costs breaks the cost down by token class. The rest was charged without the provider's
	// usage, or adjusted.
	Costs budget.Costs `json:"costs_nano_usd"`
}

func usageSums(s budget.Sums) UsageSums {
	return UsageSums{
		Calls: s.Calls, Input: s.Input, Cached: s.Cached, Written: s.Written, Output: s.Output,
		Cost: int64(s.Cost), Estimated: int64(s.Estimated), Overrun: int64(s.Overrun), Adjusted: int64(s.Adjusted),
		Costs: budget.Costs{
			Input: s.Split.Input, CachedInput: s.Split.CachedInput, CacheWrite: s.Split.CacheWrite, Output: s.Split.Output,
			Fees: s.Split.Fees,
		},
	}
}

// dimensions set a line's fields from a roll-up, whose times are in the requested zone.
var dimensions = map[string]func(*UsageLine, budget.Rollup){
	"day": func(l *UsageLine, r budget.Rollup) { l.Day = r.Begin.Format(time.DateOnly) },
	"hour": func(l *UsageLine, r budget.Rollup) {
		if r.Hour {
			l.Hour = r.Begin.Format(time.RFC3339)
		}
	},
	"user":     func(l *UsageLine, r budget.Rollup) { l.User = r.User },
	"key":      func(l *UsageLine, r budget.Rollup) { l.Key = r.Key },
	"model":    func(l *UsageLine, r budget.Rollup) { l.Model = r.Model },
	"provider": func(l *UsageLine, r budget.Rollup) { l.Provider = r.Provider },
	"endpoint": func(l *UsageLine, r budget.Rollup) { l.Endpoint = r.Endpoint },
}

// usageHandler adds up usage and refusals.
type usageHandler struct {
	opts  *Options
	dir   *directory
	scans chan struct{} // full while two requests read the ledger
}

const maxUsageDays = 400 // retention of daily sums

func (h *usageHandler) getUsage(c *call) (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := h.dir.org(org); err != nil {
		return nil, err
	}
	p, err := h.usagePeriod(c)
	if err != nil {
		return nil, err
	}
	by := strings.Split(cmp.Or(c.r.URL.Query().Get("by"), "user,model"), ",")
	if label, byDay, ok := labelOf(by); ok {
		return h.labelUsage(c, p, label, byDay)
	}
	for _, d := range by {
		if dimensions[d] == nil {
			return nil, wire.BadRequest("by", "invalid_value",
				"by must be any of day, hour, user, key, model, provider and endpoint, or label:NAME alone or with day, "+
					"not %.80q", d)
		}
	}
	p.hours = p.hours || slices.Contains(by, "hour")
	u, rollups := Usage{From: p.from.Format(time.DateOnly), To: p.to.Add(-1).Format(time.DateOnly), Lines: []UsageLine{}},
		h.opts.Budget.Ledger.Rollups
	if p.hours {
		u.From = p.from.Format(time.RFC3339)
		u.To = p.to.Format(time.RFC3339)
		rollups = h.opts.Budget.Ledger.HourRollups
	}
	list, err := rollups(c.r.Context(), org, p.from, p.to)
	if err != nil {
		return nil, err
	}
	groups, total := budget.Group(list, func(r budget.Rollup) (at UsageLine) {
		if r.Hour {
			r.Begin = r.Begin.In(p.zone)
		}
		for _, d := range by {
			dimensions[d](&at, r)
		}
		return at
	})
	u.Total = usageSums(total)
	for line, s := range groups {
		line.UsageSums = usageSums(*s)
		u.Lines = append(u.Lines, line)
	}
	slices.SortFunc(u.Lines, func(a, b UsageLine) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Hour, b.Hour), cmp.Compare(b.Cost, a.Cost),
			cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return u, nil
}

// usagePeriod is [from, to) in a zone, and whether it is in hours.
type usagePeriod struct {
	from, to time.Time
	zone     *time.Location
	hours    bool
}

// usagePeriod parses the first and last day, by default today, or two times.
func (h *usageHandler) usagePeriod(c *call) (p usagePeriod, err error) {
	q := c.r.URL.Query()
	p.zone, err = zoneOf(q.Get("tz"))
	if err != nil {
		return p, err
	}
	p.hours = p.zone != time.UTC
	today := c.start.In(p.zone).Format(time.DateOnly)
	p.from, _, err = p.instant("from", cmp.Or(q.Get("from"), today))
	if err != nil {
		return p, err
	}
	_, p.to, err = p.instant("to", cmp.Or(q.Get("to"), today))
	if err != nil {
		return p, err
	}
	if !p.from.Before(p.to) || p.to.Sub(p.from) > (maxUsageDays*24+1)*time.Hour { // one hour more, for clock changes
		return p, wire.BadRequest("from", "invalid_value", "from and to must span 1 to %d days", maxUsageDays)
	}
	return p, nil
}

// instant parses a day or a time and returns it as the start and the end of a period.
func (p *usagePeriod) instant(name, text string) (begin, end time.Time, err error) {
	if day, err := time.ParseInLocation(time.DateOnly, text, p.zone); err == nil {
		return day, day.AddDate(0, 0, 1), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, at, wire.BadRequest(name, "invalid_value",
			"%s must be a day such as 2026-11-01, or a time such as 2026-11-01T08:00:00Z", name)
	}
	p.hours = true
	return at.In(p.zone), at.In(p.zone), nil
}

func zoneOf(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, wire.BadRequest("tz", "invalid_value", "tz: %.80q is no time zone; expected a name such as Europe/Berlin",
			name)
	}
	return zone, nil
}
