package tokenizer

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	loader "github.com/pkoukk/tiktoken-go-loader"
	"github.com/pkoukk/tiktoken-go-loader/assets"
)

var update = flag.Bool("update", false, "write ranks/*.gz anew from the files of tiktoken-go-loader")

// TestRanksAreThePublishedOnes: written as lines "base64 rank", our tokens are the files of
// tiktoken-go-loader, byte for byte, with the hashes published in openai/tiktoken,
// tiktoken_ext/openai_public.py.
func TestRanksAreThePublishedOnes(t *testing.T) {
	for enc, hash := range map[Encoding]string{
		O200k:  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
		CL100k: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
		P50k:   "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
		R50k:   "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
	} {
		name := enc.String() + ".tiktoken"
		published, err := assets.Assets.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := loader.NewOfflineLoader().LoadTiktokenBpe(name)
		if err != nil {
			t.Fatal(err)
		}
		parts := partsOf(t, theirs)
		if *update && enc != R50k {
			writeRanks(t, enc.String(), inOrder(theirs), parts)
		}
		ours, err := readRanks(enc.String())
		if err != nil {
			t.Fatal(err)
		}
		for rank := range ours.ends {
			if got := [2]uint32{ours.left[rank], ours.right[rank]}; rank >= singles && got != parts[rank] {
				t.Fatalf("%s: rank %d merges from %v, want %v", name, rank, got, parts[rank])
			}
		}
		ranks, err := rankLoader{}.LoadTiktokenBpe("https://example.com/encodings/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(ranks, theirs) {
			t.Errorf("%s: got %d ranks, want the loader's %d", name, len(ranks), len(theirs))
		}
		lines := asPublished(ranks)
		if sum := fmt.Sprintf("%x", sha256.Sum256(lines)); sum != hash || !bytes.Equal(lines, published) {
			t.Errorf("%s: got %d bytes with hash %s; want the loader's %d with hash %s", name, len(lines), sum, len(published), hash)
		}
	}
}

// inOrder returns the tokens in the order of ranks, without the gap that a special token leaves.
func inOrder(ranks map[string]int) []string {
	return slices.SortedFunc(maps.Keys(ranks), func(a, b string) int { return ranks[a] - ranks[b] })
}

// partsOf returns the places of the two tokens that each merges from, as tiktoken merges: the pair of the lowest rank
// first, leftmost on ties, until no pair has a lower rank than the token's own.
func partsOf(t *testing.T, ranks map[string]int) [][2]uint32 {
	t.Helper()
	tokens := inOrder(ranks)
	place := make(map[string]uint32, len(tokens))
	for i, token := range tokens {
		place[token] = uint32(i)
	}
	out := make([][2]uint32, len(tokens))
	for i, token := range tokens {
		if len(token) == 1 {
			continue
		}
		parts := merged(token, func(pair string) (uint32, bool) {
			at, ok := place[pair]
			return at, ok && at < uint32(i)
		})
		if len(parts) != 2 {
			t.Fatalf("token %q is not reachable: %q", token, parts)
		}
		out[i] = [2]uint32{place[parts[0]], place[parts[1]]}
	}
	return out
}

// merged returns the parts that a token merges into before its own last merge.
func merged(token string, rank func(pair string) (uint32, bool)) []string {
	var parts []string
	for i := range len(token) {
		parts = append(parts, token[i:i+1])
	}
	for {
		low, at := ^uint32(0), -1
		for i := range len(parts) - 1 {
			if r, ok := rank(parts[i] + parts[i+1]); ok && r < low {
				low, at = r, i
			}
		}
		if at < 0 {
			return parts
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
}

// asPublished returns a line "base64 rank" for each token.
func asPublished(ranks map[string]int) []byte {
	var lines bytes.Buffer
	for _, token := range inOrder(ranks) {
		fmt.Fprintf(&lines, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), ranks[token])
	}
	return lines.Bytes()
}

// writeRanks writes the file that readRanks reads.
func writeRanks(t *testing.T, encoding string, tokens []string, parts [][2]uint32) {
	t.Helper()
	raw := []byte(strings.Join(tokens[:singles], ""))
	for side := range 2 {
		for shift := 16; shift >= 0; shift -= 8 {
			for _, part := range parts[singles:] {
				raw = append(raw, byte(part[side]>>shift))
			}
		}
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("ranks/"+encoding+".gz", packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
