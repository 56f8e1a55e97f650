package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/pricing"
)

// ledgers reads the ledgers of the selected orgs over the API.
type ledgers struct {
	*adminClient
	orgs   []string
	filter string // of entries, in the language of the API
}

// Close closes the client.
func (l *ledgers) Close() { l.close() }

// open returns the ledgers of the orgs named by --org, or of all orgs.
func (f *usageFlags) open(ctx context.Context) (*ledgers, error) { return f.openAt(ctx, "/orgs") }

// openDeleted is open with deleted orgs, whose ledgers remain.
func (f *usageFlags) openDeleted(ctx context.Context) (*ledgers, error) {
	return f.openAt(ctx, "/orgs?deleted=true")
}

func (f *usageFlags) openAt(ctx context.Context, path string) (*ledgers, error) {
	api, err := f.adminFlags.open(ctx)
	if err != nil {
		return nil, err
	}
	known, err := api.orgsAt(ctx, path)
	if err != nil {
		api.close()
		return nil, err
	}
	orgs, err := pickOrgs(known, f.org)
	if err != nil {
		api.close()
		return nil, err
	}
	return &ledgers{adminClient: api, orgs: orgs}, nil
}

// orgsAt returns the ids of the orgs that a path of the admin API lists.
func (a *adminClient) orgsAt(ctx context.Context, path string) ([]string, error) {
	var l struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := a.ask(ctx, http.MethodGet, path, nil, &l); err != nil {
		return nil, err
	}
	out := make([]string, len(l.Data))
	for i, o := range l.Data {
		out[i] = o.ID
	}
	return out, nil
}

// openOne is open for commands that concern one org.
func (f *usageFlags) openOne(ctx context.Context) (*ledgers, string, error) {
	l, err := f.open(ctx)
	if err != nil {
		return nil, "", err
	}
	if len(l.orgs) != 1 {
		l.Close()
		return nil, "", fmt.Errorf("--org: choose one org: %s", strings.Join(l.orgs, ", "))
	}
	return l, l.orgs[0], nil
}

// pickOrgs returns the orgs of a comma-separated list, or all orgs if it is empty.
func pickOrgs(known []string, list string) ([]string, error) {
	if list == "" || list == "all" && !slices.Contains(known, "all") {
		return known, nil
	}
	var orgs []string
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("--org %s: no such org. Orgs: %s", id, strings.Join(known, ", "))
		}
		if !slices.Contains(orgs, id) {
			orgs = append(orgs, id)
		}
	}
	return orgs, nil
}

func orgIDs(cfg *config.Config) []string {
	out := make([]string, len(cfg.Orgs))
	for i, o := range cfg.Orgs {
		out[i] = o.ID
	}
	return out
}

