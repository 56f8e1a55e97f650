package config

import "testing"

func TestUnknownModelPrice(t *testing.T) {
	if e, err := mustParse(t, minimal).UnknownModelEntry(); e != nil || err != nil {
		t.Errorf("left out: %v, %v", e, err)
	}
	if e, err := mustParse(t, "unknown_model_price:\n"+minimal).UnknownModelEntry(); e != nil || err != nil {
		t.Errorf("empty: %v, %v", e, err)
	}
	for form, text := range map[string]string{
		"block":   "unknown_model_price:\n  max_output: 4096\n  prices:\n    - {input: 15, output: 75}\n",
		"flow":    "unknown_model_price: {max_output: 4096, prices: [{input: 15, output: 75}]}\n",
		"alias":   "x-dear: &dear {max_output: 4096, prices: [{input: 15, output: 75}]}\nunknown_model_price: *dear\n",
		"comment": "unknown_model_price: # dear\n  # dearer\n  prices:\n    - input: 15 # in\n      output: 75\n  max_output: 4096\n",
	} {
		e, err := mustParse(t, text+minimal).UnknownModelEntry()
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		if e.Model != UnknownModel || e.MaxOutput != 4096 || len(e.Prices) != 1 || e.Prices[0].Rates.Output.Pico != 75_000_000 {
			t.Errorf("%s: %+v", form, e)
		}
	}
}
