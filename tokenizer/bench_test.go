package tokenizer

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Benchmarks print MB/s; compare runs with benchstat. BenchmarkCorpus counts
// the files of $LLMGUARD_CORPUS with this package and with tiktoken-go.

func BenchmarkCount(b *testing.B) {
	for _, kind := range kinds {
		for _, size := range []int{100, 1_000, 16_000, 1_000_000} {
			text := kind.text(size)
			b.Run(kind.name+"/"+strconv.Itoa(size), func(b *testing.B) { benchCount(b, O200k, text) })
		}
	}
}

func BenchmarkCountCL100k(b *testing.B) {
	for _, kind := range kinds {
		text := kind.text(16_000)
		b.Run(kind.name, func(b *testing.B) { benchCount(b, CL100k, text) })
	}
}

func BenchmarkHostile(b *testing.B) {
	for _, enc := range ours {
		for _, h := range hostile {
			text := h.text(1_000_000)
			b.Run(enc.String()+"/"+h.name, func(b *testing.B) { benchCount(b, enc, text) })
		}
	}
}

func BenchmarkTiktokenGo(b *testing.B) {
	for _, kind := range kinds {
		text := kind.text(16_000)
		b.Run(kind.name, func(b *testing.B) { benchOracle(b, O200k, text) })
	}
}

func BenchmarkCorpus(b *testing.B) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("LLMGUARD_CORPUS"), "*.txt"))
	if os.Getenv("LLMGUARD_CORPUS") == "" {
		b.Skip("LLMGUARD_CORPUS is not set")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		name := filepath.Base(file)
		b.Run("ours/"+name, func(b *testing.B) { benchCount(b, O200k, text) })
		b.Run("tiktoken-go/"+name, func(b *testing.B) { benchOracle(b, O200k, text[:min(len(text), 100_000)]) })
	}
}

func benchCount(b *testing.B, enc Encoding, text []byte) {
	if err := Warm(enc); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		Count(enc, text)
	}
}

func benchOracle(b *testing.B, enc Encoding, text []byte) {
	count := oracle(b, enc)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		count(text)
	}
}