// timed adds a period to a query; a zero time leaves that end open.
func timed(q url.Values, from, to time.Time) url.Values {
	for name, t := range map[string]time.Time{"from": from, "to": to} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// filtered adds a filter to a query.
func filtered(q url.Values, text string) url.Values {
	if text != "" {
		q.Set("filter", text)
	}
	return q
}

// Entries calls fn with the org's ledger entries in [from, to), oldest first.
func (l *ledgers) Entries(ctx context.Context, org string, from, to time.Time, fn func(budget.Entry) error) error {
	return l.entries(ctx, org, filtered(timed(url.Values{}, from, to), l.filter), fn)
}

// Recent is Entries, newest first.
func (l *ledgers) Recent(ctx context.Context, org string, from, to time.Time, fn func(budget.Entry) error) error {
	return l.entries(ctx, org, filtered(timed(url.Values{"order": {"newest"}}, from, to), l.filter), fn)
}

func (l *ledgers) entries(ctx context.Context, org string, q url.Values, fn func(budget.Entry) error) error {
	return l.lines(ctx, pathOf("orgs", org, "ledger")+"?"+q.Encode(), func(line json.RawMessage) error {
		var e budget.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		return fn(e)
	})
}

// Corrections calls fn with the manual corrections in [from, to), oldest first.
func (l *ledgers) Corrections(ctx context.Context, org string, from, to time.Time,
	fn func(budget.AuditRecord) error,
) error {
	return l.lines(ctx, pathOf("orgs", org, "corrections")+"?"+timed(url.Values{}, from, to).Encode(),
		func(line json.RawMessage) error {
			var r budget.AuditRecord
			if err := json.Unmarshal(line, &r); err != nil {
				return err
			}
			return fn(r)
		})
}

// Refusals returns what the org's limits refused in [from, to), by hour.
func (l *ledgers) Refusals(ctx context.Context, org string, from, to time.Time) ([]admin.Refusal, error) {
	return l.refusals(ctx, timed(url.Values{"org": {org}, "by": {"hour"}}, from, to))
}

// refusals fetches refusal counts.
func (a *adminClient) refusals(ctx context.Context, q url.Values) ([]admin.Refusal, error) {
	var list struct {
		Data []admin.Refusal `json:"data"`
	}
	err := a.ask(ctx, http.MethodGet, "/refusals?"+q.Encode(), nil, &list)
	return list.Data, err
}

// sumDays is how many days one request covers.
const sumDays = 400

// sumsQuery selects sums of an org in [from, to), which are whole UTC days unless hours is set.
type sumsQuery struct {
	org      string
	from, to time.Time
	hours    bool     // by hour; UTC days without hourly data are returned as days
	by       []string // in addition to time
	filter   string
}

// sums returns sums. since is set if ledger entries before it were not read.
func (l *ledgers) sums(ctx context.Context, s sumsQuery) (out []budget.Rollup, since time.Time, err error) {
	by, layout := "day", time.DateOnly
	if s.hours {
		by, layout = "day,hour", time.RFC3339Nano
	}
	for from := s.from; from.Before(s.to); {
		end := from.AddDate(0, 0, sumDays)
		if s.to.Before(end) {
			end = s.to
		}
		q := filtered(url.Values{
			"from": {from.UTC().Format(layout)}, "to": {end.UTC().Format(layout)},
			"by": {by + "," + strings.Join(s.by, ",")},
		}, s.filter)
		if !s.hours { // days are complete
			q.Set("to", end.UTC().Add(-time.Nanosecond).Format(layout))
		}
		var u admin.Usage
		if err := l.ask(ctx, http.MethodGet, pathOf("orgs", s.org, "usage")+"?"+q.Encode(), nil, &u); err != nil {
			return nil, since, err
		}
		if u.Since != nil && u.Since.After(since) {
			since = *u.Since
		}
		for _, line := range u.Lines {
			r, err := rollupOf(line, s.label())
			if err != nil {
				return nil, since, err
			}
			out = append(out, r)
		}
		from = end
	}
	return out, since, nil
}

// label returns the label that is grouped by, or "".
func (s *sumsQuery) label() string {
	for _, d := range s.by {
		if name, ok := budget.LabelIn(d); ok {
			return name
		}
	}
	return ""
}

func rollupOf(l admin.UsageLine, label string) (budget.Rollup, error) {
	begin, err := time.Parse(time.DateOnly, l.Day)
	if l.Hour != "" {
		begin, err = time.Parse(time.RFC3339, l.Hour)
	}
	return budget.Rollup{
		Begin: begin, Hour: l.Hour != "", User: l.User, Key: l.Key, Provider: l.Provider, Endpoint: l.Endpoint,
		Model: l.Model, Run: budget.RunPath(l.Run), Labels: budget.Labels("").With(label, l.Label),
		Sums: budget.Sums{
			Cost: pricing.Nano(l.Cost), Calls: l.Calls, Input: l.Input, Cached: l.Cached, Written: l.Written, Output: l.Output,
			Split: pricing.Split(l.Costs), Adjusted: pricing.Nano(l.Adjusted), Estimated: pricing.Nano(l.Estimated),
			Overrun: pricing.Nano(l.Overrun),
		},
	}, err
}
