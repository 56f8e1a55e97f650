package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// getLimits shows one limit of the list, or all. Where none applies, it names users who have limits of their own.
func getLimits(c *cobra.Command, o *operated, a *adminClient) error {
	all, err := list[admin.Limit](c.Context(), a, o.path())
	if err != nil {
		return err
	}
	shown, name := all, o.values["limit"]
	if name != "" {
		shown = slices.DeleteFunc(slices.Clone(all), func(v admin.Limit) bool { return v.Name != name })
		if len(shown) == 0 {
			return noSuchLimit(o.values["org"], name, all, a.ownLimits(c.Context(), o, name))
		}
	}
	if len(shown) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), noLimits(o.values["org"], a.ownLimits(c.Context(), o, "")))
		if o.output == "table" {
			return nil
		}
	}
	return o.list(c, reflect.ValueOf(shown))
}

// setLimit names the flags in what is wrong.
func setLimit(c *cobra.Command, o *operated, a *adminClient) error {
	if err := emptied(c, "amount", "capacity", "refill"); err != nil {
		return err
	}
	return o.body.inFlags(c, o.submit(c, a))
}

// reopenLimits reopens the limits of an org, or with --all those of every org.
func reopenLimits(c *cobra.Command, o *operated, a *adminClient) error {
	path, what := o.path(), "org "+o.values["org"]
	if all, _ := c.Flags().GetBool("all"); all == c.Flags().Changed("org") {
		return errors.New("use either --org or --all")
	} else if all {
		path, what = pathOf("limits", "reopen"), "all orgs and the spend caps"
	}
	if err := a.ask(c.Context(), o.op.Method, path, o.sent, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "the limits of %s now count from zero\n", what)
	return err
}

// resetLimits resets the counter of one subject, or with --all several counters: it shows which, and asks.
func resetLimits(c *cobra.Command, o *operated, a *adminClient) error {
	all, _ := c.Flags().GetBool("all")
	yes, _ := c.Flags().GetBool("yes")
	limit := o.values["limit"]
	switch {
	case all && (o.sent["ip"] != nil || o.sent["group"] != nil || o.sent["labels"] != nil):
		return misused("--all does not accept --ip, --group and --label; name a LIMIT and leave out --all")
	case !all && limit == "":
		return misused("name a LIMIT, or use --all to reset all limits")
	case !all && yes:
		return misused("--yes confirms --all; a single counter is reset without confirmation")
	case !all:
		return o.submit(c, a)
	}
	if limit != "" {
		o.sent["limit"] = limit
	}
	o.sent["dry_run"] = !yes
	org := o.values["org"]
	var plan admin.ResetPlan
	reset := func() error { return a.askLong(c.Context(), pathOf("orgs", org, "limits", "reset"), o.sent, &plan) }
	show := func(w io.Writer) error { return resetTable(w, &plan) }
	if err := reset(); err != nil {
		return err
	}
	if !yes && plan.Counters > 0 {
		unconfirmed := errors.New("nothing was reset. Confirm with --yes")
		if !atTerminal(c) {
			return errors.Join(render(c.OutOrStdout(), o.output, plan, show), unconfirmed)
		}
		if err := show(c.ErrOrStderr()); err != nil {
			return err
		}
		if !confirmed(c, "", fmt.Sprintf("Reset %s of org %s?", plural(plan.Counters, "counter"), org)) {
			return unconfirmed
		}
		o.sent["dry_run"] = false
		if err := reset(); err != nil {
			return err
		}
	}
	return render(c.OutOrStdout(), o.output, plan, show)
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

// ownLimits returns the users of the org with limits of their own: all, or those of one name. They
// are part of a hint, so it returns none if a user was named already or they cannot be read.
func (a *adminClient) ownLimits(ctx context.Context, o *operated, name string) []admin.DeclaredUser {
	if strings.Contains(o.path(), "?") {
		return nil
	}
	d, err := get[admin.Declaration](ctx, a, pathOf("orgs", o.values["org"], "declaration"))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(d.Users, func(u admin.DeclaredUser) bool {
		return !slices.ContainsFunc(u.Limits, func(l admin.DeclaredLimit) bool { return name == "" || l.Name == name })
	})
}

const mostNamed = 5

// whoHas names users and shows the command for the first.
func whoHas(org, name string, users []admin.DeclaredUser) string {
	var ids []string
	for _, u := range users[:min(len(users), mostNamed)] {
		ids = append(ids, u.ID)
	}
	if more := len(users) - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("and %d more", more))
	}
	command := "llmguard limits get "
	if name != "" {
		command += name + " "
	}
	return fmt.Sprintf("%s. Show one with `%s--org %s --user %s`", strings.Join(ids, ", "), command, org, users[0].ID)
}

