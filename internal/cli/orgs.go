package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

func onOff(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}

// facts is a table of names and values.
func facts(w io.Writer, pairs ...string) error {
	return indentedFacts(w, "", pairs...)
}

func indentedFacts(w io.Writer, indent string, pairs ...string) error {
	g := grid{indent: indent, numbers: make([]bool, 2)}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			g.add(pair...)
		}
	}
	return g.write(w)
}

// boundOf returns the spending bound in a response.
func boundOf(o *admin.Org) guard.Bound {
	b := guard.Bound{Hour: guard.Unlimited, None: o.Unbounded, Users: o.UnboundedUsers}
	if o.WorstHour != nil {
		b.Hour = pricing.Nano(*o.WorstHour)
	}
	return b
}

func all(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return escape.Text(strings.Join(list, ", "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// createOrg warns about an org whose calls no limit bounds.
func createOrg(c *cobra.Command, o *operated, a *adminClient) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	if made := answer.(*admin.Org); made.Unbounded {
		fmt.Fprintf(c.ErrOrStderr(), "warning: %s.\n%s\n", boundOf(made).Warning(made.ID), guard.BoundFix(made.ID))
	}
	return o.show(c, answer)
}
