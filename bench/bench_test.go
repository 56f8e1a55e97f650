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
)

// TestMain is also the children of the benchmark, which starts itself again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"upstream", "reverse", "lean"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// The whole benchmark in small: every baseline answers, nothing fails, and no
// process stays behind.
func TestBenchmark(t *testing.T) {
	targets := []string{reverse, reverseRedis, leanRedis}
	if _, err := exec.LookPath("nginx"); err == nil {
		targets = append(targets, nginxTarget)
	}
	b, out, err := parse([]string{
		"-rounds", "1", "-duration", "100ms", "-warmup", "50ms", "-connections", "2", "-prompts", "300,8192rs",
		"-targets", strings.Join(targets, ","), "-out", filepath.Join(t.TempDir(), "out"),
	}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	b.dir = t.TempDir()
	table, err := b.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := table.Rows()
	if want := len(targets) * 3; len(rows) != want { // two prompts, one of them in an open loop too
		t.Errorf("%d rows, want %d", len(rows), want)
	}
	for _, r := range rows {
		if r.Errors+r.Dropped > 0 || r.PerSecond == 0 || r.P50 == 0 {
			t.Errorf("row %+v", r)
		}
	}
	if err := write(table, out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "bench.md")); err != nil || !strings.Contains(string(text), "300 B, new, open loop") {
		t.Errorf("bench.md: %v\n%s", err, text)
	}
	for _, target := range b.targets {
		if err := load.Probe(t.Context(), target.proc.Addr, target.key); err == nil {
			t.Errorf("%s still answers", target.name)
		}
	}
}

// The queue's part in small: every job ends, and its times are told.
func TestDrain(t *testing.T) {
	b := &bench{dir: t.TempDir(), rounds: 1, jobs: 20, log: t.Output()}
	var out strings.Builder
	if err := b.drains(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| round 1 | ") {
		t.Errorf("told %q", out.String())
	}
}

// A target that cannot run here is left out with its reason.
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	table, err := b.run(ctx)
	if err != nil || len(table.Rows()) != 1 || !strings.Contains(log.String(), "nginx: skipped: nginx is not installed") {
		t.Errorf("%v\n%s", err, log.String())
	}
}

// linkTo makes a folder that holds one program only.
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
			t.Errorf("parsePrompts(%q) = %v", bad, got)
		}
	}
}
