package tokenizer

import (
	"bytes"
	"maps"
	"testing"

	loader "github.com/pkoukk/tiktoken-go-loader"
	"github.com/pkoukk/tiktoken-go-loader/assets"
)

// TestRanksAreThePublishedOnes: the compressed files equal those of tiktoken-go-loader, byte for
// byte, and are parsed alike.
func TestRanksAreThePublishedOnes(t *testing.T) {
	for _, enc := range []Encoding{O200k, CL100k, P50k, R50k} {
		name := enc.String() + ".tiktoken"
		want, err := assets.Assets.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rankFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, %v; want the loader's %d", name, len(got), err, len(want))
		}
		ranks, err := rankLoader{}.LoadTiktokenBpe("https://example.com/encodings/" + name)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := loader.NewOfflineLoader().LoadTiktokenBpe(name)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(ranks, theirs) {
			t.Errorf("%s: got %d ranks, want the loader's %d", name, len(ranks), len(theirs))
		}
	}
}
