package cli

import (
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants"
)

// auditWorker adds what the CLI has beside the API: a period as other commands have it, and more entries than a page.
func auditWorker(c *cobra.Command) worker {
	var p period
	var limit int
	var everything bool
	p.add(c)
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of entries (0: all)")
	c.Flags().BoolVar(&everything, "all", false, "list all entries")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return func(c *cobra.Command, o *operated, a *adminClient) error {
		q := url.Values{}
		for _, name := range []string{"org", "actor", "action"} {
			if o.values[name] != "" {
				q.Set(name, o.values[name])
			}
		}
		if p.given() {
			from, to, err := p.bounds(time.Now())
			if err != nil {
				return err
			}
			q.Set("from", from.Format(time.RFC3339))
			q.Set("to", to.Add(time.Second).Format(time.RFC3339))
		}
		if everything {
			limit = 0
		}
		list, err := a.audit(c, q, limit)
		switch {
		case err != nil:
			return err
		case o.output == "csv":
			return auditCSV(c.OutOrStdout(), list)
		}
		return o.list(c, reflect.ValueOf(list))
	}
}

// audit fetches up to limit entries, page by page.
func (a *adminClient) audit(c *cobra.Command, q url.Values, limit int) ([]tenants.AuditEntry, error) {
	if limit < 0 {
		return nil, misused("--limit %d: expected 0 or more", limit)
	}
	out := []tenants.AuditEntry{}
	for {
		most := 1000
		if limit > 0 {
			most = min(most, limit-len(out))
		}
		q.Set("limit", strconv.Itoa(most))
		var page struct {
			Data    []tenants.AuditEntry `json:"data"`
			HasMore bool                 `json:"has_more"`
		}
		if err := a.ask(c.Context(), http.MethodGet, "/audit?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Data...)
		if !page.HasMore || limit > 0 && len(out) >= limit {
			return out, nil
		}
		q.Set("after", out[len(out)-1].ID)
	}
}

// auditCSV writes one line per entry, with before and after as JSON.
func auditCSV(out io.Writer, list []tenants.AuditEntry) error {
	w := escape.NewCSV(out)
	if err := w.Write([]string{
		"id", "at", "actor", "action", "org", "target", "reason", "before", "after", "request_id",
		"ip",
	}); err != nil {
		return err
	}
	for _, e := range list {
		line := []string{
			e.ID, e.At.UTC().Format(time.RFC3339Nano), e.Actor, e.Action, e.Org, e.Target, e.Reason, string(e.Before),
			string(e.After), e.RequestID, e.IP,
		}
		for i, text := range line {
			line[i] = budget.CellText(text)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
