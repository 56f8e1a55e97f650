package cli

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

func limitsRefusalsCommand() *cobra.Command {
	var f usageFlags
	var user string
	c := &cobra.Command{
		Use: "refusals", Short: "Show the users whose calls limits refused or delayed", Args: cobra.NoArgs,
		Long: "Counts calls by user and limit: calls refused because of a limit, and calls that waited for it. A call that waits for\n" +
			"several limits counts once for each. Counts are hourly for 14 days, before that daily (UTC).",
		Example: "  llmguard limits refusals --from 12h\n" +
			"  llmguard limits refusals --org acme --user alice --from 7d -o json",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !f.period.given() {
			f.period.from = "24h"
		}
		from, to, err := f.period.bounds(time.Now())
		if err != nil {
			return err
		}
		l, err := f.open(c.Context())
		if err != nil {
			return err
		}
		defer l.Close()
		q := url.Values{}
		for name, value := range map[string]string{"org": f.org, "user": user} {
			if value != "" && (name != "org" || value != "all") {
				q.Set(name, value)
			}
		}
		list, err := l.refusals(c.Context(), timed(q, from, to))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			fmt.Fprintf(c.ErrOrStderr(), "no calls refused or delayed by a limit since %s\n", from.Format(hourLayout))
		}
		return render(c.OutOrStdout(), f.output, list, func(w io.Writer) error { return refusalTable(w, list) })
	}
	f.add(c, listFormats...)
	f.period.add(c)
	c.Flags().StringVar(&user, "user", "", "only this user")
	return c
}

func refusalTable(w io.Writer, list []admin.Refusal) error {
	if len(list) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"org", "user", "limit", "refused", "waited", "first (UTC)", "last (UTC)"},
		numbers: []bool{false, false, false, true, true, false, false},
	}
	for _, r := range list {
		g.add(r.Org, r.User, r.Limit, whole(r.Refused), whole(r.Waited), day(&r.First, ""), day(&r.Last, ""))
	}
	return g.write(w)
}
