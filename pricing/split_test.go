package pricing

import (
	"errors"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestSplitAddsUp: the parts of any charge add up to it exactly, and each is within a nano-USD of
// the exact lines of Explain.
func TestSplitAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, terms := drawPrice(t), drawTerms(t)
		u := drawUsage(t, most)
		cost, err := p.Charge(u, terms)
		split, splitErr := p.Split(u, terms)
		if err != nil || splitErr != nil {
			if !errors.Is(splitErr, ErrOverflow) || !errors.Is(err, ErrOverflow) {
				t.Fatalf("charge %v, split %v", err, splitErr)
			}
			return
		}
		if split.Total() != cost {
			t.Fatalf("%+v adds up to %d, charged are %d", split, split.Total(), cost)
		}
		b, err := p.Explain(u, terms)
		if err != nil {
			t.Fatal(err)
		}
		exact := exactParts(b)
		for i, part := range []Nano{split.Input, split.CachedInput, split.CacheWrite, split.Output, split.Fees} {
			off := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(part)), exact[i])
			if part < 0 || off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("part %d of %+v is %s away from its exact value", i, split, off.FloatString(6))
			}
			if exact[i].Sign() == 0 && part != 0 {
				t.Fatalf("part %d of %+v consumed nothing", i, split)
			}
		}
	})
}

// exactParts sums a bill's lines by the classes of a Split, in nano-USD.
func exactParts(b Bill) [5]*big.Rat {
	var out [5]*big.Rat
	for i := range out {
		out[i] = new(big.Rat)
	}
	class := map[string]int{
		"input": 0, "audio_in": 0, "image_in": 0, "cached_input": 1, "cached_audio_in": 1, "cache_write": 2, "cache_write_1h": 2,
		"output": 3, "audio_out": 3, "image_out": 3,
	}
	scale := big.NewRat(1, 1)
	for _, m := range b.Multipliers {
		scale.Mul(scale, big.NewRat(int64(m.Times), factorUnit))
	}
	nano := func(l Line) *big.Rat { return new(big.Rat).SetFrac(product(l), big.NewInt(picoPerNano)) }
	for _, l := range b.Tokens {
		out[class[l.Name]].Add(out[class[l.Name]], nano(l).Mul(nano(l), scale))
	}
	for _, l := range b.Fees {
		usd, _ := new(big.Rat).SetString(l.USD)
		out[4].Add(out[4], usd.Mul(usd, big.NewRat(1_000_000_000, 1)))
	}
	return out
}

// TestSplitRounding shows which part gets the odd nano-USD.
func TestSplitRounding(t *testing.T) {
	c, err := ParseEntries([]byte("[{model: m, provider: p, prices: [{input: 0.0004, cached_input: 0.0001, output: 0.0004, per_request: 0.000001}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	cat, err := New("usd", c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cat.Lookup("p", "m", november)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		usage Usage
		want  Split
	}{
		{"nothing", Usage{}, Split{}},
		{"a part of a nano is one", Usage{Output: 1}, Split{Output: 1}},
		{"the first class takes it, the next are within", Usage{Input: 1, Output: 1}, Split{Input: 1}},
		{"until the sum passes a nano", Usage{Input: 1, Output: 2}, Split{Input: 1, Output: 1}},
		{"fees are whole nanos here", Usage{Input: 2, CachedInput: 1, Requests: 1}, Split{Input: 1, Fees: 1000}},
	} {
		got, err := p.Split(test.usage, Terms{})
		cost, _ := p.Charge(test.usage, Terms{})
		if err != nil || got != test.want || got.Total() != cost {
			t.Errorf("%s: %+v, %v, charge %d, want %+v", test.name, got, err, cost, test.want)
		}
	}
}
