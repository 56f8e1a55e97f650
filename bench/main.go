// Command bench measures the cost of llmguard per call, compared with proxies that do less, on
// one machine and over loopback only. docs/internals/benchmarks.md explains the results. It needs
// redis-server; nginx is skipped if it is not installed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llmguard/llmguard/bench/load"
	"github.com/llmguard/llmguard/bench/report"
)

// queueOnly is the value of -targets that skips the call benchmarks.
const queueOnly = "queue"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "population" {
		return populate(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "spread" {
		return spread(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "spread-proxy" {
		return serveSpread(ctx, args, stdout) // a child process
	}
	if len(args) > 0 && args[0] == "fairness" {
		return fair(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "waiting" {
		return wait(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "backlog" {
		return drainBacklog(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "hostile" {
		return attacked(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return serve(ctx, args, stdout) // a child process
	}
	b, out, err := parse(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "llmguard-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if b.only != queueOnly {
		table, err := b.run(ctx)
		if table != nil {
			writeErr := write(table, out, stdout)
			if writeErr != nil {
				return writeErr
			}
		}
		if err != nil {
			return err
		}
	}
	if b.jobs == 0 {
		return nil
	}
	return b.drains(ctx, stdout)
}

// parse parses the flags.
func parse(args []string, stderr io.Writer) (b *bench, out string, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	b = &bench{log: stderr}
	fs.IntVar(&b.rounds, "rounds", 3, "rounds; in each, every target is measured once per prompt")
	fs.DurationVar(&b.duration, "duration", 2*time.Second, "measured time of one run")
	fs.DurationVar(&b.warmup, "warmup", 500*time.Millisecond, "time before each run that does not count")
	fs.IntVar(&b.connections, "connections", 16, "callers at once in a closed loop")
	fs.Float64Var(&b.rate, "rate", 0, "calls per second of the open loop; 0 is 40 % of what the slowest target reached")
	fs.BoolVar(&b.noOpen, "closed", false, "leave the open loop out")
	fs.DurationVar(&b.delay, "delay", 0, "how long the upstream takes to answer")
	fs.StringVar(&b.protocol, "upstream", "h2",
		"what the upstream speaks: h2 or h1, which are HTTP/2 and HTTP/1.1 over TLS, or plain HTTP/1.1")
	fs.StringVar(&b.only, "targets", "",
		"comma-separated targets to measure; default all; "+guardTarget+"=<binary> is another version; "+queueOnly+
			" measures the queue only")
	fs.IntVar(&b.jobs, "jobs", 20_000, "jobs of one run of the queue; 0 leaves it out")
	fs.IntVar(&b.handlers, "handlers", 256,
		"jobs that the queue's worker carries out at once, worker_concurrency in the configuration; 0: as by default, 64")
	fs.BoolVar(&b.memory, "memory", false, "run Redis without its append-only file")
	fs.StringVar(&b.guard, "llmguard", "", "llmguard binary to measure; default builds ./cmd/llmguard")
	fs.StringVar(&b.profile, "profile", "", "have llmguard write a profile of its processor time to this file")
	prompts := fs.String("prompts", "300,8192,8192r,204800,204800r,300s",
		"sizes in bytes; r repeats the conversation, s streams")
	fs.StringVar(&out, "out", "", "folder for bench.md and bench.txt; default prints only")
	if err := fs.Parse(args); err != nil {
		return nil, "", err
	}
	b.prompts, err = parsePrompts(*prompts)
	if err != nil {
		return nil, "", err
	}
	if b.profile != "" {
		b.profile, err = filepath.Abs(b.profile)
		if err != nil { // needed to start children
			return nil, "", err
		}
	}
	if !slices.Contains(protocolNames, b.protocol) {
		return nil, "", fmt.Errorf("-upstream %q: %s", b.protocol, strings.Join(protocolNames, ", "))
	}
	if b.rounds < 1 || b.rounds > 100 {
		return nil, "", fmt.Errorf("-rounds %d: 1 to 100", b.rounds)
	}
	return b, out, nil
}

func parsePrompts(list string) ([]load.Prompt, error) {
	var prompts []load.Prompt
	for word := range strings.SplitSeq(list, ",") {
		var p load.Prompt
		var err error
		p.Size, err = strconv.Atoi(strings.TrimRight(word, "rs"))
		if err != nil || p.Size < 1 || p.Size > 1<<20 {
			return nil, fmt.Errorf("-prompts %q: sizes are 1 to 1048576", word)
		}
		p.Repeat = strings.Contains(word, "r")
		p.Stream = strings.Contains(word, "s")
		prompts = append(prompts, p)
	}
	return prompts, nil
}

// write prints the table, and stores it if a folder is given.
func write(table *report.Table, out string, stdout io.Writer) error {
	if err := table.Markdown(stdout); err != nil {
		return err
	}
	if out == "" {
		fmt.Fprintln(stdout)
		return table.Benchstat(stdout)
	}
	for name, form := range map[string]func(io.Writer) error{"bench.md": table.Markdown, "bench.txt": table.Benchstat} {
		if err := writeFile(filepath.Join(out, name), form); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, form func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := form(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
