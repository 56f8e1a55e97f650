package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// spent makes a few calls of two users today, and copies their sums to yesterday.
func (d *deployment) spent() (today, yesterday string) {
	d.t.Helper()
	sameDay(d.t)
	for _, one := range []struct {
		user, key, model, provider, endpoint string
		cost                                 pricing.Nano
		estimated                            bool
	}{
		{"alice", "k1", "gpt-4o", "openai", "chat.completions", 5 * dollar, false},
		{"alice", "k1", "gpt-4o", "openai", "responses", dollar, true},
		{"alice", "k2", "gpt-5", "spare", "chat.completions", 1, false},
		{"bob", "b1", "gpt-4o", "openai", "chat.completions", 2 * dollar, false},
	} {
		call := ledger.Call{
			Org: "acme", User: one.user, Key: one.key, Model: one.model, Provider: one.provider,
			Endpoint: one.endpoint,
		}
		st := budget.Settlement{
			Actual: budget.Amounts{Cost: one.cost},
			Usage:  pricing.Usage{Input: 100, CachedInput: 40, Output: 7}, Estimated: one.estimated,
		}
		d.spend(call, st)
	}
	now := time.Now().UTC()
	sums, err := d.rdb.Keys(d.t.Context(), "lg:{acme}:sums:*").Result()
	if err != nil || len(sums) == 0 {
		d.t.Fatalf("got the daily sums %v, %v", sums, err)
	}
	for _, key := range sums {
		then := strings.Replace(key, now.Format("20060102"), now.AddDate(0, 0, -1).Format("20060102"), 1)
		err := d.rdb.Copy(d.t.Context(), key, then, 0, true).Err()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly)
}

// sameDay waits if midnight (UTC) is near, so that a test runs within one day.
func sameDay(t *testing.T) {
	t.Helper()
	now := time.Now().UTC()
	left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
	if left < 5*time.Second {
		time.Sleep(left)
	}
}

// lines returns the lines of a report: dimensions, calls and cost.
func lines(o object) string {
	var out []string
	all, _ := o["lines"].([]any)
	for _, one := range all {
		l, _ := one.(map[string]any)
		var names []string
		for _, by := range []string{"day", "user", "key", "model", "provider", "endpoint"} {
			if name := text(l[by]); name != "" {
				names = append(names, name)
			}
		}
		out = append(out, fmt.Sprintf("%s %v %.0f", strings.Join(names, "/"), l["calls"], l["cost_nano_usd"]))
	}
	return strings.Join(out, ", ")
}

func TestUsageIsGrouped(t *testing.T) {
	d := deploy(t)
	today, _ := d.spent()
	for by, want := range map[string]string{
		"":              "alice/gpt-4o 2 6000000000, bob/gpt-4o 1 2000000000, alice/gpt-5 1 1",
		"?by=user":      "alice 3 6000000001, bob 1 2000000000",
		"?by=key":       "k1 2 6000000000, b1 1 2000000000, k2 1 1",
		"?by=model":     "gpt-4o 3 8000000000, gpt-5 1 1",
		"?by=provider":  "openai 3 8000000000, spare 1 1",
		"?by=endpoint":  "chat.completions 3 7000000001, responses 1 1000000000",
		"?by=day":       today + " 4 8000000001",
		"?by=user,key":  "alice/k1 2 6000000000, bob/b1 1 2000000000, alice/k2 1 1",
		"?by=user,user": "alice 3 6000000001, bob 1 2000000000",
	} {
		got := d.expect(200, "GET", "/orgs/acme/usage"+by, "", `{"from":"`+today+`","to":"`+today+`"}`)
		if lines(got) != want {
			t.Errorf("%q: got %s, want %s", by, lines(got), want)
		}
		total, _ := got["total"].(map[string]any)
		d.has("the total of "+by, total,
			`{"calls":4,"cost_nano_usd":8000000001,"estimated_nano_usd":1e9,"input_tokens":400,"cached_input_tokens":160,
			"output_tokens":28}`)
	}
}

// From and to are UTC days, both inclusive; days are in order.
func TestUsageOfPeriods(t *testing.T) {
	d := deploy(t)
	today, yesterday := d.spent()
	for query, want := range map[string]string{
		"?by=day":                   today + " 4 8000000001",
		"?by=day&from=" + yesterday: yesterday + " 4 8000000001, " + today + " 4 8000000001",
		"?by=day&from=" + yesterday + "&to=" + yesterday: yesterday + " 4 8000000001",
		"?by=user,day&from=" + yesterday + "&to=" +
			today: fmt.Sprintf("%[1]s/alice 3 6000000001, %[1]s/bob 1 2000000000, "+
			"%[2]s/alice 3 6000000001, %[2]s/bob 1 2000000000", yesterday, today),
		"?by=day&from=2001-01-01&to=2001-01-31": "",
	} {
		if got := lines(d.expect(200, "GET", "/orgs/acme/usage"+query, "", "")); got != want {
			t.Errorf("%q: got %s, want %s", query, got, want)
		}
	}
}

// Manual corrections are in the sums, and also shown separately.
func TestUsageHasCorrections(t *testing.T) {
	d := deploy(t)
	d.spent()
	_, err := d.books.Adjust(t.Context(), ledger.Adjustment{
		ID: "refund-1", Call: ledger.Call{Org: "acme", User: "bob"}, Amount: -dollar, By: "ops", Reason: "refund",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	total, _ := d.expect(200, "GET", "/orgs/acme/usage", "", "")["total"].(map[string]any)
	d.has("the total", total, `{"calls":4,"cost_nano_usd":7000000001,"adjusted_nano_usd":-1e9}`)
}
