package pricing

import (
	"testing"
	"time"
)

func BenchmarkParse(b *testing.B) {
	text := pricesYAML(b)
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func benchPrice(b *testing.B, provider, model string) *Price {
	c, err := Embedded()
	if err != nil {
		b.Fatal(err)
	}
	p, err := c.Lookup(provider, model, time.Date(2026, 11, 1, 0, 30, 0, 0, time.UTC))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func BenchmarkLookup(b *testing.B) {
	c, err := Embedded()
	if err != nil {
		b.Fatal(err)
	}
	at := time.Date(2026, 11, 1, 0, 30, 0, 0, time.UTC)
	for name, model := range map[string]string{"exact": "gpt-6.1-sol", "prefix": "o1-2024-12-17"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Lookup("openai", model, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCharge(b *testing.B) {
	p := benchPrice(b, "openai", "gpt-6.1-sol")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Charge(Usage{Input: 300_000, CachedInput: 200_000, Output: 1000}, Terms{ServiceTier: "default"})
	}
}

func BenchmarkCeiling(b *testing.B) {
	for _, model := range []string{"gpt-6.1-sol", "deepseek-v4-pro"} {
		provider := map[bool]string{true: "openai", false: "deepseek"}[model == "gpt-6.1-sol"]
		p := benchPrice(b, provider, model)
		b.Run(model, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = p.Ceiling(Usage{Input: 300_000, Output: 1000}, Terms{})
			}
		})
	}
}
