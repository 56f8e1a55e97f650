package cli

import (
	"fmt"
	"io"
	"reflect"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

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
