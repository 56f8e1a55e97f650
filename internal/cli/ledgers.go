package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// ledgers reads the ledgers of the selected orgs over the API.
type ledgers struct {
	*adminClient
	orgs   []string
	filter string // of entries, in the language of the API
}

// open returns the ledgers of the orgs named by --org, or of all orgs; with deleted ones, whose ledgers remain.
func (f *usageFlags) open(ctx context.Context, deleted bool) (*ledgers, error) {
	api, err := f.adminFlags.open(ctx)
	if err != nil {
		return nil, err
	}
	orgs, err := api.pickOrgs(ctx, f.org, deleted)
	if err != nil {
		api.close()
		return nil, err
	}
	return &ledgers{adminClient: api, orgs: orgs}, nil
}

// pickOrgs returns the orgs of a comma-separated list, or all orgs if it is empty; with deleted ones, whose ledgers
// remain.
func (a *adminClient) pickOrgs(ctx context.Context, names string, deleted bool) ([]string, error) {
	path := "/orgs"
	if deleted {
		path += "?deleted=true"
	}
	orgs, err := list[struct{ ID string }](ctx, a, path)
	if err != nil {
		return nil, err
	}
	known := make([]string, len(orgs))
	for i, o := range orgs {
		known[i] = o.ID
	}
	return pickOrgs(known, names)
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
			return nil, fmt.Errorf("--org %s: no such org%s", id, settings.Hint(id, known))
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

func filtered(q url.Values, text string) url.Values {
	if text != "" {
		q.Set("filter", text)
	}
	return q
}

// Entries calls fn with the ledger entries of each org in [from, to), oldest first.
func (l *ledgers) Entries(ctx context.Context, from, to time.Time, fn func(ledger.Entry) error) error {
	for _, org := range l.orgs {
		if err := l.entries(ctx, org, filtered(timed(url.Values{}, from, to), l.filter), fn); err != nil {
			return err
		}
	}
	return nil
}

// Recent calls fn with the entries of an org, newest first.
func (l *ledgers) Recent(ctx context.Context, org string, from, to time.Time, fn func(ledger.Entry) error) error {
	return l.entries(ctx, org, filtered(timed(url.Values{"order": {"newest"}}, from, to), l.filter), fn)
}

func (l *ledgers) entries(ctx context.Context, org string, q url.Values, fn func(ledger.Entry) error) error {
	return l.lines(ctx, pathOf("orgs", org, "ledger")+"?"+q.Encode(), func(line json.RawMessage) error {
		var e ledger.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		return fn(e)
	})
}

// Refusals returns what the org's limits refused in [from, to), by hour.
func (l *ledgers) Refusals(ctx context.Context, org string, from, to time.Time) ([]admin.Refusal, error) {
	q := timed(url.Values{"org": {org}, "by": {"hour"}}, from, to)
	return list[admin.Refusal](ctx, l.adminClient, "/refusals?"+q.Encode())
}

// usage fetches what an org spent in [from, to), in requests of at most ledger.MostDays.
func (l *ledgers) usage(ctx context.Context, org string, r *report, add func(*admin.Usage)) error {
	for from := r.from; from.Before(r.to); {
		end := from.AddDate(0, 0, ledger.MostDays)
		if r.to.Before(end) {
			end = r.to
		}
		q := filtered(timed(url.Values{"by": {strings.Join(r.by, ",")}, "tz": {r.zone.String()}}, from, end), r.filter)
		if !r.hours {
			q.Set("from", from.Format(time.DateOnly))
			q.Set("to", end.Add(-time.Nanosecond).Format(time.DateOnly))
		}
		u, err := get[admin.Usage](ctx, l.adminClient, pathOf("orgs", org, "usage")+"?"+q.Encode())
		if err != nil {
			return err
		}
		add(&u)
		from = end
	}
	return nil
}
