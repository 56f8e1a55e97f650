package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

func limitsExplainCommand() *cobra.Command {
	var f adminFlags
	var s subject
	var model, endpoint string
	c := &cobra.Command{
		Use: "explain", Short: "Show which limits count a call, where each is set, and why others do not", Args: cobra.NoArgs,
		Long: "A limit of a later place replaces that of the same name in an earlier one: defaults, org, group, plan, user. The\n" +
			"limit that binds first comes first. Without --model, limits for certain models do not count the call.",
		Example: "  llmguard limits explain --user alice --model gpt-5\n" +
			"  llmguard limits explain --org acme --key alice-1 --model gpt-5 -o json",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		s.org = cmp.Or(s.org, "all") // the API finds it
		if s.user == "" && s.key == "" {
			return misused("name the caller with --user or --key")
		}
		query := s.query()
		for name, value := range map[string]string{"model": model, "endpoint": endpoint} {
			if value != "" {
				query += "&" + name + "=" + url.QueryEscape(value)
			}
		}
		return f.run(c, func(a *adminClient) error {
			var e admin.Explanation
			if err := a.ask(c.Context(), http.MethodGet, pathOf("orgs", s.org, "limits", "explain")+query, nil, &e); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, e, func(w io.Writer) error { return explanationText(w, &e) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&s.org, "org", "", "the org (default: the only one that has the user or key)")
	c.Flags().StringVar(&s.user, "user", "", "the user of the call")
	c.Flags().StringVar(&s.key, "key", "", "the key of the call")
	c.Flags().StringVar(&model, "model", "", "model of the call")
	c.Flags().StringVar(&endpoint, "endpoint", "", "endpoint of the call (default chat.completions)")
	c.Flags().StringVar(&s.ip, "ip", "", "client address of the call")
	s.labels.add(c, "label of the call, as name=value (repeat for several)")
	return c
}

func explanationText(w io.Writer, e *admin.Explanation) error {
	who := "user " + e.User
	if e.Key != "" {
		who = "key " + e.Key + " of " + who
	}
	if e.Group != "" {
		who += ", group " + e.Group
	}
	if e.Plan != "" {
		who += ", plan " + e.Plan + " (named by the " + e.PlanFrom + ")"
	}
	call := e.Endpoint
	if e.Model != "" {
		call += " with " + e.Model
	}
	if _, err := fmt.Fprintf(w, "%s by %s of org %s\n\n", call, who, e.Org); err != nil {
		return err
	}
	if e.Forbidden != "" {
		fmt.Fprintf(w, "refused: %s\n\n", e.Forbidden)
	}
	if len(e.Limits) == 0 {
		if _, err := fmt.Fprintln(w, "no limit counts this call"); err != nil {
			return err
		}
	} else if err := countingTable(w, e.Limits); err != nil {
		return err
	}
	if len(e.Others) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nnot counting this call:")
	g := grid{
		head:    []string{"limit", "from", "amount", "set in", "because"},
		numbers: []bool{false, false, true, false, false},
	}
	for i := range e.Others {
		l := &e.Others[i]
		g.add(l.Name, fromText(l), quantityText(w, l.Unit, l.Amount), strings.Join(l.Places, ", "), l.Why)
	}
	return g.write(w)
}

func countingTable(w io.Writer, list []admin.ExplainedLimit) error {
	g := grid{
		head: []string{"limit", "from", "subject", "mode", "shape", "amount", "used", "remaining", "resets in", "set in", ""},
		numbers: []bool{
			false, false, false, false, false, true, true, true, true, false, false,
		},
	}
	for i := range list {
		l := &list[i]
		reset, first := "", ""
		switch {
		case l.Reset != nil:
			reset = figures.Lasting(budget.Lasting(*l.Reset))
		case l.Used != nil:
			reset = figures.Lasting(budget.Endless)
		}
		if l.First {
			first = "binds first"
		}
		g.add(l.Name, fromText(l), whose(l.Subject, l.Only), l.Mode, l.Shape, quantityText(w, l.Unit, l.Amount),
			quantityOr(w, l.Unit, l.Used), quantityOr(w, l.Unit, l.Remaining), reset, strings.Join(l.Places, ", "), first)
	}
	return g.write(w)
}

// fromText names the place that a limit is from, such as plan pro.
func fromText(l *admin.ExplainedLimit) string {
	if l.Layer == "org" || l.Layer == "defaults" {
		return l.Layer
	}
	return l.Layer + " " + l.Of
}
