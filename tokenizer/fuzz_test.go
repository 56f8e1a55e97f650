package tokenizer

import (
	"math/rand/v2"
	"testing"

	"github.com/dlclark/regexp2"
)

// warm builds the tables before the first input, because under a fuzzer's instrumentation that
// takes longer than one input may.
func warm(f *testing.F) {
	for _, enc := range ours {
		if err := Warm(enc); err != nil {
			f.Fatal(err)
		}
	}
}

func addSeeds(f *testing.F) {
	warm(f)
	for _, k := range append(kinds, hostile...) {
		f.Add(k.text(120))
	}
	for _, s := range classSamples {
		f.Add([]byte("a" + s + "B1 "))
	}
}

func FuzzCount(f *testing.F) {
	addSeeds(f)
	o200k, cl100k := oracle(f, O200k), oracle(f, CL100k)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4_000 { // the oracle is quadratic
			return
		}
		if got, want := Count(O200k, text), o200k(text); got != want {
			t.Errorf("o200k_base: %d, want %d", got, want)
		}
		if got, want := Count(CL100k, text), cl100k(text); got != want {
			t.Errorf("cl100k_base: %d, want %d", got, want)
		}
	})
}

func FuzzPieces(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4_000 {
			return
		}
		text = appendValid(nil, text)
		for _, enc := range ours {
			c, err := codecOf(enc)
			if err != nil {
				t.Fatal(err)
			}
			re := regexp2.MustCompile(patterns[enc], regexp2.None)
			if got, want := pieces(c, text), matches(t, re, text); !equal(got, want) {
				t.Errorf("%v:\n got %q\nwant %q", enc, got, want)
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	warm(f)
	for _, k := range kinds {
		f.Add(k.text(120), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		for _, enc := range ours {
			checkStream(t, enc, text, rand.New(rand.NewPCG(seed, 0)))
		}
	})
}

func FuzzTools(f *testing.F) {
	f.Add([]byte(`[{"type":"function","function":{"name":"f","parameters":{"type":"object","required":["a"],"properties":{"a":{"enum":[1,"x"]},"b":{"type":["array"],"items":{"anyOf":[{}]}}}}}}]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !empty(raw) && ToolsTokens(O200k, raw) < toolsMargin {
			t.Error("less than the margin")
		}
		ToolChoiceTokens(O200k, raw)
		ResponseFormatTokens(O200k, raw)
	})
}
