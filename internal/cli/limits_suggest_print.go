package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/pricing"
)

// quantity formats an amount in the metric's unit, as configurations take it, without trailing
// zeros.
func quantity(m budget.Metric, n int64) string {
	if m != budget.Cost {
		return whole(n)
	}
	text := strings.TrimRight(pricing.Nano(n).String(), "0")
	dollars, cents, _ := strings.Cut(text, ".")
	switch len(cents) {
	case 0:
		return dollars
	case 1:
		return text + "0"
	}
	return text
}

// about is quantity rounded to three significant digits, for figures that are only informative.
func about(m budget.Metric, n int64) string {
	unit := int64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return quantity(m, (n+unit/2)/unit*unit)
}

func suggestTable(w io.Writer, org simulate.OrgSuggestions, o simulate.SuggestOptions) error {
	fmt.Fprintf(w, "%s: %s of %s for %s, %s\n", org.Org, plural(org.Calls, "call"),
		plural(org.Users, "user"), about(budget.Cost, int64(org.Spend)), figures.Between(org.From, org.To))
	fmt.Fprintf(w, "amounts are %g times what %d %% of the history stays within; each row replays the same calls under "+
		"that limit alone\n\n", o.Headroom, o.Percentile)
	g := grid{
		head: []string{
			"limit", "for", "amount", fmt.Sprintf("%d %%", o.Percentile), "most", "sample", "held back", "waited",
			"p95", "gave up", "refused", "not spent", "users held back",
		},
		numbers: []bool{false, false, false, true, true, true, true, true, true, true, true, true, false},
	}
	add := func(e simulate.Line, users string, limit ...string) {
		g.add(append(limit, whole(int64(e.HeldBackCalls())), whole(int64(e.Waited)), e.WaitP95.String(),
			whole(int64(e.GaveUp)), whole(int64(e.Refused)), about(budget.Cost, int64(e.Unspent)), users)...)
	}
	for _, s := range org.Suggestions {
		add(s.Effect, most(s.HeldBack), s.Name, forWhom(s), limitText(s), about(s.Metric, s.Basis.Reached),
			about(s.Metric, s.Basis.Most), basisOf(s))
	}
	if len(org.Suggestions) > 1 {
		add(org.Together, "", "all combined", "", "", "", "", "")
	}
	if err := g.write(w); err != nil {
		return err
	}
	for _, note := range org.Notes {
		fmt.Fprintf(w, "%s\n", note)
	}
	return nil
}

func forWhom(s simulate.Suggestion) string {
	switch {
	case s.User != "":
		return s.User
	case s.Subject == budget.User:
		return "each user"
	default:
		return "the org"
	}
}

// basisOf names the sample of the percentile: "37 users", "412 x 1h".
func basisOf(s simulate.Suggestion) string {
	if s.Subject == budget.User && s.User == "" {
		return plural(s.Basis.Of, "user")
	}
	return fmt.Sprintf("%d x %s", s.Basis.Of, seconds(stretchOf(s)))
}

func stretchOf(s simulate.Suggestion) int64 {
	if s.PerS > 0 {
		return s.PerS
	}
	return s.WindowS
}

// most names the users whose calls are delayed most often.
func most(lines []simulate.Line) string {
	const named = 3
	var out []string
	for _, l := range lines[:min(len(lines), named)] {
		out = append(out, fmt.Sprintf("%s %d", escape.Text(l.User), l.HeldBackCalls()))
	}
	if more := len(lines) - named; more > 0 {
		out = append(out, fmt.Sprintf("and %s more", plural(more, "user")))
	}
	return strings.Join(out, ", ")
}

// suggestYAML writes the suggestions as a configuration snippet.
func suggestYAML(w io.Writer, list []simulate.OrgSuggestions, o simulate.SuggestOptions) error {
	var b strings.Builder
	const head = "# Amounts are %g times what %d %% of the history stays within. In shadow mode they refuse no calls; see\n" +
		"# `llmguard limits shadow`, and remove mode: shadow to enforce one.\norgs:\n"
	fmt.Fprintf(&b, head, o.Headroom, o.Percentile)
	for _, org := range list {
		fmt.Fprintf(&b, "  - id: %s # %s of %s for %s, %s\n", org.Org, plural(org.Calls, "call"),
			plural(org.Users, "user"), about(budget.Cost, int64(org.Spend)), figures.Between(org.From, org.To))
		for _, note := range org.Notes {
			fmt.Fprintf(&b, "    # %s\n", note)
		}
		suggestOrgYAML(&b, org.Suggestions, o.Percentile)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func suggestOrgYAML(b *strings.Builder, list []simulate.Suggestion, percentile int) {
	if len(list) == 0 {
		return
	}
	b.WriteString("    limits:\n")
	var users []string
	own := map[string][]simulate.Suggestion{}
	for _, s := range list {
		if s.User == "" {
			suggestLine(b, "      ", s, percentile)
			continue
		}
		if own[s.User] == nil {
			users = append(users, s.User)
		}
		own[s.User] = append(own[s.User], s)
	}
	if len(users) == 0 {
		return
	}
	b.WriteString("    users: # these limits replace the org's limits of the same name\n")
	for _, user := range users {
		fmt.Fprintf(b, "      - id: %s\n        limits:\n", user)
		for _, s := range own[user] {
			suggestLine(b, "          ", s, percentile)
		}
	}
}

// suggestLine writes one limit, with its reason.
func suggestLine(b *strings.Builder, indent string, s simulate.Suggestion, percentile int) {
	of := plural(s.Basis.Of, "user")
	if s.Subject != budget.User || s.User != "" {
		of = fmt.Sprintf("%s of %s with calls", plural(s.Basis.Of, "span"), seconds(stretchOf(s)))
	}
	effect := "holds back none of these calls"
	if e := s.Effect; e.HeldBackCalls() > 0 {
		effect = fmt.Sprintf("holds back %s (%s): %d waited, %d gave up, %d refused", plural(e.HeldBackCalls(), "call"),
			most(s.HeldBack), e.Waited, e.GaveUp, e.Refused)
	}
	fmt.Fprintf(b, "%s# %d %% of %s within %s, the most %s; %s\n%s- %s\n", indent, percentile, of,
		about(s.Metric, s.Basis.Reached),
		about(s.Metric, s.Basis.Most), effect, indent, limitConfig(s))
}
