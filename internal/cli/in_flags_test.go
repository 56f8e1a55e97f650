package cli_test

import (
	"strings"
	"testing"
)

// TestLimitsSetErrorsNameFlags: what is wrong with a limit is said in the flags of the command,
// not by places in a configuration file.
func TestLimitsSetErrorsNameFlags(t *testing.T) {
	s := newSite(t, orgs)
	for args, want := range map[string]string{
		"rpm --metric requests --amount $5 --window 1m":           "--amount: metric requests is limited by a count, not by money; leave out the $ or set --metric cost",
		"cash --amount 5 --window 1h":                             `--amount: metric cost is limited in money; did you mean '$5'?`,
		"cash --amount $5":                                        "limit cash: amount of what time? add --window 1h (sliding), --calendar month (fixed), or use --capacity",
		"cash --amount $5 --window soon":                          `--window: expected a duration such as 30s, 5m, 1h or 1d, got "soon"`,
		"cash --refill $5/1h":                                     "limit cash: has no shape; add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
		"cash --metric tokens --capacity $5":                      "--capacity: metric tokens is limited by a count, not by money; leave out the $ or set --metric cost",
		"cash --endpoints chat --amount $5 --window 1h":           `--endpoints: no endpoint is called "chat"; did you mean "chat.completions"?`,
		"cash --user alice --subject org --amount $5 --window 1h": "--subject: a limit under a user has subject user",
	} {
		s.refuses(want, append([]string{"limits", "set", "--org", "acme"}, strings.Fields(args)...)...)
	}
}
