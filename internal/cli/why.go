package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// explainWhy shows the commands that let a call through as they are run here.
func explainWhy(c *cobra.Command, o *operated, a *adminClient) error {
	answer, err := o.ask(c, a)
	var r *refusal
	if errors.As(err, &r) && r.param == "org" {
		return &refusal{o.runHere(r.message), r.param, r.code, r.answer}
	}
	if err != nil {
		return err
	}
	w := answer.(*admin.Why)
	w.More = o.runHere(w.More)
	for i := range w.Commands {
		w.Commands[i] = o.runHere(w.Commands[i])
	}
	for i := range w.Ahead {
		w.Ahead[i].Command = o.runHere(w.Ahead[i].Command)
	}
	return o.show(c, answer)
}

// commandLine matches a command of llmguard at the end of a line.
var commandLine = regexp.MustCompile(`(?m)(^ *)llmguard( .*)$`)

// runHere rewrites the commands in a text as they are run here.
func (o *operated) runHere(text string) string {
	return commandLine.ReplaceAllString(text, "${1}"+strings.ReplaceAll(called(), "$", "$$$$")+"${2}"+
		strings.ReplaceAll(o.where(), "$", "$$$$"))
}

// where returns the flags with which another command reaches the same llmguard.
func (f *adminFlags) where() string {
	out := ""
	for _, name := range []string{"config", "context", "admin-url", "ca-file"} {
		if flag := f.command.Flag(name); flag != nil && flag.Changed {
			out += " --" + name + " " + admin.ShellWord(flag.Value.String())
		}
	}
	return out
}

var whyColumns = columnsOf(reflect.TypeFor[admin.WhyLimit](), "limit", "subject", "mode", "used", "held", "amount",
	"needed", "available", "resets in")

func whyText(out io.Writer, w *admin.Why) error {
	fmt.Fprintf(out, "%s\n%s\n", escape.Text(w.Reason), whyTitle(w))
	for i := range w.Entries {
		e := &w.Entries[i]
		fmt.Fprintf(out, "%s  %s  %s  %s  cost %s, held %s, waited %s, took %s\n",
			figures.Second(e.At), e.Kind, escape.Text(e.Model), escape.Text(e.Outcome),
			usd(out, e.Cost), usd(out, pricing.Nano(e.HeldNano)), milliseconds(e.WaitedMS), milliseconds(e.TookMS))
		for _, s := range e.Shadow {
			fmt.Fprintf(out, "  over the limit %s (shadow mode, not enforced)\n", s.Limit)
		}
	}
	if len(w.Limits) > 0 {
		fmt.Fprintln(out)
		if err := tableOf(out, w.Limits, whyColumns); err != nil {
			return err
		}
	}
	for i := range w.Limits {
		whyMore(out, &w.Limits[i])
	}
	if len(w.Refusals) > 0 {
		fmt.Fprintln(out, "\nRefused or delayed in the last 24 hours:")
		if err := tableOf(out, w.Refusals, nil); err != nil {
			return err
		}
	}
	return whyCommands(out, w)
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

func whyTitle(w *admin.Why) string {
	text := w.Kind + " " + escape.Text(w.ID)
	if w.Job != nil {
		if w.Job.ID != w.ID {
			text += ", job " + w.Job.ID
		}
		text += " (" + string(w.Job.State) + ")"
	}
	if w.Org != "" && w.Org != w.ID {
		text += " of org " + w.Org
	}
	if w.User != "" && w.Kind != "user" {
		text += ", user " + w.User
	}
	return text
}

// roomText says when a limit has room.
func roomText(_ io.Writer, l admin.WhyLimit) string {
	switch {
	case l.Closed != nil:
		return "closed until " + figures.Minute(*l.Closed)
	case l.Wait != nil:
		return "in " + lasting(l.Wait)
	case l.Refuses:
		return "no"
	}
	return "yes"
}

// lasting formats seconds; nil means never.
func lasting(seconds *float64) string {
	if seconds == nil {
		return "never"
	}
	return figures.Lasting(budget.Lasting(*seconds))
}

// whyMore prints when a limit in use frees capacity, and which users hold the most.
func whyMore(out io.Writer, l *admin.WhyLimit) {
	if len(l.Frees) == 0 && len(l.Neighbors) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s (%s)\n", l.Name, l.Shape)
	for _, f := range l.Frees {
		when := "only when open calls complete or the limit changes"
		if f.Seconds != nil {
			when = "in " + lasting(f.Seconds)
		}
		fmt.Fprintf(out, "  %s free %s\n", quantityText(out, l.Unit, f.Amount), when)
	}
	for _, n := range l.Neighbors {
		who := "org " + n.Org
		switch {
		case n.User != "":
			who = "user " + n.User
		case n.Key != "":
			who = "key " + n.Key
		}
		held, self := "", ""
		if n.Held > 0 {
			held = ", reserved " + quantityText(out, l.Unit, n.Held)
		}
		if n.Self {
			self = " (this one)"
		}
		fmt.Fprintf(out, "  %s used %s%s%s\n", escape.Text(who), quantityText(out, l.Unit, n.Used), held, self)
	}
}

func whyCommands(out io.Writer, w *admin.Why) error {
	for i := range w.Limits {
		if l := &w.Limits[i]; l.Cap != "" && l.Refuses && l.Command == "" {
			const text = "\nThe spend cap %s of %s is in the configuration: raise it there, then run `llmguard config reload`.\n"
			fmt.Fprintf(out, text, l.Name, l.Cap)
		}
	}
	for _, a := range w.Ahead {
		who := "user " + a.User
		if a.Batch != "" {
			who = a.Batch + " of " + who
		}
		fmt.Fprintf(out, "\nAhead of it in %s: %s of %s, which need %s of it. To cancel them instead:\n  %s\n", a.Limit,
			plural(int(a.Jobs), "job"), escape.Text(who), quantityText(out, a.Unit, a.Amount), a.Command)
	}
	if w.More != "" {
		fmt.Fprintf(out, "\nTo see more:\n  %s\n", w.More)
	}
	if len(w.Commands) > 0 {
		fmt.Fprintln(out, "\nWhat to do:")
	}
	for _, command := range w.Commands {
		fmt.Fprintln(out, "  "+command)
	}
	return nil
}
