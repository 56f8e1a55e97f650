package finance_test

import (
	"bytes"
	"encoding/csv"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/finance"
	"github.com/llmguard/llmguard/pricing"
)

func (w *world) statement(org string, now time.Time) *finance.Statement {
	w.t.Helper()
	st, err := finance.ReadStatement(w.t.Context(), w.books.Ledger, finance.StatementOptions{
		Org: org, OrgName: "The <" + org + ">", Month: w.month, Labels: []string{"project", "team"}, Now: now,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// TestStatementAddsUp: every section adds up to the ledger, and the corrections are listed.
func TestStatementAddsUp(t *testing.T) {
	w := newWorld(t)
	for org := range sizes {
		want, st := w.ledger(org), w.statement(org, w.after)
		var text bytes.Buffer
		if err := st.WriteCSV(&text); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(&text).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]pricing.Nano{}
		for _, line := range lines[1:] {
			sums[line[3]] += nano(t, line[10])
			if line[0] != org || line[2] != "final" {
				t.Errorf("got the line %q, want one of %s that is final", line, org)
			}
		}
		for _, section := range []string{"total", "model", "user", "key", "label:project", "label:team", "day"} {
			if sums[section] != want {
				t.Errorf("%s: section %s adds up to %s, want %s", org, section, sums[section], want)
			}
		}
		if got, want := sums["correction"], pricing.Nano(-1_200_000_007+3+5); got != want {
			t.Errorf("%s: got corrections of %s, want %s", org, got, want)
		}
		if got, want := st.Earlier.Cost, pricing.Nano(-1_200_000_007); got != want {
			t.Errorf("%s: got corrections of earlier months of %s, want %s", org, got, want)
		}
		if len(lines)-1 != st.Lines() {
			t.Errorf("%s: got %d lines, want %d", org, len(lines)-1, st.Lines())
		}
	}
}

// loads are what a page could load or run.
var loads = regexp.MustCompile(`(?i)<script|<link|src=|url\(|@import|https?://`)

// TestStatementPage: the page has the exact total, escapes what callers chose, loads nothing, and
// says when it is provisional.
func TestStatementPage(t *testing.T) {
	w := newWorld(t)
	for _, now := range []time.Time{w.after, time.Now()} {
		var text strings.Builder
		if err := w.statement("acme", now).WriteHTML(&text); err != nil {
			t.Fatal(err)
		}
		page := text.String()
		for _, want := range []string{
			w.ledger("acme").String(), "The &lt;acme&gt;", "refund &lt;b&gt;", "odd &#34;model&#34;, really", "By Label project",
			"By User", "acme-ann",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q", want)
			}
		}
		if found := loads.FindString(page); found != "" {
			t.Errorf("the page has %q", found)
		}
		if got, want := strings.Contains(page, "Provisional"), now.Before(w.month.End()); got != want {
			t.Errorf("provisional at %s: got %t, want %t", now, got, want)
		}
		if to := os.Getenv("LLMGUARD_STATEMENT"); to != "" {
			if err := os.WriteFile(to, []byte(page), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
