package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

func limitTable(w io.Writer, list []admin.Limit) error {
	g := grid{
		head: []string{
			"limit", "subject", "mode", "shape", "amount", "used", "held", "remaining", "resets in", "used up in", "source",
		},
		numbers: []bool{false, false, false, false, true, true, true, true, true, true, false},
	}
	for _, l := range list {
		reset := ""
		switch {
		case l.Reset != nil:
			reset = figures.Lasting(budget.Lasting(*l.Reset))
		case l.Used != nil:
			reset = figures.Lasting(budget.Endless)
		}
		ends := ""
		if l.UsedUp != nil {
			ends = figures.About(budget.Lasting(*l.UsedUp))
		}
		g.add(l.Name, whose(l.Subject, l.Only), l.Mode, l.Shape, quantityText(w, l.Unit, l.Amount),
			quantityOr(w, l.Unit, l.Used),
			quantityOr(w, l.Unit, l.Held),
			quantityOr(w, l.Unit, l.Remaining), reset, ends, strings.Join(l.Sources, "+"))
	}
	if err := g.write(w); err != nil {
		return err
	}
	for _, l := range list {
		if l.Closed != nil {
			fmt.Fprintf(w, "\n%s: closed until %s, because Redis lost its data; reopen it with: llmguard limits reopen\n",
				l.Name, l.Closed.Local().Format("2006-01-02 15:04 MST"))
		}
		for _, o := range l.Overrides {
			fmt.Fprintf(w, "\n%s: %s until %s, by %s: %s (%s)\n", l.Name, overrideText(w, o),
				o.Until.Local().Format("2006-01-02 15:04 MST"), escape.Text(o.By), escape.Text(o.Reason), o.ID)
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
