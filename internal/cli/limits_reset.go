package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

// resetOne resets the counter of one subject.
func (a *adminClient) resetOne(c *cobra.Command, f *adminFlags, s subject, limit string) error {
	body := map[string]any{"reason": f.reason}
	if labels, err := s.labels.values(); err != nil {
		return err
	} else if len(labels) > 0 {
		body["labels"] = labels
	}
	for name, value := range map[string]string{"user": s.user, "key": s.key, "ip": s.ip, "group": s.group} {
		if value != "" {
			body[name] = value
		}
	}
	var l admin.Limit
	if err := a.ask(c.Context(), http.MethodPost, pathOf("orgs", s.org, "limits", limit, "reset"), body, &l); err != nil {
		return err
	}
	return render(c.OutOrStdout(), f.output, l, func(w io.Writer) error { return limitTable(w, []admin.Limit{l}) })
}

// resetAll shows which counters a reset concerns, asks, and resets them.
func (a *adminClient) resetAll(c *cobra.Command, f *adminFlags, s subject, limit []string, yes bool) error {
	body := map[string]any{"reason": f.reason, "dry_run": !yes}
	for name, value := range map[string]string{"user": s.user, "key": s.key} {
		if value != "" {
			body[name] = value
		}
	}
	if len(limit) > 0 {
		body["limit"] = limit[0]
	}
	path := pathOf("orgs", s.org, "limits", "reset")
	var plan admin.ResetPlan
	if err := a.askLong(c.Context(), path, body, &plan); err != nil {
		return err
	}
	show := func(w io.Writer) error { return resetTable(w, &plan) }
	if !yes && plan.Counters > 0 {
		unconfirmed := errors.New("nothing was reset. Confirm with --yes")
		if !atTerminal(c) {
			return errors.Join(render(c.OutOrStdout(), f.output, plan, show), unconfirmed)
		}
		if err := show(c.ErrOrStderr()); err != nil {
			return err
		}
		if !confirmed(c, "", fmt.Sprintf("Reset %s of org %s?", plural(plan.Counters, "counter"), s.org)) {
			return unconfirmed
		}
		body["dry_run"] = false
		if err := a.askLong(c.Context(), path, body, &plan); err != nil {
			return err
		}
	}
	return render(c.OutOrStdout(), f.output, plan, show)
}

// atTerminal reports whether somebody can answer a question.
func atTerminal(c *cobra.Command) bool {
	in, ok := c.InOrStdin().(*os.File)
	return ok && term.IsTerminal(in.Fd())
}

// askLong is ask for a request that reads all users of an org, without a time limit.
func (a *adminClient) askLong(ctx context.Context, path string, body, out any) error {
	resp, err := a.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decodeAnswer(resp.Body, out)
}

func resetTable(w io.Writer, plan *admin.ResetPlan) error {
	verb := "reset"
	if plan.DryRun {
		verb = "would reset"
	}
	if plan.Counters == 0 {
		_, err := fmt.Fprintln(w, "nothing to reset: no counter has usage that is not held by open calls")
		return err
	}
	sums := grid{
		head: []string{"limit", "per", verb, "used", "stays held"}, numbers: []bool{false, false, true, true, true},
	}
	for _, l := range plan.Limits {
		sums.add(l.Limit, l.Subject, plural(l.Counters, "counter"), quantityText(w, l.Unit, l.Used),
			quantityText(w, l.Unit, l.Held))
	}
	if err := sums.write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	each := grid{
		head: []string{"fullest", "of", "used", "stays held", "amount"}, numbers: []bool{false, false, true, true, true},
	}
	for _, one := range plan.Fullest {
		each.add(one.Limit, cmp.Or(one.ID, "org"), quantityText(w, one.Unit, one.Used), quantityText(w, one.Unit, one.Held),
			quantityText(w, one.Unit, one.Amount))
	}
	if err := each.write(w); err != nil {
		return err
	}
	if n := plan.Counters - len(plan.Fullest); n > 0 {
		fmt.Fprintf(w, "and %s more\n", plural(n, "counter"))
	}
	return nil
}
