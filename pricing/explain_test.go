package pricing

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestExplainAddsUp compares every charge with the sum recomputed from the bill's own lines.
func TestExplainAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, terms, u := drawPrice(t), drawTerms(t), drawUsage(t, most)
		terms.At = p.at.Add(time.Duration(rapid.Int64Range(-int64(50*time.Hour), int64(50*time.Hour)).Draw(t, "at")))
		charge, errCharge := p.Charge(u, terms)
		b, err := p.Explain(u, terms)
		if (err == nil) != (errCharge == nil) || b.Charge != charge {
			t.Fatalf("%v, %v explained as %v, %v", charge, errCharge, b.Charge, err)
		}
		sum := new(big.Rat)
		for _, l := range b.Tokens {
			sum.Add(sum, rat(l.USD))
		}
		if sum.Cmp(rat(b.Subtotal)) != 0 {
			t.Errorf("lines %v, subtotal %s", b.Tokens, b.Subtotal)
		}
		for _, m := range b.Multipliers {
			sum.Mul(sum, rat(m.Times.String()))
		}
		if sum.Cmp(rat(b.Scaled)) != 0 {
			t.Errorf("%v times %v is not %s", b.Subtotal, b.Multipliers, b.Scaled)
		}
		for _, l := range b.Fees {
			sum.Add(sum, rat(l.USD))
		}
		if sum.Cmp(rat(b.Exact)) != 0 || ceilNano(sum) != charge {
			t.Errorf("%s and fees %v are not %s, %s", b.Scaled, b.Fees, b.Exact, charge)
		}
		var input int64
		for _, l := range b.Tokens {
			if l.Name == "input" || strings.HasSuffix(l.Name, "_in") || strings.HasPrefix(l.Name, "cache") {
				input += l.Count
			}
		}
		if input != u.Input {
			t.Errorf("lines %v do not cover %d input tokens", b.Tokens, u.Input)
		}
	})
}

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

func ceilNano(usd *big.Rat) Nano {
	n := new(big.Rat).Mul(usd, big.NewRat(int64(NanoPerUSD), 1))
	q, m := new(big.Int).DivMod(n.Num(), n.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return Nano(q.Int64())
}

func TestExplain(t *testing.T) {
	c := with(t, &Catalogue{}, `
- model: m
  multipliers: [{batch: true, times: 0.5}, {region: any, times: 1.1}]
  prices:
    - {input: 2, cached_input: 0.2, output: 10, per_tool_call: 0.01}
    - {context_over: 1000, input: 4, output: 20}
    - {effective_from: 2026-01-01, input: 1, cached_input: 0.1, output: 5, per_tool_call: 0.01}
    - {effective_from: 2026-01-01, context_over: 1000, input: 3, cached_input: 0.3, output: 7, per_tool_call: 0.02}
`)
	p, err := c.Lookup("", "m", november)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Explain(Usage{Input: 1001, CachedInput: 1, Output: 3, ToolCalls: 2}, Terms{Batch: true, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	if b.Row.ContextOver != 1000 || b.Row.EffectiveFrom.IsZero() || b.Tier != "" {
		t.Errorf("row %+v, tier %q", b.Row, b.Tier)
	}
	got := fmt.Sprintf("%v %s %v %s %v %s %s", b.Tokens, b.Subtotal, len(b.Multipliers), b.Scaled, b.Fees, b.Exact, b.Charge)
	want := "[{input 1000 3000000 0.003} {cached_input 1 300000 0.0000003} {output 3 7000000 0.000021}] 0.0030213 2 0.001661715 " +
		"[{per_tool_call 2 20000000000 0.04}] 0.041661715 $0.041661715"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b, err := p.Explain(Usage{Output: 1}, Terms{ServiceTier: "turbo"}); err != nil || b.Assumed {
		t.Errorf("one tier is no choice: %+v, %v", b, err)
	}
	sol := lookup(t, "openai", "gpt-6.1-sol", november)
	if b, err := sol.Explain(Usage{Output: 1}, Terms{ServiceTier: "turbo"}); err != nil || !b.Assumed || b.Tier != "priority" {
		t.Errorf("unknown tier: %+v, %v", b, err)
	}
	if rows := p.Entry().InForce(november); len(rows) != 2 || rows[0].EffectiveFrom.IsZero() {
		t.Errorf("in force: %v", rows)
	}
	if rows := p.Entry().InForce(date("2025-06-01T00:00:00Z")); len(rows) != 2 || !rows[0].EffectiveFrom.IsZero() {
		t.Errorf("in force before: %v", rows)
	}
	if got := fmt.Sprint(b.Row.Rates.Named()); got != "[{input 3 false} {cached_input 0.3 false} {output 7 false} {per_tool_call 0.02 true}]" {
		t.Error(got)
	}
}
