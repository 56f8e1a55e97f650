package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
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
	// WholeDays is the number of UTC days in hourly sums that have no hourly data.
	WholeDays int `json:"whole_days,omitempty"`
}

// UsageLine is one sum. Dimensions that it is not grouped by are empty.
type UsageLine struct {
	Org   string `json:"org,omitempty"`
	Month string `json:"month,omitempty"`
	Day   string `json:"day"`
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
	// Class is a class of tokens with by=class, as input or unmetered. The cost is what was paid for it, and
	// the tokens are its own.
	Class string `json:"class,omitempty"`
	UsageSums
}

// Sums returns the totals as the ledger has them.
func (s *UsageSums) Sums() ledger.Sums {
	return ledger.Sums{
		Cost: pricing.Nano(s.Cost), Calls: s.Calls, Input: s.Input, Cached: s.Cached, Written: s.Written, Output: s.Output,
		Split: pricing.Split(s.Costs), Adjusted: pricing.Nano(s.Adjusted), Estimated: pricing.Nano(s.Estimated),
		Overrun: pricing.Nano(s.Overrun),
	}
}

// Value returns the line's field for a dimension.
func (l *UsageLine) Value(dimension string) *string {
	switch dimension {
	case "org":
		return &l.Org
	case ledger.Month:
		return &l.Month
	case ledger.Day:
		return &l.Day
	case ledger.Hour:
		return &l.Hour
	case "user":
		return &l.User
	case "key":
		return &l.Key
	case "model":
		return &l.Model
	case "provider":
		return &l.Provider
	case "endpoint":
		return &l.Endpoint
	case ledger.Run:
		return &l.Run
	case ledger.Class:
		return &l.Class
	}
	return &l.Label
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
	Costs ledger.Costs `json:"costs_nano_usd"`
}

func usageSums(s ledger.Sums) UsageSums {
	return UsageSums{
		Calls: s.Calls, Input: s.Input, Cached: s.Cached, Written: s.Written, Output: s.Output,
		Cost: int64(s.Cost), Estimated: int64(s.Estimated), Overrun: int64(s.Overrun), Adjusted: int64(s.Adjusted),
		Costs: ledger.Costs(s.Split),
	}
}

type usageHandler struct {
	base
	scans chan struct{} // full while two requests read the ledger
}

func (h *usageHandler) getUsage(c *call) (any, error) {
	org := c.r.PathValue("org")
	q, hours, err := h.usagePeriod(c)
	if err != nil {
		return nil, err
	}
	q.Orgs = []string{org}
	names := strings.Split(cmp.Or(c.r.URL.Query().Get("by"), "user,model"), ",")
	q.By, err = h.by(names)
	if err != nil {
		return nil, err
	}
	q.Filter, err = h.filter(c)
	if err != nil {
		return nil, err
	}
	u := Usage{From: q.From.Format(time.DateOnly), To: q.To.Add(-1).Format(time.DateOnly), Lines: []UsageLine{}}
	if hours || slices.Contains(names, ledger.Hour) {
		u.From, u.To = q.From.Format(time.RFC3339), q.To.Format(time.RFC3339)
	}
	report, err := h.report(c.r.Context(), q)
	if err != nil {
		return nil, err
	}
	u.Total, u.WholeDays = usageSums(report.Total), report.WholeDays
	if !report.Since.IsZero() {
		u.Since = &report.Since
	}
	for _, row := range report.Rows {
		line := UsageLine{UsageSums: usageSums(row.Sums)}
		for i, name := range names {
			*line.Value(name) = row.Values[i]
		}
		u.Lines = append(u.Lines, line)
	}
	slices.SortStableFunc(u.Lines, func(a, b UsageLine) int {
		return cmp.Or(cmp.Compare(a.Month, b.Month), cmp.Compare(a.Day, b.Day), cmp.Compare(a.Hour, b.Hour),
			cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.User, b.User), cmp.Compare(a.Key, b.Key))
	})
	return u, nil
}

// report answers a query. At most two of this process read entries or make series at the same time.
func (h *usageHandler) report(ctx context.Context, q ledger.Query) (*ledger.Report, error) {
	books := h.opts.Budget.Ledger
	read := func() (*ledger.Report, error) { return ledger.Read(ctx, books, q) }
	if q.Step > 0 || q.FromEntries(books) {
		return scan(ctx, h, read)
	}
	return read()
}

