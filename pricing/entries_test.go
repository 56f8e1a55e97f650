package pricing

import (
	"errors"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestEntriesInAConfiguration(t *testing.T) {
	var config struct {
		Prices []Entry `yaml:"prices"`
	}
	err := yaml.UnmarshalWithOptions([]byte("prices:\n  - model: m # mine\n    prices: [{input: 0.10, output: 2}]\n"), &config, yaml.Strict())
	if err != nil || len(config.Prices) != 1 || config.Prices[0].Prices[0].Rates.Input.Pico != 100_000 {
		t.Errorf("%+v, %v", config, err)
	}
	err = yaml.UnmarshalWithOptions([]byte("prices:\n  - model: m\n    pices: []\n"), &config, yaml.Strict())
	if err == nil || !strings.Contains(err.Error(), "pices") {
		t.Errorf("an unknown key inside an entry: %v", err)
	}
}

func FuzzParseEntries(f *testing.F) {
	f.Add([]byte("- {model: m, prices: [{input: 1, output: 1}]}"))
	f.Add([]byte("models:\n  - model: m\n    multipliers: [{utc_hours: [\"22:00-02:00\"], times: 2}]\n    prices: [{input: 1, output: 1}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := ParseEntries(text)
		if err != nil {
			return
		}
		c, err := New("", entries)
		if err != nil {
			return
		}
		for _, e := range c.Entries() {
			if p, err := e.Price(november); err == nil {
				if n, err := p.Charge(Usage{Input: 5, Output: 5}, Terms{}); n < 0 || err != nil && !errors.Is(err, ErrOverflow) {
					t.Fatalf("charge %v, %v", n, err)
				}
			}
		}
	})
}
