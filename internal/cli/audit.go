package cli

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants"
)

// changesCommand lists what administrators changed.
func changesCommand() *cobra.Command {
	var f adminFlags
	var p period
	var org, actor, action string
	var limit int
	var everything bool
	c := &cobra.Command{
		Use: "audit", Short: "List who changed what, when and why", Args: cobra.NoArgs,
		Long: "Lists about the last 100,000 changes by administrators, newest first. For an archive, `-o jsonl` and `-o csv` write one\n" +
			"line per change, with the values before and after; --all lists everything. `llmguard usage audit` lists billing\n" +
			"corrections.\n\n" +
			adminHelp,
		Example: "  llmguard audit --org acme\n" +
			"  llmguard audit --action key.create --from 7d\n" +
			"  llmguard audit --all -o csv --from 2026-11 > audit.csv",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{}
		for name, value := range map[string]string{"org": org, "actor": actor, "action": action} {
			if value != "" {
				q.Set(name, value)
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
		return f.run(c, func(a *adminClient) error {
			list, err := a.audit(c, q, limit)
			if err != nil {
				return err
			}
			if f.output == "csv" {
				return auditCSV(c.OutOrStdout(), list)
			}
			return render(c.OutOrStdout(), f.output, list, func(w io.Writer) error { return auditTable(w, list) })
		})
	}
	f.add(c, listFormats...)
	p.add(c)
	fl := c.Flags()
	fl.StringVar(&org, "org", "", "only changes to this org")
	fl.StringVar(&actor, "actor", "", "only changes by this administrator")
	fl.StringVar(&action, "action", "", "only this action, such as key.create")
	fl.IntVar(&limit, "limit", 100, "maximum number of entries (0: all)")
	fl.BoolVar(&everything, "all", false, "list all entries")
	c.MarkFlagsMutuallyExclusive("all", "limit")
	return c
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

func auditTable(w io.Writer, list []tenants.AuditEntry) error {
	g := grid{head: []string{"time (UTC)", "who", "action", "org", "target", "reason"}, numbers: make([]bool, 6)}
	for _, e := range list {
		g.add(e.At.UTC().Format("2006-01-02 15:04:05"), escape.Text(e.Actor), e.Action, e.Org,
			strings.ReplaceAll(escape.Text(e.Target), " ", "/"), escape.Text(e.Reason))
	}
	return g.write(w)
}
