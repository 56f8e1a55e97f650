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
		if *update && enc != R50k {
			writeRanks(t, enc.String(), theirs)
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

// inOrder returns the tokens in the order of ranks.
func inOrder(ranks map[string]int) []string {
	tokens := make([]string, len(ranks)+1)
	for token, rank := range ranks {
		tokens[rank] = token
	}
	return tokens
}

// asPublished returns a line "base64 rank" for each token.
func asPublished(ranks map[string]int) []byte {
	var lines bytes.Buffer
	for rank, token := range inOrder(ranks) {
		if token != "" {
			fmt.Fprintf(&lines, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
		}
	}
	return lines.Bytes()
}

// writeRanks writes the file that rankFile reads.
func writeRanks(t *testing.T, encoding string, ranks map[string]int) {
	t.Helper()
	var lengths, all []byte
	for _, token := range inOrder(ranks) {
		if token != "" {
			lengths = append(lengths, byte(len(token)))
			all = append(all, token...)
		}
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(append(lengths, all...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("ranks/"+encoding+".gz", packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
