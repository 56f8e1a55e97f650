// Budgetbench measures how strictly gateways for language models keep budgets. See README.md.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llmguard/llmguard/bench/budget/attack"
	"github.com/llmguard/llmguard/bench/budget/fixture"
	"github.com/llmguard/llmguard/bench/budget/gateway"
	"github.com/llmguard/llmguard/bench/budget/report"
)

//go:embed gateways/*.yaml
var manifests embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "fixture" {
		if err := fixture.Serve(ctx, os.Args[2:]); err != nil {
			fail(err)
		}
		return
	}
	failed, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fail(err)
	}
	if failed {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "budgetbench:", err)
	os.Exit(2)
}

type options struct {
	gateways, attacks, out, compare, keep string
	bins                                  map[string]string
	short                                 bool
	parallel                              int
}

func parse(args []string) (options, error) {
	o := options{bins: map[string]string{}}
	flags := flag.NewFlagSet("budgetbench", flag.ContinueOnError)
	flags.StringVar(&o.gateways, "gateways", "llmguard", "gateways, separated by commas: names of manifests in\n"+
		"gateways/, or paths of manifests; all: all that this suite was run\nagainst; fixtures: the four fixtures")
	flags.StringVar(&o.attacks, "attacks", "all", "attacks, separated by commas")
	flags.Func("bin", "the program of a gateway, as NAME=PATH, or PATH for the only one;\n"+
		"default: as its manifest says", func(text string) error {
		name, path, ok := strings.Cut(text, "=")
		if !ok {
			name, path = "", text
		}
		path, err := filepath.Abs(path)
		o.bins[name] = path
		return err
	})
	flags.BoolVar(&o.short, "short", false, "less traffic, shorter windows and leases: about a minute")
	flags.StringVar(&o.out, "out", "budgetbench", "write OUT.html and OUT.json")
	flags.StringVar(&o.compare, "compare", "", "a JSON of an earlier run to compare with")
	flags.StringVar(&o.keep, "keep", "", "a directory for configurations and logs of the gateways;\n"+
		"default: a temporary one, which is deleted")
	flags.IntVar(&o.parallel, "parallel", 3, "attacks to run in parallel, each on a gateway of its own")
	return o, flags.Parse(args)
}

// run returns whether an attack succeeded or could not be run.
func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	attacks, err := choose(o.attacks)
	if err != nil {
		return false, err
	}
	var before *report.Run
	if o.compare != "" {
		before, err = report.Read(o.compare)
		if err != nil {
			return false, err
		}
	}
	if o.keep == "" {
		o.keep, err = os.MkdirTemp("", "budgetbench-")
		if err != nil {
			return false, err
		}
		defer os.RemoveAll(o.keep)
	}
	gateways, err := o.load(ctx)
	if err != nil {
		return false, err
	}
	began := time.Now()
	result := report.New(ctx, o.short)
	for _, g := range gateways {
		fmt.Fprintf(out, "%s %s\n", g.Manifest.Name, g.Version)
		result.Results = append(result.Results, runAll(ctx, g, attacks, o.parallel, out)...)
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	result.Seconds = int(time.Since(began).Seconds())
	result.Table(out)
	if before != nil {
		result.Compare(out, before)
	}
	if err := result.Write(o.out); err != nil {
		return false, err
	}
	fmt.Fprintf(out, "written: %s.html, %s.json\n", o.out, o.out)
	return slices.ContainsFunc(result.Results, func(r *attack.Result) bool { return r.Error != "" }), nil
}

func choose(names string) ([]attack.Attack, error) {
	if names == "all" {
		return attack.All, nil
	}
	var out []attack.Attack
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(attack.All, func(a attack.Attack) bool { return a.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no attack is called %q", name)
		}
		out = append(out, attack.All[i])
	}
	return out, nil
}

// load finds the manifests and the programs of the gateways.
func (o options) load(ctx context.Context) ([]attack.Gateway, error) {
	var names []string
	for name := range strings.SplitSeq(o.gateways, ",") {
		switch name {
		case "all":
			names = append(names, "llmguard", "portkey")
		case "fixtures":
			names = append(names, "fixture-none", "fixture-after", "fixture-leaks", "fixture-process")
		default:
			names = append(names, name)
		}
	}
	if err := os.CopyFS(filepath.Join(o.keep, "manifests"), manifests); err != nil {
		return nil, err
	}
	clock := gateway.BuildClock(ctx, o.keep)
	var out []attack.Gateway
	for _, name := range names {
		path := name
		if !strings.HasSuffix(name, ".yaml") {
			path = filepath.Join(o.keep, "manifests", "gateways", name+".yaml")
		}
		m, err := gateway.Load(path)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("no manifest is called %s", name)
		}
		if err != nil {
			return nil, err
		}
		bin := o.bins[m.Name]
		if bin == "" && len(names) == 1 {
			bin = o.bins[""]
		}
		bin, err = m.Find(ctx, bin, o.keep)
		if err != nil {
			return nil, err
		}
		version, err := m.FindVersion(ctx, bin)
		if err != nil {
			return nil, err
		}
		out = append(out, attack.Gateway{
			Manifest: m, Bin: bin, Version: version, Dir: o.keep, Short: o.short, Clock: clock,
		})
	}
	return out, nil
}

// runAll runs attacks, several in parallel, because most of their time is waiting.
func runAll(
	ctx context.Context, g attack.Gateway, attacks []attack.Attack, parallel int, out io.Writer,
) []*attack.Result {
	results := make([]*attack.Result, len(attacks))
	order := make([]int, 0, len(attacks))
	for i := range attacks {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(x, y int) int { // the long ones first
		return int(attacks[y].Setup.Window - attacks[x].Setup.Window)
	})
	next := make(chan int)
	var group sync.WaitGroup
	var mu sync.Mutex
	for range max(1, parallel) {
		group.Go(func() {
			for i := range next {
				results[i] = attack.Run(ctx, g, attacks[i])
				mu.Lock()
				fmt.Fprintf(out, "  %s\n", report.Line(results[i]))
				mu.Unlock()
			}
		})
	}
	for _, i := range order {
		next <- i
	}
	close(next)
	group.Wait()
	return results
}
