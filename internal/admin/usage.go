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
	// Since is set if ledger entries before it were not read, because there are too many or they are no
	// longer in the ledger. Then the sums are those since then.
	Since *time.Time `json:"since"`
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
	// Run is the path of a run: the ids from the outermost to its own, joined with /.
	Run string `json:"run,omitempty"`
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
	"run":      func(l *UsageLine, r budget.Rollup) { l.Run = string(r.Run) },
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
	if _, err := h.dir.ledgerOrg(c.r.Context(), org); err != nil {
		return nil, err
	}
	p, err := h.usagePeriod(c)
	if err != nil {
		return nil, err
	}
	by := strings.Split(cmp.Or(c.r.URL.Query().Get("by"), "user,model"), ",")
	for _, d := range by {
		if _, label := budget.LabelIn(d); dimensions[d] == nil && !label {
			return nil, wire.BadRequest("by", "invalid_value",
				"by must be any of day, hour, user, key, model, provider, endpoint, run, group and label:NAME, not %.80q", d)
		}
	}
	label, err := h.labelOf(by)
	if err != nil {
		return nil, err
	}
	q := budget.UsageQuery{Org: org, From: p.from, To: p.to}
	q.Filter, err = h.filter(c)
	if err != nil {
		return nil, err
	}
	p.hours = p.hours || slices.Contains(by, "hour")
	if byDay, ok := daysAlone(by); ok && !p.hours && len(c.r.URL.Query()["filter"]) == 0 && h.summed(label) {
		return h.labelUsage(c, p, label, byDay)
	}
	for _, d := range by {
		if _, label := budget.LabelIn(d); d == budget.RunDimension || label {
			one, err := budget.DimensionOf(d)
			if err != nil {
				return nil, wire.BadRequest("by", "invalid_value", "by: %v", err)
			}
			q.By = append(q.By, one)
		}
	}
	return h.sums(c, p, q, by)
}

// sums adds up the usage of a period.
func (h *usageHandler) sums(c *call, p usagePeriod, q budget.UsageQuery, by []string) (any, error) {
	u := Usage{From: p.from.Format(time.DateOnly), To: p.to.Add(-1).Format(time.DateOnly), Lines: []UsageLine{}}
	if p.hours {
		u.From, u.To, q.Hours = p.from.Format(time.RFC3339), p.to.Format(time.RFC3339), true
	}
	if q.FromEntries() {
		if err := h.enter(c.r.Context()); err != nil {
			return nil, err
		}
		defer h.leave()
	}
	list, since, err := h.opts.Budget.Ledger.Usage(c.r.Context(), q)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		u.Since = &since
	}
	groups, total := budget.Group(list, func(r budget.Rollup) (at UsageLine) {
		if r.Hour {
			r.Begin = r.Begin.In(p.zone)
		}
		for _, d := range by {
			if set := dimensions[d]; set != nil {
				set(&at, r)
			} else {
				label, _ := budget.LabelIn(d)
				at.Label = r.Labels.Get(label)
			}
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
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Endpoint, b.Endpoint),
			cmp.Compare(a.Run, b.Run), cmp.Compare(a.Label, b.Label))
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
