//go:build unix

package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Benchmarks also report the CPU time of their thread on Linux, as cpu-ns/op and MB per second of
// it, which is not distorted by a busy machine. BenchmarkCorpus counts the files of
// $LLMGUARD_CORPUS with this package and with tiktoken-go.

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

func BenchmarkStream(b *testing.B) {
	for _, k := range append(kinds, kind{"random-lower", hostile[4].make}) {
		text := k.text(100_000)
		b.Run(k.name, func(b *testing.B) {
			s, i := NewStream(O200k), 0
			bench(b, 5, func() { // one delta
				if i+5 > len(text) {
					s, i = NewStream(O200k), 0
				}
				s.Write(text[i : i+5])
				i += 5
			})
		})
	}
}

func BenchmarkCache(b *testing.B) {
	if err := Warm(O200k); err != nil {
		b.Fatal(err)
	}
	c := NewCache()
	for _, size := range []int{200, 2_000, 20_000, 200_000} {
		text := kinds[0].text(size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bench(b, size, func() { c.Count(O200k, text) })
		})
	}
}

func benchCount(b *testing.B, enc Encoding, text []byte) {
	if err := Warm(enc); err != nil {
		b.Fatal(err)
	}
	Count(enc, text) // fills the pool
	bench(b, len(text), func() { Count(enc, text) })
}

func benchOracle(b *testing.B, enc Encoding, text []byte) {
	count := oracle(b, enc)
	bench(b, len(text), func() { count(text) })
}

func bench(b *testing.B, size int, f func()) {
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, start := 0, threadCPU()
	for b.Loop() {
		f()
		n++
	}
	if used := threadCPU() - start; used > 0 {
		b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/op")
		b.ReportMetric(float64(size*n)/1e6/used.Seconds(), "MB/cpu-s")
	}
}

// threadCPU returns the CPU time this thread has used, 0 if not known.
func threadCPU() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if runtime.GOOS != "linux" || syscall.Getrusage(thread, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