// by parses what usage is grouped by: at most one label, which must be configured, because a misspelled
// one would silently be empty.
func (h *usageHandler) by(names []string) ([]ledger.Dimension, error) {
	by, err := ledger.ParseBy(strings.Join(names, ","))
	if err != nil {
		return nil, invalid("by", "by: %v", err)
	}
	label, err := ledger.LabelOf(names)
	if err != nil {
		return nil, invalid("by", "by: %v", err)
	}
	named := func(l guard.Label) bool { return l.Name == label }
	if label != "" && label != ledger.GroupLabel && !slices.ContainsFunc(h.opts.Policy().Labels, named) {
		return nil, invalid("by", "There is no label %.40q in the configuration", label)
	}
	return by, nil
}

// usagePeriod parses the period, by default today, and reports whether it is in hours.
func (h *usageHandler) usagePeriod(c *call) (q ledger.Query, hours bool, err error) {
	asked := c.r.URL.Query()
	q.Zone, err = ledger.Zone(asked.Get("tz"))
	if err != nil {
		return q, false, invalid("tz", "tz: %v", err)
	}
	now, from, to := c.start.In(q.Zone), cmp.Or(asked.Get("from"), "today"), cmp.Or(asked.Get("to"), "today")
	q.From, _, err = instant("from", from, now)
	if err != nil {
		return q, false, err
	}
	_, q.To, err = instant("to", to, now)
	if err != nil {
		return q, false, err
	}
	hours = ledger.WithinDay(from) || ledger.WithinDay(to)
	if !hours {
		q.From, q.To = ledger.WholeDays(q.From, q.To)
	}
	longest := (ledger.MostDays*24 + 1) * time.Hour // one hour more, for clock changes
	if !q.From.Before(q.To) || q.To.Sub(q.From) > longest {
		return q, false, invalid("from", "from and to must span 1 to %d days", ledger.MostDays)
	}
	return q, hours || q.Zone != time.UTC, nil
}

// instant parses a time of a period, as ledger.Instant does.
func instant(name, text string, now time.Time) (begin, end time.Time, err error) {
	begin, end, err = ledger.Instant(text, now)
	if err != nil {
		err = invalid(name, "%s %v", name, err)
	}
	return begin, end, err
}

func labelsOf(pairs []string) (ledger.Labels, error) {
	values := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return newLabels(values)
}

func newLabels(values map[string]string) (ledger.Labels, error) {
	labels, err := ledger.NewLabels(values)
	if err != nil {
		return "", invalid("label", "label: %v", err)
	}
	return labels, nil
}

// CallPage is a page of ledger entries.
type CallPage struct {
	Object string         `json:"object"` // always "list"
	Data   []ledger.Entry `json:"data"`
	// Next is where to continue, as the parameter before; empty if nothing is left.
	Next string `json:"next"`
	// Since is set if entries before it were not searched yet, because there are too many. Continue
	// at Next.
	Since *time.Time `json:"since"`
}

func (h *usageHandler) searchCalls(c *call) (any, error) {
	org := c.r.PathValue("org")
	q := ledger.CallQuery{Org: org, Before: c.r.URL.Query().Get("before")}
	var err error
	q.From, q.To, err = c.period()
	if err != nil {
		return nil, err
	}
	q.Filter, err = h.filter(c)
	if err != nil {
		return nil, err
	}
	q.Limit, err = c.number("limit", 50, maxSpendGroups)
	if err != nil {
		return nil, err
	}
	switch sort := c.r.URL.Query().Get("sort"); sort {
	case "", "newest":
	case "cost":
		q.ByCost = true
	default:
		return nil, invalid("sort", "sort must be newest or cost")
	}
	if q.Before != "" && (q.ByCost || !ledger.ValidLedgerID(q.Before)) {
		return nil, invalid("before", "before must be next of a page that is not sorted by cost")
	}
	page, err := scan(c.r.Context(), h, func() (*ledger.CallPage, error) {
		return ledger.Search(c.r.Context(), h.opts.Budget.Ledger, q)
	})
	if err != nil {
		return nil, err
	}
	out := CallPage{Object: "list", Data: page.Entries, Next: page.Next}
	if out.Data == nil {
		out.Data = []ledger.Entry{}
	}
	if !page.Since.IsZero() {
		out.Since = &page.Since
	}
	return out, nil
}
