package admin_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
)

// booked are the changes that the ledger records, with their administrator and reason.
var booked = []string{"createCorrection", "resolve"}

// Every operation can be reached from the command line, and every change from the console, or its row says why not. A reason
// beside a command or a page would be wrong.
func TestOperationsAreEverywhere(t *testing.T) {
	names := map[string]bool{}
	for _, o := range admin.Operations() {
		if names[o.Name] {
			t.Errorf("%s: two operations", o.Name)
		}
		names[o.Name] = true
		if (len(o.Commands) > 0) == (o.Without != "") {
			t.Errorf("%s: got %d commands and the reason %q for none", o.Name, len(o.Commands), o.Without)
		}
		if o.Writes && o.Audit == "" && !slices.Contains(booked, o.Name) {
			t.Errorf("%s: a change without a name in the audit", o.Name)
		}
		if changes := o.Writes && o.Method != http.MethodGet; changes && (len(o.Pages) > 0) == (o.NoPage != "") || !changes && len(o.Pages) > 0 {
			t.Errorf("%s: got %d pages and the reason %q for none", o.Name, len(o.Pages), o.NoPage)
		}
	}
}

// What a command or a page says of inputs names inputs that the operation has, and its examples call the command.
func TestOperationsNameTheirInputs(t *testing.T) {
	for _, o := range admin.Operations() {
		has := map[string]bool{"reason": o.Reasoned()}
		flags := map[string]string{}
		for _, in := range o.Inputs() {
			has[in.Name] = true
			if other := flags[in.Flag]; other != "" {
				t.Errorf("%s: the inputs %s and %s have the flag --%s", o.Name, other, in.Name, in.Flag)
			}
			flags[in.Flag] = in.Name
			if in.Help == "" {
				t.Errorf("%s: the input %s has no help", o.Name, in.Name)
			}
		}
		for _, c := range o.Commands {
			if c.Own {
				continue
			}
			for _, list := range [][]string{c.Hide, c.Only, c.Must, c.OneOf} {
				for _, name := range list {
					if !has[name] {
						t.Errorf("%s: the command %s names %s, which is no input", o.Name, c.Use, name)
					}
				}
			}
			for name := range c.Help {
				if !has[name] {
					t.Errorf("%s: the command %s has help for %s, which is no input", o.Name, c.Use, name)
				}
			}
			words := strings.FieldsFunc(c.Use, func(r rune) bool { return r >= 'A' && r <= 'Z' || r == '[' || r == '=' || r == '.' })
			if use := strings.TrimSpace(words[0]); !strings.Contains(c.Example, use) {
				t.Errorf("%s: the example of %s does not call it: %s", o.Name, use, c.Example)
			}
		}
		for _, p := range o.Pages {
			for _, q := range p.Ask {
				if !has[q.Input] {
					t.Errorf("%s: the page %s asks for %s, which is no input", o.Name, p.Path(&o), q.Input)
				}
			}
		}
	}
}