// noSuchLimit is the error for a limit that does not apply to the subject.
func noSuchLimit(org, name string, others []admin.Limit, users []admin.DeclaredUser) error {
	var names []string
	for _, l := range others {
		names = append(names, l.Name)
	}
	text := fmt.Sprintf("limit %s not found%s", name, settings.Hint(name, names))
	if len(names) == 0 {
		text = fmt.Sprintf("limit %s not found; no limit applies here", name)
	}
	if len(users) > 0 {
		text += fmt.Sprintf(". Users with their own limit %s: %s", name, whoHas(org, name, users))
	}
	return errors.New(text)
}

func noLimits(org string, users []admin.DeclaredUser) string {
	if len(users) > 0 {
		return fmt.Sprintf("org %s has no limits that apply to every call. Users with their own limits: %s", org,
			whoHas(org, "", users))
	}
	return "no limits; set one with `llmguard limits set`"
}

var (
	limitColumns = columnsOf(reflect.TypeFor[admin.Limit](), "limit", "subject", "mode", "shape", "amount", "used", "held",
		"remaining", "resets in", "runs out in", "source")
	countingColumns = columnsOf(reflect.TypeFor[admin.ExplainedLimit](), "limit", "from", "subject", "mode", "shape",
		"amount", "used", "remaining", "resets in", "set in", "")
	otherColumns = columnsOf(reflect.TypeFor[admin.ExplainedLimit](), "limit", "from", "amount", "set in", "because")
)

func limitTable(w io.Writer, list []admin.Limit) error {
	err := tableOf(w, list, limitColumns)
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.Closed != nil {
			fmt.Fprintf(w, "\n%s: closed until %s, because Redis lost its data; reopen it with: llmguard limits reopen\n",
				l.Name, figures.Minute(*l.Closed))
		}
		for _, o := range l.Overrides {
			fmt.Fprintf(w, "\n%s: %s until %s, by %s: %s (%s)\n", l.Name, overrideText(w, o),
				figures.Minute(o.Until), escape.Text(o.By), escape.Text(o.Reason), o.ID)
		}
	}
	return nil
}

func whose(subject, only string) string {
	if only == "" && subject == "org" {
		return "org"
	}
	if only == "" {
		return "each " + subject
	}
	return subject + " " + only
}

func overrideText(w io.Writer, o admin.Override) string {
	text := "amount " + quantityText(w, o.Unit, o.Amount)
	if o.Add > 0 {
		text = "+" + quantityText(w, o.Unit, o.Add)
	} else if o.Add < 0 {
		text = "-" + quantityText(w, o.Unit, -o.Add)
	}
	if o.Only != "" {
		text += " for " + o.Only
	}
	return text
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
	} else if err := tableOf(w, e.Limits, countingColumns); err != nil {
		return err
	}
	if len(e.Others) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nnot counting this call:")
	return tableOf(w, e.Others, otherColumns)
}

// fromText names the place that a limit is from, such as plan pro.
func fromText(_ io.Writer, l admin.ExplainedLimit) string {
	if l.Layer == "org" || l.Layer == "defaults" {
		return l.Layer
	}
	return l.Layer + " " + l.Of
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
	sums := gridOf(w, plan.Limits, nil)
	sums.head[2] = verb
	if err := sums.write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := tableOf(w, plan.Fullest, nil); err != nil {
		return err
	}
	if n := plan.Counters - len(plan.Fullest); n > 0 {
		fmt.Fprintf(w, "and %s more\n", plural(n, "counter"))
	}
	return nil
}
