package calibration

import (
	"fmt"
	"testing"
	"time"
)

func benchmarked() *Calibration {
	c := New(nil, Options{})
	in, out := map[string]entry{}, map[string]entry{}
	e, _ := parseEntry(fmt.Sprintf("%d,%d,500,200000,20000,300000,500,1000,1200000,1000000,1200000000", time.Now().UnixMilli(), time.Now().UnixMilli()))
	for i := range 300 {
		in[inputEntry(inputKey{house, fmt.Sprintf("claude-%d", i), Prose})] = e
		in[aliasEntry(aliasKey{house, fmt.Sprintf("alias-%d", i)})] = entry{alias: fmt.Sprintf("claude-%d", i)}
	}
	for i := range 10_000 {
		out[outputEntry(outputKey{fmt.Sprintf("org%d", i%100), fmt.Sprintf("user%d", i), "claude-opus-4-8"})] = e
	}
	out[outputEntry(outputKey{"", "", "claude-opus-4-8"})] = e
	c.state.Store(newSnapshot(in, out, 3000))
	return c
}

func BenchmarkInput(b *testing.B) {
	c := benchmarked()
	for _, model := range []string{"alias-7", "claude-7", "claude-opus-4-8", "gpt-4o"} {
		b.Run(model, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Input(house, model, Prose)
			}
		})
	}
}

func BenchmarkOutput(b *testing.B) {
	c := benchmarked()
	for _, user := range []string{"user77", "nobody"} {
		b.Run(user, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Output("org77", user, "claude-opus-4-8")
			}
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	c := benchmarked()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.ObserveInput(Sample{Org: house, Model: "alias-7", Version: "claude-7", Name: "claude", Estimated: 1000, Actual: 1200})
		c.ObserveOutput("org77", "user77", "claude-opus-4-8", 100)
		if i%60 == 0 {
			c.pending.take()
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	out := map[string]entry{}
	e, _ := parseEntry("1,1,500,200000,20000,300000,500,1000")
	for i := range 10_000 {
		out[outputEntry(outputKey{fmt.Sprintf("org%d", i%100), fmt.Sprintf("user%d", i), "claude-opus-4-8"})] = e
	}
	for b.Loop() {
		newSnapshot(nil, out, 3000)
	}
}

// TestLookupsDoNotAllocate covers known and unknown names.
func TestLookupsDoNotAllocate(t *testing.T) {
	c := benchmarked()
	n := testing.AllocsPerRun(100, func() {
		c.Input(house, "alias-7", Prose)
		c.Tokens(house, "claude-opus-4-8", Code, 1000)
		c.Output("org77", "user77", "claude-opus-4-8")
		c.Output("org77", "nobody", "claude-opus-4-8")
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
