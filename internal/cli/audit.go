package cli

import (
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants"
)

// auditWorker lists more entries than the API returns in one page.
func auditWorker(c *cobra.Command) worker {
	var limit int
	var everything bool
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of entries (0: all)")
	c.Flags().BoolVar(&everything, "all", false, "list all entries")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return func(c *cobra.Command, o *operated, a *adminClient) error {
		if everything {
			limit = 0
		}
		list, err := o.audit(c, a, limit)
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
func (o *operated) audit(c *cobra.Command, a *adminClient, limit int) ([]tenants.AuditEntry, error) {
	if limit < 0 {
		return nil, misused("--limit %d: expected 0 or more", limit)
	}
	out := []tenants.AuditEntry{}
	for {
		most := 1000
		if limit > 0 {
			most = min(most, limit-len(out))
		}
		o.values["limit"] = strconv.Itoa(most)
		var page struct {
			Data    []tenants.AuditEntry `json:"data"`
			HasMore bool                 `json:"has_more"`
		}
		if err := a.ask(c.Context(), o.op.Method, o.path(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Data...)
		if !page.HasMore || limit > 0 && len(out) >= limit {
			return out, nil
		}
		o.values["after"] = out[len(out)-1].ID
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
