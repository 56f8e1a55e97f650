package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
)

func auditCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "audit", Short: "List manual billing corrections", Args: cobra.NoArgs,
		Example: "  llmguard usage audit --from 2026-11",
		RunE:    func(c *cobra.Command, _ []string) error { return showAudit(c.Context(), &f, c.OutOrStdout()) },
	}
	f.add(c, listFormats...)
	f.period.add(c)
	return c
}

func showAudit(ctx context.Context, f *usageFlags, w io.Writer) error {
	from := time.Time{}
	to := time.Time{}
	err := error(nil)
	if f.period.given() {
		from, to, err = f.period.bounds(time.Now())
		if err != nil {
			return err
		}
	}
	l, err := f.openDeleted(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	list := []budget.AuditRecord{}
	for _, org := range l.orgs {
		err := l.Corrections(ctx, org, from, to, func(r budget.AuditRecord) error {
			list = append(list, r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return render(w, f.output, list, func(w io.Writer) error {
		g := grid{
			head:    []string{"time (UTC)", "org", "user", "action", "amount", "by", "reason", "limits", "id"},
			numbers: []bool{false, false, false, false, true, false, false, false, false},
		}
		for _, r := range list {
			g.add(r.At.UTC().Format("2006-01-02 15:04:05"), r.Org, r.User, r.Action, usd(w, r.Amount), escape.Text(r.By),
				escape.Text(r.Reason), strings.Join(r.Limits, ","), r.ID)
		}
		return g.write(w)
	})
}
