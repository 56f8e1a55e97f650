package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/bench/load"
	"github.com/llmguard/llmguard/bench/report"
)

// TestMain also runs the child processes of the benchmark, which starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"upstream", "reverse", "lean", "spread-proxy"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestBenchmark: every target responds, is measured in every cell, and stops with the
// benchmark. The figures are not checked.
func TestBenchmark(t *testing.T) {
	targets := []string{reverse, reverseRedis, leanRedis}
	if _, err := exec.LookPath("nginx"); err == nil {
		targets = append(targets, nginxTarget)
	}
	out := filepath.Join(t.TempDir(), "out")
	b, out, err := parse([]string{
		"-rounds", "1", "-duration", "20ms", "-warmup", "1ms", "-connections", "2", "-prompts", "300,8192rs",
		"-rate", "100", "-targets", strings.Join(targets, ","), "-out", out,
	}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	b.dir = t.TempDir()
	table, err := b.run(t.Context()) // waits until each target responds
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, r := range table.Rows() {
		got = append(got, r.Cell+": "+r.Target)
	}
	for _, cell := range []string{"300 B, new", "8192 B, repeated, stream", "300 B, new, open loop"} {
		for _, target := range targets {
			want = append(want, cell+": "+target)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got rows %q, want %q", got, want)
	}
	for _, target := range b.targets {
		if err := load.Probe(t.Context(), target.proc.Addr, target.key); err == nil {
			t.Errorf("%s still answers, want that it has ended", target.name)
		}
	}
	if err := write(table, out, t.Output()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "bench.md"))
	if err != nil || !strings.Contains(string(text), "300 B, new, open loop") {
		t.Errorf("bench.md: got %s, %v; want the open loop in it", text, err)
	}
}

// TestSample: CPU time is divided by all calls, and the rate counts successful ones.
func TestSample(t *testing.T) {
	res := &load.Result{
		Calls: 8, Errors: 2, Dropped: 3, Elapsed: 2 * time.Second,
		Latency: []time.Duration{1, 2, 3, 4, 5, 6, 7, 9},
	}
	marks := []usage{
		{target: 100 * time.Millisecond, redis: time.Second},
		{target: 140 * time.Millisecond, redis: time.Second + 10*time.Millisecond},
	}
	got := new(bench).sample(&target{name: reverse}, load.Prompt{Size: 300}, 1, 4, res, marks)
	want := report.Sample{
		Cell: "300 B, new, open loop", Target: reverse, Round: 1, Calls: 8, Errors: 2, Dropped: 3,
		PerSecond: 4, P50: 5, P99: 9, P999: 9, CPU: 4 * time.Millisecond, Redis: time.Millisecond,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	none := new(bench).sample(&target{}, load.Prompt{Size: 300}, 0, 0, &load.Result{Elapsed: time.Second}, marks)
	if none.CPU != 0 || none.PerSecond != 0 || none.P50 != 0 {
		t.Errorf("without calls: got %+v, want no times", none)
	}
}

// A small run of the queue benchmark: every job ends, and the times are reported.
func TestDrain(t *testing.T) {
	b := &bench{dir: t.TempDir(), rounds: 1, jobs: 5, log: t.Output()}
	var out strings.Builder
	if err := b.drains(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| round 1 | ") {
		t.Errorf("got %q, want a line of round 1", out.String())
	}
}

// A target that cannot run here is skipped, with the reason.
func TestSkip(t *testing.T) {
	var log strings.Builder
	b := &bench{
		log: &log, dir: t.TempDir(), rounds: 1, duration: 50 * time.Millisecond, connections: 1, noOpen: true,
		only: nginxTarget + "," + reverse, prompts: []load.Prompt{{Size: 300}},
	}
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(linkTo(t, redis)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	table, err := b.run(ctx)
	if err != nil || len(table.Rows()) != 1 || !strings.Contains(log.String(), "nginx: skipped: nginx is not installed") {
		t.Errorf("got %v, log %s; want one row, and why nginx is left out", err, log.String())
	}
}

// linkTo creates a folder that contains only one program.
func linkTo(t *testing.T, program string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func TestParsePrompts(t *testing.T) {
	got, err := parsePrompts("300,8192r,204800s,9rs")
	if want := "[300 B, new 8192 B, repeated 204800 B, new, stream 9 B, repeated, stream]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("parsePrompts = %v, %v; want %s", got, err, want)
	}
	for _, bad := range []string{"", "0", "-5", "x", "9999999", "300,", "3x"} {
		if got, err := parsePrompts(bad); err == nil {
			t.Errorf("parsePrompts(%q) = %v, want an error", bad, got)
		}
	}
}
